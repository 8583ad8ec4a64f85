use super::*;

fn at(second: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_795_921_200 + second, 0).unwrap()
}

fn report() -> expired::Report {
    expired::Report {
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
    }
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
        again_in: Duration::from_millis(1500),
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
    assert_eq!((expired.runs.len(), expired.errors["unreachable"]), (0, 2));
    assert_eq!(
        status.to_string(),
        "purge: no run yet, none planned; expired: TROUBLE since 2026-11-29T03:00:05Z (the database is \
         unreachable: nobody listens), trying again in 1.5 s, no run yet, next 2026-11-29T03:01:00Z"
    );
    for second in [60, 61, 90] {
        status.note(&not_run, at(second));
    }
    let runs = &status.of(Job::Expired).runs;
    assert_eq!(
        runs[&Outcome::NotRun],
        1,
        "one time was missed, however often it was tried"
    );
    let report = report();
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

fn failed() -> Done {
    let failure = crate::ops::Failure {
        report: Box::new(report()),
        cause: Error::Deadline {
            after: Duration::from_secs(30),
        },
    };
    Done::Expired(Err(failure))
}

#[test]
fn a_look_ends_the_trouble_of_not_looking_and_says_whose_the_last_run_was() {
    let job = Job::Expired;
    let mut status = Status::new(at(0));
    let away = Error::Unreachable {
        what: "nobody listens".to_owned(),
    };
    let not_run = Event::NotRun {
        job,
        cause: &away,
        again_in: Duration::from_secs(1),
    };
    let looked = |ours| Event::Looked { job, ours };
    status.note(&not_run, at(1));
    assert!(
        status
            .of(job)
            .trouble
            .as_ref()
            .is_some_and(|trouble| !trouble.begun)
    );
    status.note(&looked(None), at(2));
    assert!(status.of(job).trouble.is_none() && status.of(job).ours.is_none());

    // A failed run of ours is told of until another one ended, ours or not, whatever comes in between.
    for (ended_by, ours) in [("a good run of ours", true), ("another's", false)] {
        status.note(&Event::Started { job }, at(3));
        status.note(&Event::Finished { done: &failed() }, at(4));
        status.note(&not_run, at(5));
        status.note(&looked(Some(true)), at(6));
        let trouble = status.of(job).trouble.as_ref().expect(ended_by);
        assert!(trouble.begun && trouble.what.contains("no answer"), "{trouble:?}");
        if ours {
            let done = Done::Expired(Ok(report()));
            status.note(&Event::Finished { done: &done }, at(7));
        }
        status.note(&looked(Some(ours)), at(8));
        assert!(status.of(job).trouble.is_none(), "{ended_by}");
        assert_eq!(status.of(job).ours, Some(ours));
    }
}

#[test]
fn a_run_that_was_stopped_is_not_done() {
    let mut status = Status::new(at(0));
    let stopped = expired::Report {
        interrupted: true,
        ..report()
    };
    let done = Done::Expired(Ok(stopped));
    status.note(&Event::Finished { done: &done }, at(1));
    let expired = status.of(Job::Expired);
    assert_eq!(expired.runs.keys().collect::<Vec<_>>(), [&Outcome::Interrupted]);
    assert_eq!(expired.succeeded, None);
}
