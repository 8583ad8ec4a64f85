//! What the units say, without starting them.

use super::boot::project;
use crate::support::{Run, require_program, temp_dir};

/// Tenths of the most that `systemd-analyze security` may find: 1.2 of 10. SECURITY.md says 1.1.
const THRESHOLD: &str = "12";

async fn security(unit: &str, threshold: &str) -> (i32, String) {
    let program = require_program("systemd-analyze", "systemd");
    let output = Run::new(
        &program.to_string_lossy(),
        &[
            "security",
            "--no-pager",
            "--offline=true",
            &format!("--threshold={threshold}"),
            &project(&format!("systemd/{unit}")),
        ],
    )
    .run()
    .await;
    (output.code, output.transcript())
}

#[tokio::test]
async fn both_services_are_hardened() {
    for unit in ["idemctl-janitor.service", "idemctl-purge.service"] {
        let (code, transcript) = security(unit, THRESHOLD).await;
        assert_eq!(code, 0, "{transcript}");
        assert!(transcript.contains("Overall exposure level"), "{transcript}");
        // They need the network, so there is always something to find.
        let (code, transcript) = security(unit, "1").await;
        assert_ne!(code, 0, "{transcript}");
    }
}

/// What the documentation of systemd 252 does not have yet.
#[test]
fn they_suit_the_oldest_systemd_that_is_supported() {
    for unit in [
        "idemctl-janitor.service",
        "idemctl-purge.service",
        "idemctl-purge.timer",
    ] {
        let text = std::fs::read_to_string(project(&format!("systemd/{unit}"))).unwrap();
        for word in [
            "notify-reload",
            "RestartSteps",
            "RestartMaxDelaySec",
            "RestartMode",
            "ImportCredential",
        ] {
            assert!(!text.contains(word), "{unit} has {word}");
        }
    }
}

/// How long it may take is for the configuration to say, which a flag would override; and a row that can never be
/// deleted is a failure that somebody sees.
#[test]
fn the_purge_neither_overrides_the_file_nor_hides_a_failure() {
    let text = std::fs::read_to_string(project("systemd/idemctl-purge.service")).unwrap();
    let value = |key: &str| -> Vec<&str> {
        let lines = text.lines();
        lines
            .filter_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .collect()
    };
    assert_eq!(value("ExecStart"), ["/usr/bin/idemctl purge"]);
    assert_eq!(value("SuccessExitStatus"), ["130"]);
}

/// The hardening is written twice, since units cannot include each other.
#[test]
fn both_services_have_the_same_hardening() {
    let part = |unit: &str| {
        let text = std::fs::read_to_string(project(&format!("systemd/{unit}"))).unwrap();
        let (_, rest) = text.split_once("DynamicUser=yes").expect("DynamicUser");
        let (part, _) = rest.split_once("UMask=0077").expect("UMask");
        part.to_owned()
    };
    assert_eq!(part("idemctl-janitor.service"), part("idemctl-purge.service"));
}

/// Where it cannot be had, a boot says so and fails; it is never skipped.
#[tokio::test]
async fn a_boot_without_root_is_refused_in_words() {
    let dir = temp_dir();
    let script = dir.path().join("boot");
    std::fs::copy(project("tests/systemd/boot"), &script).unwrap();
    let script = script.to_string_lossy().into_owned();
    let run = if nix::unistd::geteuid().is_root() {
        let setpriv = require_program("setpriv", "util-linux");
        Run::new(
            &setpriv.to_string_lossy(),
            &[
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                &script,
                "/bin/true",
            ],
        )
    } else {
        Run::new(&script, &["/bin/true"])
    };
    let output = run.run().await;
    assert_eq!(output.code, 69, "{}", output.transcript());
    assert!(output.stderr.contains("root"), "{}", output.stderr);
}
