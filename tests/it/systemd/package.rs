//! The Debian package, built around the binary under test.

use super::boot::{binary, boot, project};
use crate::support::{Run, require_program, temp_dir};

/// What lintian may say: the package is not meant for Debian's own archive, where the first upload closes a bug.
const SUPPRESSED: &str = "initial-upload-closes-no-bugs";

/// Builds a revision with the project's own command; gives its path.
async fn build(dir: &std::path::Path, revision: &str) -> String {
    let (binary, _) = binary();
    let dir = dir.to_string_lossy();
    let built = Run::new(
        &project(".ci/package"),
        &[
            "--fast",
            "--binary",
            binary,
            "--revision",
            revision,
            "--output",
            &dir,
        ],
    )
    .inherit_env()
    .run()
    .await
    .ok();
    built.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_installs_runs_upgrades_and_leaves_nothing() {
    let dir = temp_dir();
    let (first, second) = (build(dir.path(), "1").await, build(dir.path(), "2").await);
    let lintian = require_program("lintian", "lintian");
    let said = Run::new(
        &lintian.to_string_lossy(),
        &[
            "--allow-root",
            "--fail-on",
            "error,warning",
            "--suppress-tags",
            SUPPRESSED,
            &first,
        ],
    )
    .run()
    .await
    .ok();
    assert_eq!(said, "", "lintian");

    let facts = boot(
        "package",
        &[(&first, "/run/packages/1.deb"), (&second, "/run/packages/2.deb")],
    )
    .await;
    facts.ok("install");
    let version = format!("idemctl {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(facts.ok("version"), version);
    assert_eq!(facts.ok("man"), "/usr/share/man/man1/idemctl-purge.1.gz");
    assert!(facts.ok("cat").contains("Persistent=yes"));
    assert_eq!(facts.ok("verify"), "");
    facts.ok("example");
    // What is linked into it is named, and what only tests it is not.
    for name in ["\ntokio 1.", "\nrustls 0.", "\nclap_builder 4."] {
        assert!(facts.ok("third-party").contains(name), "{name:?}");
    }
    assert!(!facts.ok("third-party").contains("\nproptest "));
    for unit in ["idemctl-janitor.service", "idemctl-purge.timer"] {
        assert_eq!(facts.failed(&format!("enabled-{unit}")), "disabled");
        assert_eq!(facts.failed(&format!("active-{unit}")), "inactive");
    }

    facts.ok("enable");
    facts.ok("purge");
    assert_eq!(facts.ok("left"), "5");
    facts.ok("janitor");
    facts.ok("upgrade");
    assert!(facts.ok("upgraded").ends_with("-2"));
    assert_eq!(facts.ok("janitor-after"), "active");
    facts.ok("janitor-is-new");
    assert_eq!(facts.ok("timer-after"), "active");
    assert_eq!(facts.ok("enabled-after"), "enabled");

    facts.ok("remove");
    facts.failed("timer-removed");
    facts.failed("janitor-removed");
    facts.ok("purge-package");
    facts.failed("gone");
    assert_eq!(facts.ok("left-behind"), "");
}

/// The same source gives the same package, byte for byte.
#[tokio::test]
async fn it_can_be_reproduced() {
    let (dir, again) = (temp_dir(), temp_dir());
    let (first, second) = (build(dir.path(), "1").await, build(again.path(), "1").await);
    assert!(std::fs::read(first).unwrap() == std::fs::read(second).unwrap());
}

#[tokio::test]
async fn what_the_command_does_not_know_it_refuses() {
    let output = Run::new(&project(".ci/package"), &["--nonsense"])
        .inherit_env()
        .run()
        .await;
    assert_eq!(output.code, 2, "{}", output.transcript());
    assert!(output.stderr.contains("--nonsense"), "{}", output.stderr);
}
