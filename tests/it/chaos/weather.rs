//! What goes wrong, and when: drawn from the seed.

use std::time::{Duration, Instant};

use fastrand::Rng;
use nix::sys::signal::Signal;

use super::postgres::Stop;
use super::world::{SERVICES, World};
use crate::support::Proxy;

/// How charges go wrong at the provider.
const FAULTS: [&str; 6] = [
    "hang-after",
    "reset-after",
    "500-after",
    "500-before",
    "503-before",
    "slow",
];

/// Which kinds of trouble a run may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Season {
    /// Services are killed, connections broken, the database restarted.
    pub(super) crashes: bool,
    /// Services stand still for longer than their leases, and go on.
    pub(super) stops: bool,
    /// The database is restarted all the time, in this way.
    pub(super) database: Option<Stop>,
}

impl Season {
    /// Everything that can go wrong.
    pub(super) const ALL: Self = Self {
        crashes: true,
        stops: true,
        database: None,
    };
    /// Nothing stands still.
    pub(super) const CRASHES: Self = Self {
        stops: false,
        ..Self::ALL
    };
    /// Only the provider fails.
    pub(super) const FAULTS: Self = Self {
        crashes: false,
        ..Self::CRASHES
    };
}

impl Season {
    /// Nothing happens to services and database.
    pub(super) fn is_calm(self) -> bool {
        !self.crashes && !self.stops && self.database.is_none()
    }
}

/// How often what was done.
#[derive(Debug, Default, Clone)]
pub(super) struct Done {
    pub(super) kills: usize,
    pub(super) stops: usize,
    pub(super) restarts: Vec<Stop>,
    pub(super) cuts: usize,
    pub(super) holds: usize,
    pub(super) faults: usize,
}

/// Makes trouble until the time is over; afterwards everything runs and every way is open.
pub(super) async fn make(
    world: &mut World,
    season: Season,
    lease: Duration,
    mut rng: Rng,
    until: Instant,
) -> Done {
    let mut weather = Weather {
        world,
        lease,
        done: Done::default(),
        stopped: [None; SERVICES],
        restarted: Instant::now(),
    };
    while Instant::now() < until {
        weather.wake(Instant::now());
        match rng.u8(..100) {
            0..50 if season.database.is_some() => weather.restart(season.database, &mut rng).await,
            0..25 if season.crashes => weather.kill(&mut rng).await,
            25..32 if season.crashes => weather.restart(None, &mut rng).await,
            32..54 if season.crashes => weather.cut(&mut rng),
            54..60 if season.crashes => weather.hold(&mut rng).await,
            60..70 if season.stops => weather.stop(&mut rng),
            _ => {
                let faults: Vec<&str> = (0..rng.usize(1..=2)).filter_map(|_| rng.choice(FAULTS)).collect();
                weather.done.faults += faults.len();
                weather.world.fault(&faults).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(rng.u64(30..250))).await;
    }
    for due in weather.stopped.iter_mut().flatten() {
        *due = until;
    }
    weather.wake(Instant::now());
    weather.done
}

struct Weather<'a> {
    world: &'a mut World,
    lease: Duration,
    done: Done,
    /// Until when a service stands still.
    stopped: [Option<Instant>; SERVICES],
    restarted: Instant,
}

impl Weather<'_> {
    /// Lets those go on whose time has come.
    fn wake(&mut self, now: Instant) {
        for place in 0..SERVICES {
            if self.stopped[place].is_some_and(|due| due <= now) {
                self.world.signal(place, Signal::SIGCONT);
                self.stopped[place] = None;
            }
        }
    }

    /// One service dies, sometimes both, and something else may happen before it is back.
    async fn kill(&mut self, rng: &mut Rng) {
        let first = rng.usize(..SERVICES);
        let both = rng.u8(..100) < 20;
        // One that stands still mostly lives to go on, for that is the hard case.
        let spared = rng.u8(..100) < 80;
        let dead: Vec<usize> = (0..SERVICES)
            .filter(|place| (both || *place == first) && !(spared && self.stopped[*place].is_some()))
            .collect();
        for place in &dead {
            self.world.kill(*place).await;
            self.stopped[*place] = None;
            self.done.kills += 1;
        }
        match rng.u8(..100) {
            0..15 => self.restart(None, rng).await,
            15..50 => tokio::time::sleep(Duration::from_millis(rng.u64(50..800))).await,
            _ => {}
        }
        for place in dead {
            self.world.start_service(place).await;
        }
    }

    /// The database goes away and comes back; not all the time, for it would do nothing else.
    async fn restart(&mut self, way: Option<Stop>, rng: &mut Rng) {
        let pause = if way.is_some() { 1 } else { 3 };
        if self.restarted.elapsed() < Duration::from_secs(pause) {
            return;
        }
        let stop = way.unwrap_or([Stop::Fast, Stop::Immediate, Stop::Crash][rng.usize(..3)]);
        self.world.postgres.restart(stop).await;
        self.done.restarts.push(stop);
        self.restarted = Instant::now();
    }

    fn cut(&mut self, rng: &mut Rng) {
        match rng.u8(..3) {
            0 => self.world.to_database.iter().for_each(Proxy::cut),
            1 => self.world.to_provider.cut(),
            _ => self.world.cut_clients(),
        }
        self.done.cuts += 1;
    }

    /// The database or the provider vanishes without a packet, for a while.
    async fn hold(&mut self, rng: &mut Rng) {
        let world = &self.world;
        let proxy = match rng.usize(..=SERVICES) {
            SERVICES => &world.to_provider,
            place => &world.to_database[place],
        };
        proxy.hold();
        tokio::time::sleep(Duration::from_millis(rng.u64(100..1_500))).await;
        proxy.release();
        self.done.holds += 1;
    }

    /// A service stands still, perhaps for longer than its leases last.
    fn stop(&mut self, rng: &mut Rng) {
        let place = rng.usize(..SERVICES);
        if self.stopped[place].is_none() {
            self.world.signal(place, Signal::SIGSTOP);
            let lease = u64::try_from(self.lease.as_millis()).expect("seconds");
            let pause = Duration::from_millis(rng.u64(lease / 2..lease * 2));
            self.stopped[place] = Some(Instant::now() + pause);
            self.done.stops += 1;
        }
    }
}
