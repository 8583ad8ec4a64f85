//! One claim at a time for one request in this process: a storm of repeats of one key costs the database one
//! statement after the other instead of all of them at once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::reserve::in_progress;
use super::{Idempotency, OnExpired, Replay, Request, Reservation, metrics};
use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use crate::key::KeyId;
use crate::store::Executor;

/// What makes two requests the same question.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Flight {
    id: KeyId,
    fingerprints: Vec<Fingerprint>,
    operation: Option<String>,
    provider: Option<String>,
    order_id: Option<String>,
    returns_expired: bool,
}

impl Flight {
    /// `None`: it is about a row that somebody has judged, and no other request is.
    fn of(request: &Request) -> Option<Self> {
        if request.judged.is_some() {
            return None;
        }
        let mut fingerprints = vec![request.fingerprint.clone()];
        fingerprints.extend(request.previous.iter().cloned());
        Some(Self {
            id: request.id.clone(),
            fingerprints,
            operation: request.operation.clone(),
            provider: request.provider.clone(),
            order_id: request.order_id.clone(),
            returns_expired: request.on_expired == OnExpired::Return,
        })
    }
}

/// What the one that asked tells the others.
#[derive(Debug, Clone)]
enum Landed {
    Replay(Replay),
    InProgress {
        rest: Duration,
        attempt: i32,
        owner: Option<String>,
    },
    /// The database could not be reached.
    Unreachable(String),
    /// Nothing that holds for anybody else: ask.
    Nothing,
}

impl Landed {
    fn of(result: &Result<Reservation>, keys: &Idempotency) -> Self {
        match result {
            Ok(Reservation::Replay(replay)) => Self::Replay(replay.clone()),
            // To everybody else the one that won is at work.
            Ok(Reservation::Acquired(lease)) => Self::InProgress {
                rest: lease.length(),
                attempt: lease.attempt(),
                owner: Some(keys.options.owner.clone()),
            },
            Ok(Reservation::InProgress(busy)) => Self::InProgress {
                rest: busy.retry_after,
                attempt: busy.attempt,
                owner: busy.owner.clone(),
            },
            Err(error) if error.needs_reconnect() => Self::Unreachable(error.to_string()),
            // A mismatch is final for the client, so it is read anew for each.
            Ok(Reservation::Expired(_) | Reservation::Mismatch(_)) | Err(_) => Self::Nothing,
        }
    }

    /// `None`: ask.
    fn answer(self) -> Option<Result<Reservation>> {
        match self {
            Self::Replay(replay) => Some(Ok(Reservation::Replay(replay))),
            Self::InProgress { rest, attempt, owner } => {
                Some(Ok(Reservation::InProgress(in_progress(rest, attempt, owner))))
            }
            Self::Unreachable(what) => Some(Err(Error::Unreachable {
                what: format!("an equal request was told: {what}"),
            })),
            Self::Nothing => None,
        }
    }
}

type Flights = HashMap<Flight, watch::Receiver<Option<Landed>>>;

/// Reserves, but asks the database only once for any number of equal requests that come while the first of them
/// is being answered; the others get its answer (where it acquired the key: in progress).
///
/// For services with hot keys; clones share it. It saves connections and round trips, not correctness: the table
/// decides as ever. Repeat a [`Request`] after an error that leaves the outcome open with
/// [`Idempotency::reserve`]: here it might be told of its own claim that somebody is at work.
#[derive(Debug, Clone)]
pub struct SingleFlight {
    keys: Idempotency,
    flights: Arc<Mutex<Flights>>,
}

impl SingleFlight {
    /// For the keys of one table.
    pub fn new(keys: Idempotency) -> Self {
        Self {
            keys,
            flights: Arc::default(),
        }
    }

    /// As [`Idempotency::reserve`].
    ///
    /// Where the one that asked could not reach the database, the others get [`Error::Unreachable`] as well: for them
    /// no statement was sent.
    pub async fn reserve(&self, executor: &impl Executor, request: &Request) -> Result<Reservation> {
        let keys = &self.keys;
        let started = Instant::now();
        let Some(flight) = Flight::of(request) else {
            return keys.reserve(executor, request).await;
        };
        loop {
            let mut landing = match self.board(&flight) {
                Boarded::First(first) => {
                    let result = keys.reserve(executor, request).await;
                    first.land(Landed::of(&result, keys));
                    return result;
                }
                Boarded::Behind(landing) => landing,
            };
            // An error: the first was given up (its client hung up), and somebody else has to ask.
            let Ok(landed) = landing.wait_for(Option::is_some).await.map(|seen| seen.clone()) else {
                continue;
            };
            let Some(answer) = landed.and_then(Landed::answer) else {
                return keys.reserve(executor, request).await;
            };
            metrics::reserved(started, &answer);
            return answer;
        }
    }

    fn board(&self, flight: &Flight) -> Boarded<'_> {
        match self.lock().entry(flight.clone()) {
            Entry::Occupied(known) => Boarded::Behind(known.get().clone()),
            Entry::Vacant(free) => {
                let (sender, receiver) = watch::channel(None);
                free.insert(receiver);
                Boarded::First(First {
                    all: self,
                    flight: flight.clone(),
                    sender,
                })
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Flights> {
        // Nobody panics between two changes of the map.
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Boarded<'a> {
    /// Nobody is asking: ask, and tell the others.
    First(First<'a>),
    /// Somebody is.
    Behind(watch::Receiver<Option<Landed>>),
}

/// The one that asks. Whoever comes after it has ended, in whatever way, asks anew.
struct First<'a> {
    all: &'a SingleFlight,
    flight: Flight,
    sender: watch::Sender<Option<Landed>>,
}

impl First<'_> {
    fn land(self, landed: Landed) {
        // Out of the list first: later ones ask anew. Who came while it was being fetched may get an answer that is
        // older than its request by that long, which is a 409 too many at worst.
        self.all.lock().remove(&self.flight);
        self.sender.send_replace(Some(landed));
    }
}

impl Drop for First<'_> {
    fn drop(&mut self) {
        let mut flights = self.all.lock();
        // After `land` another flight of the same name may be under way.
        let is_ours = flights
            .get(&self.flight)
            .is_some_and(|receiver| receiver.same_channel(&self.sender.subscribe()));
        if is_ours {
            flights.remove(&self.flight);
        }
    }
}
