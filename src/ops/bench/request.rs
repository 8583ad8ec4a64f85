//! What is to be compared, and how.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::ops::scratch;

/// Longest run.
const MOST: Duration = Duration::from_hours(1);
/// Longest simulated work: every strategy's lease of 30 s must outlast it by far, or it is taken over from the living.
const MOST_WORK: Duration = Duration::from_secs(10);

/// What is measured. Each is a kind of request that a payment API gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// A new key each time: the claim alone.
    Claim,
    /// A key that is done and that this process has met lately: the stored answer for a retry.
    Replay,
    /// The same for a key that only other processes have met.
    ReplayCold,
    /// All clients send one new key at the same moment, again and again, and go on with the next key.
    Hot,
    /// A new key each time: claim, work, and the stored result.
    Complete,
    /// A key whose holder is gone.
    Takeover,
}

impl Scenario {
    /// All of them, in the order in which they are run.
    pub const ALL: [Self; 6] = [
        Self::Claim,
        Self::Replay,
        Self::ReplayCold,
        Self::Hot,
        Self::Complete,
        Self::Takeover,
    ];

    /// Its name on the command line and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Replay => "replay",
            Self::ReplayCold => "replay-cold",
            Self::Hot => "hot",
            Self::Complete => "complete",
            Self::Takeover => "takeover",
        }
    }

    /// Whether its keys are done before it begins.
    pub(super) fn repeats(self) -> bool {
        matches!(self, Self::Replay | Self::ReplayCold)
    }

    /// The barest statements that do the same.
    pub fn floor(self) -> Floor {
        match self {
            Self::Claim => Floor::Insert,
            Self::Replay | Self::ReplayCold | Self::Hot => Floor::Select,
            Self::Complete => Floor::InsertUpdate,
            Self::Takeover => Floor::Update,
        }
    }
}

/// A way to make sure that one of many does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// This library: a lease with a fencing token, committed before the work begins.
    Lease,
    /// Look, work, write: what it costs to have no protection, and what happens then.
    Naive,
    /// Insert first, and the work in the same transaction; losers meet the unique index (SQLSTATE 23505).
    Unique,
    /// `pg_advisory_xact_lock` on a hash of the key, and the work in the same transaction.
    Advisory,
    /// `SELECT .. FOR UPDATE` on the key's row, and the work in the same transaction.
    ForUpdate,
    /// `INSERT .. ON CONFLICT DO NOTHING`, and a SELECT for losers. No lease: a holder that dies blocks the key.
    OnConflict,
    /// `INSERT .. ON CONFLICT DO UPDATE .. WHERE <expired>`, and a SELECT for losers. No token.
    SeedUpsert,
    /// `SET key value NX PX 30000` on a Redis, and GET for losers. No token, and a second system.
    Redis,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Lease,
        Self::Naive,
        Self::Unique,
        Self::Advisory,
        Self::ForUpdate,
        Self::OnConflict,
        Self::SeedUpsert,
        Self::Redis,
    ];

    /// Its name on the command line and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Naive => "naive",
            Self::Unique => "unique",
            Self::Advisory => "advisory",
            Self::ForUpdate => "for-update",
            Self::OnConflict => "on-conflict",
            Self::SeedUpsert => "seed-upsert",
            Self::Redis => "redis",
        }
    }

    /// Why it has no part in a scenario, if it has none.
    pub fn why_not(self, scenario: Scenario) -> Option<&'static str> {
        match (scenario, self) {
            (Scenario::Takeover, Self::Naive) => Some("it claims nothing that could be left behind"),
            (Scenario::Takeover, Self::Unique | Self::Advisory | Self::ForUpdate) => {
                Some("the server rolls the transaction of a dead holder back: there is nothing to take over")
            }
            (Scenario::Takeover, Self::OnConflict) => {
                Some("it has no lease: the key of a dead holder stays taken until somebody deletes the row")
            }
            (Scenario::Takeover, Self::Redis) => Some("the key goes away by itself: a takeover is a claim"),
            _ => None,
        }
    }
}

/// The barest statements for the work of a scenario, on the same table with the same indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floor {
    /// One INSERT by key.
    Insert,
    /// One SELECT by key.
    Select,
    /// One INSERT and one UPDATE by key, each committed.
    InsertUpdate,
    /// One UPDATE by key.
    Update,
}

