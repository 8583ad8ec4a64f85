//! The purge by its timer.

use super::boot::{SECRET, binary, boot};

#[tokio::test(flavor = "multi_thread")]
async fn the_timer_purges_under_an_account_of_its_own_with_a_credential() {
    let facts = boot("timer", &[binary()]).await;
    assert_eq!(facts.ok("verify"), "");
    assert_eq!(facts.ok("verify-examples"), "");
    assert!(facts.ok("verify-wrong").contains("NoSuchKey"), "{facts:#?}");

    // Without the credential it says which one, and how to give it; another start would fare no better.
    facts.failed("without-credential");
    let journal = facts.ok("without-credential-journal");
    assert!(journal.contains("LoadCredential=database-url:"), "{journal}");
    assert!(journal.contains("status=2"), "{journal}");

    // The timer fires, and what is due vanishes.
    assert_eq!(facts.ok("before"), "25");
    facts.ok("timer");
    assert_eq!(facts.ok("after"), "new-1 new-2 new-3 new-4 new-5");
    assert_eq!(facts.ok("result"), "success");
    assert_eq!(facts.ok("event"), "idemctl janitor");
    assert!(facts.ok("journal").contains("20 rows"), "{}", facts.ok("journal"));

    // While it works, the password can be seen by it and by root alone.
    assert!(facts.ok("process").contains("idemctl"), "{}", facts.ok("process"));
    assert!(facts.ok("show").contains("DynamicUser=yes"));
    assert!(facts.ok("environment").contains("CREDENTIALS_DIRECTORY="));
    assert!(facts.ok("cmdline").contains("idemctl purge"));
    assert!(facts.failed("others-read-credential").contains("denied"));
    assert!(facts.ok("root-reads-credential").contains(SECRET));
    assert_eq!(facts.holding(SECRET), ["root-reads-credential"]);
    assert!(!facts.journal().contains(SECRET));
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapBnd:\t0000000000000000"] {
        assert!(facts.ok("status").contains(line), "{}", facts.ok("status"));
    }

    // The name alone is enough for a database on the same machine, whoever made the account.
    facts.ok("peer-dynamic");
    facts.failed("no-account");
    facts.ok("sysusers");
    assert!(facts.ok("account").starts_with("idemctl:"));
    facts.ok("peer-static");
    assert!(facts.ok("peer-journal").contains("0 rows are due"));
}
