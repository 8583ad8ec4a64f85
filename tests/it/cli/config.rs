//! `idemctl config`: flag beats environment beats file beats default, and no secret is shown.

use serde_json::Value;

use super::fixture::{SECRET, calm, cli, redactor, without_widths};
use crate::support::{Output, Run, idemctl, temp_dir};

async fn value(run: Run, name: &str) -> (String, String) {
    let output = calm(run.run().await);
    let values: Vec<Value> =
        serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.transcript()));
    let found = values
        .iter()
        .rfind(|value| value["name"] == name)
        .unwrap_or_else(|| panic!("no {name}: {}", output.stdout));
    let text = |field: &str| found[field].as_str().unwrap().to_owned();
    (text("value"), text("source"))
}

#[tokio::test]
async fn precedence() {
    let dir = temp_dir();
    let file = dir.path().join("c.toml").to_string_lossy().into_owned();
    std::fs::write(
        &file,
        "[database]\nurl = \"postgres://u@from-file/x\"\nstatement_timeout = \"7s\"\nschema = \"pay\"\n",
    )
    .unwrap();
    let plain = || idemctl(&["config", "-o", "json"]);
    let with_file = || plain().env("IDEMCTL_CONFIG", &file);
    assert_eq!(value(plain().env("PGHOST", "from-pg"), "host").await.0, "from-pg");
    let (host, source) = value(with_file().env("PGHOST", "from-pg"), "host").await;
    assert_eq!(host, "from-file", "{source}");
    let both = with_file().env("DATABASE_URL", "postgres://u@from-env/x");
    assert_eq!(value(both, "host").await.0, "from-env");
    let ours = with_file()
        .env("DATABASE_URL", "postgres://u@from-env/x")
        .env("IDEMCTL_DATABASE_URL", "postgres://u@from-ours/x");
    assert_eq!(value(ours, "host").await.0, "from-ours");
    let flag = idemctl(&[
        "config",
        "-o",
        "json",
        "-d",
        "postgres://u@from-flag/x",
        "--statement-timeout",
        "9s",
        "-c",
        &file,
    ])
    .env("IDEMCTL_DATABASE_URL", "postgres://u@from-ours/x");
    assert_eq!(value(flag, "host").await.0, "from-flag");
    let flag = idemctl(&["config", "-o", "json", "--statement-timeout", "9s", "-c", &file]);
    assert_eq!(
        value(flag, "database.statement_timeout").await,
        ("9s".into(), "flag".into())
    );
    assert_eq!(
        value(with_file(), "database.statement_timeout").await,
        ("7s".into(), format!("{file}, line 3"))
    );
    assert_eq!(
        value(plain(), "database.statement_timeout").await,
        ("30s".into(), "default".into())
    );
    assert_eq!(
        value(with_file(), "database.schema").await,
        ("pay".into(), format!("{file}, line 4"))
    );
}

#[tokio::test]
async fn every_value_with_its_source_and_no_secret() {
    let cli = cli().await;
    let config = cli.config(&format!(
        "[database]\nurl = \"postgres://u:{SECRET}@db.example/pay?sslmode=disable\"\n[retention]\ndone = \"48h\"\n\
         [janitor.expired]\npolicy = \"fail\"\n\
         [providers.acme]\nkind = \"http\"\nurl = \"https://acme.example/{{order_id}}?token={SECRET}\"\n\
         headers = {{ Authorization = \"Bearer {SECRET}\", X-Key = {{ file = \"/run/credentials/acme\" }} }}\n\
         find = \"/data\"\nstatus = \"/status\"\nverdicts = {{ charged = [\"ok\"] }}\n"
    ));
    let output = calm(idemctl(&["config", "-c", &config]).run().await);
    insta::assert_snapshot!(without_widths(&redactor(&cli).redact(&output.transcript())));
    for form in ["json", "jsonl", "csv"] {
        let output = calm(
            idemctl(&["config", "-c", &config, "-o", form, "-vvv"])
                .run()
                .await,
        );
        assert_eq!(output.code, 0, "{}", output.transcript());
    }
}

#[tokio::test]
async fn secrets_stay_hidden_wherever_they_come_from() {
    let dir = temp_dir();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path("url"), format!("postgres://u:{SECRET}@127.0.0.1:1/x\n")).unwrap();
    std::fs::write(
        path("c.toml"),
        format!("[database]\nurl_file = \"{}\"\n", path("url")),
    )
    .unwrap();
    let url = format!("postgres://u:{SECRET}@127.0.0.1:1/x");
    let keyvalue = format!("host=127.0.0.1 port=1 password={SECRET} dbname=x user=u");
    for command in [
        &["config"][..],
        &["list"],
        &["list", "-vvv"],
        &["migrate"],
        &["janitor", "--once"],
    ] {
        let flag = |text: &str| idemctl(&[command, &["-d", text]].concat());
        for run in [
            flag(&url),
            flag(&keyvalue),
            flag("host=127.0.0.1 port=1 user=u dbname=x").env("PGPASSWORD", SECRET),
            idemctl(&[command, &["-c", &path("c.toml")]].concat()),
            // Not readable as a URL, so it must not be repeated.
            flag(&format!("postgres://u:{SECRET}@ho st:x/y?nonsense=1")),
            flag(&format!("postgres//u:{SECRET}@host/y")),
            flag(&format!("mysql://u:{SECRET}@host/y")),
            flag(&format!("host=127.0.0.1 password='{SECRET}")),
        ] {
            calm(run.run().await);
        }
    }
}

