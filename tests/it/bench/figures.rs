//! What the figures say about each strategy.

use idemctl::ops::bench::{Scenario, Strategy};

use super::{figure, request, run, schemas};
use crate::support::{Cluster, ClusterOptions, database};

const IN_POSTGRESQL: [Strategy; 7] = [
    Strategy::Lease,
    Strategy::Naive,
    Strategy::Unique,
    Strategy::Advisory,
    Strategy::ForUpdate,
    Strategy::OnConflict,
    Strategy::SeedUpsert,
];

#[tokio::test(flavor = "multi_thread")]
async fn every_strategy_goes_through_every_scenario() {
    let db = database().await;
    let mut request = request(&Scenario::ALL, &IN_POSTGRESQL);
    request.duration *= 3;
    let report = run(&db, &request).await;
    for scenario in Scenario::ALL {
        let floor = report.figures.iter().find(|f| f.scenario == scenario).unwrap();
        assert!(floor.way.is_floor(), "{floor:?}");
        assert_eq!((floor.errors, floor.doubles), (0, 0), "{floor:?}");
        assert_eq!(floor.ratio, Some(1.0), "{floor:?}");
        for strategy in IN_POSTGRESQL {
            let none = report
                .not_applicable
                .iter()
                .any(|n| n.scenario == scenario && n.strategy == strategy);
            assert_eq!(none, strategy.why_not(scenario).is_some());
            if none {
                continue;
            }
            let figure = figure(&report, scenario, strategy);
            assert!(figure.answers > 0 && figure.ratio.is_some(), "{figure:?}");
            assert_eq!(figure.answers, figure.worked + figure.replayed + figure.busy);
            assert!(figure.claim.p50 <= figure.claim.p95 && figure.claim.p95 <= figure.claim.p99);
            assert!(figure.claim.p99 <= figure.claim.max && !figure.claim.max.is_zero());
            assert!(figure.wal_bytes.is_some(), "{figure:?}");
            match scenario {
                // Each key is one client's own.
                Scenario::Claim | Scenario::Complete | Scenario::Takeover => {
                    assert_eq!((figure.worked, figure.errors), (figure.answers, 0), "{figure:?}");
                    assert!(figure.losers() == 0.0 && figure.doubles == 0, "{figure:?}");
                }
                Scenario::Replay | Scenario::ReplayCold => {
                    assert_eq!(
                        (figure.replayed, figure.errors),
                        (figure.answers, 0),
                        "{figure:?}"
                    );
                    assert!(figure.losers() >= 1.0 && figure.doubles == 0, "{figure:?}");
                }
                Scenario::Hot if strategy == Strategy::Naive => {}
                Scenario::Hot => {
                    assert_eq!((figure.doubles, figure.errors), (0, 0), "{figure:?}");
                    assert!(figure.worked > 0 && figure.losers() > 0.5, "{figure:?}");
                }
            }
        }
    }
    assert_eq!(Scenario::ALL.len(), 6);
    assert!(!report.interrupted);
    assert!(schemas(&db).await.is_empty());
}

/// All clients are in the race before the first of them has written anything.
#[tokio::test(flavor = "multi_thread")]
async fn checking_first_works_twice_and_a_lease_does_not() {
    let db = database().await;
    let mut request = request(&[Scenario::Hot], &[Strategy::Naive, Strategy::Lease]);
    request.work = std::time::Duration::from_millis(50);
    request.duration *= 2;
    let report = run(&db, &request).await;
    let naive = figure(&report, Scenario::Hot, Strategy::Naive);
    assert!(naive.doubles > 0, "{naive:?}");
    // The table's key is violated after the work was done: too late for the money.
    assert!(naive.errors > 0 && naive.errors <= naive.doubles, "{naive:?}");
    assert!(naive.first_error.as_ref().unwrap().contains("23505"), "{naive:?}");
    let lease = figure(&report, Scenario::Hot, Strategy::Lease);
    assert_eq!((lease.doubles, lease.errors), (0, 0), "{lease:?}");
    // While the winner works, everybody else is told so.
    assert!(lease.busy > 0, "{lease:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_writes_nothing_unless_it_is_an_upsert() {
    // WAL is the whole server's, and the shared one is never quiet.
    let options = ClusterOptions {
        settings: vec![("autovacuum", "off".to_owned())],
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(options).await;
    let db = cluster.database().await;
    let strategies = [Strategy::Lease, Strategy::SeedUpsert];
    let mut request = request(&[Scenario::Replay, Scenario::Claim], &strategies);
    request.duration *= 2;
    let report = run(&db, &request).await;
    let wal = |scenario, strategy| figure(&report, scenario, strategy).wal_bytes.unwrap();
    // What the server writes for itself now and then is spread over many replays.
    assert!(wal(Scenario::Replay, Strategy::Lease) < 8.0, "{report:?}");
    assert!(wal(Scenario::Replay, Strategy::SeedUpsert) > 20.0, "{report:?}");
    assert!(wal(Scenario::Claim, Strategy::Lease) > 200.0, "{report:?}");
}

/// With a pool of one, a transaction around the work lets nobody else in.
#[tokio::test(flavor = "multi_thread")]
async fn work_inside_a_transaction_empties_the_pool_and_a_lease_does_not() {
    let db = database().await;
    let strategies = [Strategy::Lease, Strategy::Unique];
    let mut request = request(&[Scenario::Complete], &strategies);
    (request.clients, request.pool) = (6, 2);
    request.work = std::time::Duration::from_millis(100);
    request.duration = std::time::Duration::from_secs(3);
    let report = run(&db, &request).await;
    let lease = figure(&report, Scenario::Complete, Strategy::Lease);
    let unique = figure(&report, Scenario::Complete, Strategy::Unique);
    assert!(unique.pool_wait.p99 >= request.work, "{unique:?}");
    assert!(
        unique.saturated > 0.5 && lease.saturated < unique.saturated,
        "{report:?}"
    );
    // Of six clients two at a time work, or all of them.
    assert!(lease.worked > unique.worked, "{report:?}");
    assert!(
        report.warnings.iter().any(|w| w.contains("share this machine")),
        "{:?}",
        report.warnings
    );
}
