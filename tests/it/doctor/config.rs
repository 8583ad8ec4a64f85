//! What is wrong with the configuration.

use super::{Findings, run, sound};
use crate::cli::fixture::calm;

/// A provider, with more lines in its section.
fn provider(more: &str) -> String {
    format!(
        "[providers.acme]\nkind = \"http\"\nurl = \"https://acme.example/p?o={{order_id}}\"\nfind = \"/data\"\n\
         status = \"/status\"\nverdicts = {{ charged = [\"paid\"] }}\n{more}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn each_is_found_by_name() {
    let cli = sound().await;
    for (text, names, code) in [
        (provider(""), &[][..], 0),
        (provider("key_limit = 36\nkey_retention = \"24h\""), &[], 0),
        (
            format!("[lease]\ndefault = \"5s\"\n{}", provider("")),
            &["configuration", "lease"],
            4,
        ),
        (
            format!("[lease]\ndefault = \"15s\"\n{}", provider("")),
            &["lease"],
            0,
        ),
        ("[lease]\ndefault = \"15s\"\n".to_owned(), &[], 0),
        ("[retention]\ndone = \"1h\"\n".to_owned(), &["retention"], 0),
        ("[retention]\nfailed = \"23h\"\n".to_owned(), &["retention"], 0),
        (
            format!(
                "[retention]\ndone = \"48h\"\n{}",
                provider("key_retention = \"24h\"")
            ),
            &["retention"],
            0,
        ),
        ("[retention]\nevents = \"1h\"\n".to_owned(), &["configuration"], 4),
        (provider("key_limit = 20"), &["provider_keys"], 4),
        (
            provider("key_limit = 64\nkey_scheme = \"plain\""),
            &["provider_keys"],
            0,
        ),
        (
            "[providers.acme]\nkind = \"http\"\n".to_owned(),
            &["providers"],
            4,
        ),
    ] {
        let config = cli.config(&text);
        let output = run(&cli, &["--config", &config]).run().await;
        let findings = Findings::of(output);
        assert_eq!(
            (findings.bad(), findings.code),
            (names.to_vec(), code),
            "{text}: {:#?}",
            findings.checks
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_does_not_fit_is_still_refused_by_every_other_command() {
    let cli = sound().await;
    let config = cli.config(&format!("[lease]\ndefault = \"5s\"\n{}", provider("")));
    let output = calm(cli.command(&["list", "--config", &config]).run().await);
    assert_eq!(output.code, 2, "{}", output.transcript());
    assert!(
        output.stderr.contains("providers.acme.timeout"),
        "{}",
        output.stderr
    );
    // One that cannot be read at all names no database, so there is nothing to examine.
    let config = cli.config("[lease\n");
    let output = calm(run(&cli, &["--config", &config]).run().await);
    assert_eq!(output.code, 2, "{}", output.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_the_provider_has_forgotten_is_worse_than_a_stuck_one() {
    let cli = sound().await;
    cli.execute(
        "insert into idempotency (client_id, key, fingerprint, created_at, locked_until)
         values ('s', 'k', '', now() - interval '3 d', now() - interval '2 d')",
    )
    .await;
    let config = cli.config(&provider("key_retention = \"7d\""));
    Findings::of(run(&cli, &["--config", &config]).run().await).are(&["expired"], 0);
    let config = cli.config(&provider("key_retention = \"24h\""));
    Findings::of(run(&cli, &["--config", &config]).run().await).are(&["expired"], 4);
}
