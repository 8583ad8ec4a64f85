//! The daemon as a unit: when it counts as started, how it is reloaded and stopped, and who notices that it hangs.

use super::boot::{SECRET, binary, boot};

#[tokio::test(flavor = "multi_thread")]
async fn it_is_ready_reloaded_stopped_and_watched() {
    let facts = boot("janitor", &[binary()]).await;
    // What another start cannot mend is not tried again.
    facts.failed("wrong");
    assert_eq!(facts.ok("wrong-state"), "failed");
    assert_eq!(facts.ok("wrong-status"), "2");
    assert_eq!(facts.ok("wrong-restarts"), "0");

    // Without a database it starts for as long as it takes, and is not started anew.
    assert_eq!(facts.failed("not-ready"), "activating");
    assert!(facts.ok("ready").contains("purge:"), "{}", facts.ok("ready"));
    assert_eq!(facts.ok("restarts"), "0");
    assert!(facts.ok("readyz").contains("200"), "{}", facts.ok("readyz"));

    facts.ok("reload");
    facts.ok("reload-wrong");
    assert_eq!(facts.ok("still-active"), "active");
    facts.ok("same-process");
    assert!(facts.ok("refused").contains("refused"), "{}", facts.ok("refused"));

    // The batch of ten that was under way was finished, the other one not begun.
    assert!(
        facts.ok("stopping").contains("stopping"),
        "{}",
        facts.ok("stopping")
    );
    assert_eq!(facts.ok("stopped"), "success");
    assert_eq!(facts.ok("stopped-status"), "0");
    assert_eq!(facts.ok("left"), "15");

    let journal = facts.ok("journal");
    assert!(journal.contains("Watchdog timeout"), "{journal}");
    // Found by the field, read as text.
    let of_job = facts.ok("journal-fields");
    assert!(
        of_job.contains("next run job=purge"),
        "{of_job}\n--- all\n{journal}"
    );
    assert!(!of_job.contains("job=expired"), "{of_job}");
    facts.ok("another-process");
    // A core dump would hold the password.
    assert_eq!(facts.ok("cores"), "");
    facts.ok("stop");
    assert_eq!(facts.holding(SECRET), [""; 0]);
    assert!(!facts.journal().contains(SECRET));
}