async fn wrong(text: &str) -> Output {
    let dir = temp_dir();
    let path = dir.path().join("c.toml").to_string_lossy().into_owned();
    std::fs::write(&path, text).unwrap();
    let output = calm(idemctl(&["config", "--check", "-c", &path]).run().await);
    assert_eq!(output.stdout, "");
    output
}

#[tokio::test]
async fn what_is_wrong_in_the_file_is_named_with_its_line() {
    for (text, line, word) in [
        ("[databse]\n", "line 1", "databse"),
        ("[database]\n\nurll = \"x\"\n", "line 3", "urll"),
        ("[lease]\ndefault = 30\n", "line 2", "string"),
        ("[lease]\ndefault = \"30\"\n", "line 2", "no unit"),
        ("[lease]\ndefault = \"0s\"\n", "line 2", "1 second"),
        ("[retention]\ndone = \"-1h\"\n", "line 2", "no whole number"),
        ("[database]\nstatements = \"sometimes\"\n", "line 2", "sometimes"),
        ("[janitor.expired]\npolicy = \"guess\"\n", "line 2", "guess"),
        ("[database]\nurl = \"s3cr3t-Pa55\n", "line 2", "string"),
        ("[retention]\nevents = \"1h\"\n", "line 2", "outlive"),
        ("[janitor]\ntimezone = \"Mars\"\n", "line 2", "Mars"),
        ("[janitor.purge]\nschedule = \"61 * * * *\"\n", "line 2", "minute"),
        (
            "[janitor.expired]\n\nschedule = \"0 0 30 2 *\"\n",
            "line 3",
            "schedule",
        ),
        ("not toml at all", "line 1", "="),
    ] {
        let output = wrong(text).await;
        assert_eq!(output.code, 2, "{text}: {}", output.transcript());
        assert!(output.stderr.contains(line), "{text}: {}", output.stderr);
        assert!(output.stderr.contains(word), "{text}: {}", output.stderr);
    }
    // What only the provider's adapter can see.
    let output = wrong("[providers.acme]\nkind = \"http\"\nurl = \"https://acme.example/pay\"\n").await;
    assert_eq!(output.code, 2, "{}", output.transcript());
    assert!(output.stderr.contains("providers.acme.url"), "{}", output.stderr);
    assert_eq!(wrong("[retention]\ndone = \"12h\"\n").await.code, 0);
    let endless = calm(idemctl(&["config", "--check", "-c", "/dev/zero"]).run().await);
    assert_eq!(endless.code, 2, "{}", endless.transcript());
    assert!(endless.stderr.contains("1048576 bytes"), "{}", endless.stderr);
    let missing = calm(
        idemctl(&["config", "--check", "-c", "/nonexistent/c.toml"])
            .run()
            .await,
    );
    assert_eq!(missing.code, 2, "{}", missing.transcript());
    assert!(
        missing.stderr.contains("/nonexistent/c.toml"),
        "{}",
        missing.stderr
    );
}

#[tokio::test]
async fn the_url_may_be_a_credential_of_systemd() {
    let dir = temp_dir();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let directory = dir.path().to_string_lossy().into_owned();
    let file = path("c.toml");
    std::fs::write(&file, "[database]\n\nurl_credential = \"db\"\n").unwrap();
    let config = || idemctl(&["config", "-o", "json", "-c", &file]);
    let with = || config().env("CREDENTIALS_DIRECTORY", &directory);

    // Not there, of no unit, empty: named, with what to do.
    for (run, word) in [
        (with(), "LoadCredential=db:"),
        (config(), "CREDENTIALS_DIRECTORY is not set"),
        (config().env("CREDENTIALS_DIRECTORY", "here"), "no absolute path"),
    ] {
        let output = calm(run.run().await);
        assert_eq!(output.code, 2, "{}", output.transcript());
        assert!(output.stderr.contains(word), "{}", output.stderr);
        assert!(
            output.stderr.contains("database.url_credential"),
            "{}",
            output.stderr
        );
    }
    std::fs::write(path("db"), "\n").unwrap();
    let output = calm(with().run().await);
    assert_eq!(output.code, 2, "{}", output.transcript());
    assert!(output.stderr.contains("is empty"), "{}", output.stderr);

    std::fs::write(path("db"), format!("postgres://u:{SECRET}@from-credential/x\n")).unwrap();
    assert_eq!(value(with(), "host").await.0, "from-credential");
    let (_, source) = value(with(), "database.url").await;
    assert_eq!(source, format!("{file}, line 3"));
    // Who brings a URL needs no credential of the daemon's.
    let own = config().env("DATABASE_URL", "postgres://u@from-env/x");
    assert_eq!(value(own, "host").await.0, "from-env");

    for (text, line, word) in [
        // What stands there is not quoted: it may be the URL itself, by mistake.
        (
            "[database]\nurl_credential = \"postgres://u:s3cr3t-Pa55@h/x\"\n",
            "line 2",
            "database.url_credential is no name",
        ),
        (
            "[database]\nurl_credential = \"..\"\n",
            "line 2",
            "no name of a credential",
        ),
        (
            "[database]\nurl_file = \"/x\"\nurl_credential = \"db\"\n",
            "line 3",
            "database.url_file",
        ),
    ] {
        let output = wrong(text).await;
        assert_eq!(output.code, 2, "{text}: {}", output.transcript());
        assert!(output.stderr.contains(line), "{text}: {}", output.stderr);
        assert!(output.stderr.contains(word), "{text}: {}", output.stderr);
    }
}
