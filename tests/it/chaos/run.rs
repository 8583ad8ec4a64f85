//! One run: trouble, then quiet in which everything has to come to an end, then judgement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::task::JoinSet;

use super::checker::{Violation, check};
use super::client::Shops;
use super::history::{History, Wish};
use super::report::Figures;
use super::weather::{self, Season};
use super::world::{SHARES_FLIGHTS, Setup, World};

/// How long after the trouble everything must have come to an end.
const SETTLED_WITHIN: Duration = Duration::from_mins(2);

/// The same where a mistake was made: a key that was charged twice is for people, and never ends by itself.
const MISTAKE_WITHIN: Duration = Duration::from_secs(8);

/// How long the provider may take for a charge that nobody waits for any more: its slowest fault, and as much again.
const LATEST_CHARGE: Duration = Duration::from_secs(4);

/// How many clients there are.
const CLIENTS: u64 = 20;

/// A run that is over.
pub(super) struct Verdict {
    pub(super) figures: Figures,
    pub(super) violations: Vec<Violation>,
}

impl Verdict {
    /// Fails the test, and shows what was found, unless every promise was kept.
    #[track_caller]
    pub(super) fn sound(&self) {
        let some: Vec<_> = self.violations.iter().take(20).collect();
        assert!(
            some.is_empty(),
            "seed {}: {} broken promises, the first ones: {some:#?}\nlog of the services, its end:\n{}",
            self.figures.seed,
            self.violations.len(),
            self.figures.log_end
        );
    }
}

/// Everything random comes from the seed. Real processes, sockets and disks have a will of their own, so the same seed
/// makes the same plan, but not exactly the same run.
pub(super) async fn run(
    name: &'static str,
    setup: Setup,
    season: Season,
    seed: u64,
    time: Duration,
) -> Verdict {
    let lease = Duration::from_millis(setup.lease);
    let (naive, mistake) = (setup.naive, setup.mistake);
    let mut rng = Rng::with_seed(seed);
    let mut world = World::start(setup).await;
    let shops = Shops::new(Arc::clone(&world.addresses));
    let until = Instant::now() + time;
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(Arc::clone(&shops).client(number, rng.fork(), until));
    }
    let done = weather::make(&mut world, season, lease, rng.fork(), until).await;
    join(&mut clients).await;
    let quiet = Instant::now();
    let patience = if mistake { MISTAKE_WITHIN } else { SETTLED_WITHIN };
    let reconciled = settle(&world, &shops, &mut rng, quiet + patience, naive).await;
    let settled = quiet.elapsed();
    // A charge that is still under way must be seen, too; announced it is to nobody.
    if !mistake {
        tokio::time::sleep(LATEST_CHARGE).await;
    }
    let history = History {
        exchanges: shops.log(),
        ledger: world.ledger().await,
        rows: world.rows().await,
        calls: world.calls().await,
        released: world.released().await,
        shares_flights: Some(SHARES_FLIGHTS),
        calm: season.is_calm(),
    };
    let events = world.events().await;
    world.end().await;
    let violations = check(&history);
    let mut figures = Figures::new(name, seed, &history, &violations, &world.said);
    figures.done = done;
    figures.trouble = time;
    figures.settled = settled;
    figures.reconciled = reconciled;
    figures.events = events;
    Verdict { figures, violations }
}

/// Clients retry what they have no answer for; the rest is left to `idemctl reconcile`, at the same time, and asked
/// for when that is done. Gives how often reconcile ran.
async fn settle(world: &World, shops: &Arc<Shops>, rng: &mut Rng, until: Instant, naive: bool) -> usize {
    let (retried, left): (Vec<Wish>, Vec<Wish>) =
        shops.unsettled().into_iter().partition(|_| rng.u8(..100) < 60);
    let mut clients = insist(shops, &retried, rng, until);
    let mut runs = 0;
    if !naive {
        while Instant::now() < until {
            let output = world.reconcile().await;
            // Done, refused, raced, partly, outcome not known yet: all may be while clients retry as well.
            assert!([0, 4, 5, 6, 8].contains(&output.code), "{}", output.transcript());
            runs += 1;
            if clients.is_empty() && world.in_progress().await == 0 {
                break;
            }
            while clients
                .try_join_next()
                .map(|ended| ended.expect("a client"))
                .is_some()
            {}
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }
    join(&mut clients).await;
    join(&mut insist(shops, &left, rng, until)).await;
    runs
}

/// Clients that do not give up, each with a few wishes.
fn insist(shops: &Arc<Shops>, wishes: &[Wish], rng: &mut Rng, until: Instant) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    for wishes in wishes.chunks(wishes.len().div_ceil(20).max(1)) {
        let (shops, wishes, mut rng) = (Arc::clone(shops), wishes.to_vec(), rng.fork());
        clients.spawn(async move {
            for wish in &wishes {
                shops.settle(wish, &mut rng, until).await;
            }
        });
    }
    clients
}

async fn join(clients: &mut JoinSet<()>) {
    while let Some(ended) = clients.join_next().await {
        ended.expect("a client does not panic");
    }
}
