use super::*;

fn at(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_795_921_200 + second, 0).unwrap()
}

#[test]
fn trouble_is_told_since_its_beginning_and_ends_with_a_good_run() {
    let mut status = Status::new(at(0));
    let away = Error::Unreachable {
        what: "nobody listens".to_owned(),
    };
    let not_run = Event::NotRun {
        job: Job::Expired,
        cause: &away,
        again_in: Some(Duration::from_millis(1500)),
    };
    status.note(
        &Event::Scheduled {
            job: Job::Expired,
            at: at(60),
        },
        at(0),
    );
    status.note(&not_run, at(5));
    status.note(&not_run, at(9));
    let expired = status.of(Job::Expired);
    assert_eq!(
        (expired.runs[&Outcome::NotRun], expired.errors["unreachable"]),
        (2, 2)
    );
    assert_eq!(
        status.to_string(),
        "purge: no run yet, none planned; expired: TROUBLE since 2026-11-29T03:00:05Z (the database is \
         unreachable: nobody listens), trying again in 1.5 s, no run yet, next 2026-11-29T03:01:00Z"
    );
    let report = expired::Report {
        policy: expired::Policy::Fail,
        stuck: 1,
        capped: false,
        oldest_seconds: None,
        first: Vec::new(),
        items: vec![expired::Item {
            id: crate::key::KeyId::new("secret-client", "k").unwrap(),
            outcome: expired::Outcome::Error("no".to_owned()),
        }],
        next: None,
        elapsed: Duration::ZERO,
        interrupted: false,
        dry_run: false,
    };
    status.note(&Event::Started { job: Job::Expired }, at(60));
    assert_eq!(status.of(Job::Expired).running, Some(at(60)));
    let done = Done::Expired(Ok(report));
    status.note(&Event::Finished { done: &done }, at(61));
    let expired = status.of(Job::Expired);
    assert!(expired.trouble.is_none() && expired.running.is_none());
    assert_eq!(
        (expired.succeeded, expired.runs[&Outcome::Partial]),
        (Some(at(61)), 1)
    );
    assert_eq!(expired.counts.expired["error"], 1);
    assert!(!status.to_string().contains("secret-client"), "{status}");
}