/// Who does the work of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The measure of the others.
    Floor(Floor),
    /// One of those that are compared.
    Strategy(Strategy),
}

impl Way {
    /// Its name in reports; a floor is called by its statements.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Floor(Floor::Insert) => "INSERT",
            Self::Floor(Floor::Select) => "SELECT",
            Self::Floor(Floor::InsertUpdate) => "INSERT + UPDATE",
            Self::Floor(Floor::Update) => "UPDATE",
            Self::Strategy(strategy) => strategy.as_str(),
        }
    }

    pub(super) fn uses_redis(self) -> bool {
        self == Self::Strategy(Strategy::Redis)
    }

    /// Whether it is a floor.
    pub fn is_floor(self) -> bool {
        matches!(self, Self::Floor(_))
    }
}

/// Where a Redis is: `redis://[user:password@]host:port/db` or `redis+unix:///path`. Never shown whole.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

impl RedisUrl {
    /// Takes any text; [`run`](super::run) says what is wrong with it.
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Request {
    /// The time of all turns together, 100 ms to 1 h; making and filling the scratch schema comes on top.
    pub duration: Duration,
    /// Requests at once, 1 to 1,000.
    pub clients: usize,
    /// Connections that they share, 1 to 1,000.
    pub pool: usize,
    /// Rows that the table has before the first turn, 100 to 10,000,000. So many again, with an expired lease, where
    /// takeovers are measured.
    pub keys: u32,
    /// Scenarios, at least one.
    pub scenarios: Vec<Scenario>,
    /// Strategies, at least one.
    pub strategies: Vec<Strategy>,
    /// How long whoever has won a key pretends to work, at most 10 s.
    pub work: Duration,
    /// For [`Strategy::Redis`].
    pub redis: Option<RedisUrl>,
    /// The scratch schema's name; a random one if absent. It must not exist.
    pub scratch: Option<String>,
}

impl Default for Request {
    /// Every scenario and every strategy that PostgreSQL alone can serve: 10 s, 16 clients on 20 connections,
    /// 100,000 keys, no work.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(10),
            clients: 16,
            pool: 20,
            keys: 100_000,
            scenarios: Scenario::ALL.to_vec(),
            strategies: Strategy::ALL
                .into_iter()
                .filter(|strategy| *strategy != Strategy::Redis)
                .collect(),
            work: Duration::ZERO,
            redis: None,
            scratch: None,
        }
    }
}

impl Request {
    /// Whether it can be run; needs no database.
    pub fn check(&self) -> Result<()> {
        let within = |field, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(invalid(
                field,
                format!("is {value}; {least} to {most} are allowed"),
            ))
        };
        if !(Duration::from_millis(100)..=MOST).contains(&self.duration) {
            let seconds = self.duration.as_secs_f64();
            return Err(invalid(
                "duration",
                format!("is {seconds} s; 100 ms to 1 h are allowed"),
            ));
        }
        if self.work > MOST_WORK {
            let seconds = self.work.as_secs_f64();
            return Err(invalid(
                "work",
                format!("is {seconds} s; at most 10 s are allowed"),
            ));
        }
        within("clients", self.clients, 1, 1_000)?;
        within("pool", self.pool, 1, 1_000)?;
        within(
            "keys",
            usize::try_from(self.keys).unwrap_or(usize::MAX),
            100,
            10_000_000,
        )?;
        if self.scenarios.is_empty() {
            return Err(invalid("scenario", "is not given; name at least one".to_owned()));
        }
        if self.strategies.is_empty() {
            return Err(invalid("strategy", "is not given; name at least one".to_owned()));
        }
        if self.strategies.contains(&Strategy::Redis) && self.redis.is_none() {
            return Err(invalid(
                "strategy",
                "redis needs the URL of a Redis or Valkey server, such as redis://127.0.0.1:6379".to_owned(),
            ));
        }
        self.scratch.as_deref().map_or(Ok(()), scratch::check_name)
    }
}

fn invalid(field: &'static str, reason: String) -> Error {
    Error::Invalid { field, reason }
}
