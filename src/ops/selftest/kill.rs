//! A process that holds a lease is killed.

use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};

use super::Holder;
use super::check::Check;
use super::env::{Env, id, request, unexpected, word};
use crate::connect::{Connection, Settings};
use crate::error::{Error, Result};
use crate::key::KeyId;
use crate::protocol::{Idempotency, Options, Reservation};
use crate::response::Response;
use crate::store::{doctor, scratch};
use crate::time::Timestamp;

/// The lease of the first try; it doubles with each until it is long enough to be met alive by everyone.
const LEASE: Duration = Duration::from_secs(2);
/// Up to 16 s.
const TRIES: u32 = 4;
/// How long a process may take to start, connect and claim.
const START: Duration = Duration::from_secs(20);
/// How long after the end of the lease the takeover may take.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check::of(
            "kill.blocked",
            "a process claims a key and is killed (SIGKILL); all clients ask for the key",
            "\"in progress\" for everyone while the lease lasts",
        ),
        Check::of(
            "kill.takeover",
            "all clients go on asking until the lease is over",
            "exactly one takes over, as attempt 2, and not before the end of the lease",
        ),
        Check::of(
            "kill.provider_key",
            "the provider keys of the killed process and of its successor are compared",
            "the same key, so that the provider charges once",
        ),
    ]
}

/// What the process says once it holds the lease.
#[derive(Debug, Serialize, Deserialize)]
struct Held {
    attempt: i32,
    provider_key: String,
}

/// Which key is claimed, and where. Each try has a key of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errand {
    schema: String,
    number: u32,
}

impl Errand {
    /// From the scratch schema's name and the number of the try; [`Error::Invalid`] for a number that is none.
    pub fn new(schema: &str, number: &str) -> Result<Self> {
        let known = number.parse().ok().filter(|number| *number < TRIES);
        let number = known.ok_or_else(|| Error::Invalid {
            field: "try",
            reason: format!("is {number:?}; 0 to {} are allowed", TRIES - 1),
        })?;
        Ok(Self {
            schema: schema.to_owned(),
            number,
        })
    }

    fn id(&self) -> Result<KeyId> {
        id(&format!("kill-{}", self.number))
    }

    fn lease(&self) -> Duration {
        LEASE * 2_u32.pow(self.number)
    }
}

/// The process that is to be killed: claims the key, says so by `say` in one line, and then does nothing until `end`.
///
/// `false`: the schema is none that a self test made, and nothing was written. Returns [`Error::Inconsistent`] where
/// the key is not free.
pub async fn hold<E: From<Error>>(
    settings: &Settings,
    errand: &Errand,
    say: impl FnOnce(&str) -> Result<(), E>,
    end: impl Future<Output = ()>,
) -> Result<bool, E> {
    let conn = Connection::open(settings).await?;
    if !scratch::leftovers(&conn).await?.contains(&errand.schema) {
        return Ok(false);
    }
    let keys = Idempotency::open(&conn, Some(&errand.schema), Options::default()).await?;
    let request = request(errand.id()?)?.lease(errand.lease())?;
    let lease = match keys.reserve(&conn, &request).await? {
        Reservation::Acquired(lease) => lease,
        other => return Err(unexpected(request.id(), "acquired", &other).into()),
    };
    let held = Held {
        attempt: lease.attempt(),
        provider_key: lease.provider_key(),
    };
    let line = serde_json::to_string(&held).map_err(|error| local(&error))?;
    say(&line)?;
    end.await;
    // The row goes with its schema.
    lease.forget();
    Ok(true)
}

fn local(error: &dyn std::fmt::Display) -> Error {
    Error::Local {
        what: format!("the process to be killed: {error}"),
    }
}

pub(super) async fn run(env: &Env, holder: Option<&Holder>, checks: &mut [Check]) -> Result<()> {
    let Some(holder) = holder else {
        unchecked(checks, "no program was given that could be killed");
        return Ok(());
    };
    let mut number = 0;
    let killed = loop {
        let errand = Errand {
            schema: env.tables.schema.clone(),
            number,
        };
        match kill(env, holder, errand).await? {
            Ok(killed) if killed.over && number + 1 < TRIES => number += 1,
            Ok(killed) => break killed,
            // Says nothing about the database.
            Err(error) => {
                unchecked(checks, &error.to_string());
                return Ok(());
            }
        }
    };
    judge_blocked(&mut checks[0], &killed);
    let Killed {
        errand, held, until, ..
    } = killed;
    let takeovers = take_over(env, &errand).await?;
    let early = takeovers.iter().any(|takeover| Some(takeover.at) < until);
    judge_takeover(&mut checks[1], &takeovers, early);
    let same = |takeover: &Takeover| takeover.provider_key == held.provider_key;
    if takeovers.is_empty() {
        checks[2].or_not_checked("nobody took over");
        return Ok(());
    }
    checks[2].judge(
        held.attempt == 1 && takeovers.iter().all(same),
        if takeovers.iter().all(same) {
            "the same"
        } else {
            "another one"
        },
        (
            "The payment provider sees the repeat of a payment under the same key, and charges once.",
            "The payment provider sees the repeat of a payment under ANOTHER key, and charges twice.",
        ),
    );
    Ok(())
}

/// A process that was killed, and what the clients were told at once.
#[derive(Debug)]
struct Killed {
    errand: Errand,
    held: Held,
    status: ExitStatus,
    /// The end that the lease has to have, whatever the row says of it.
    until: Option<Timestamp>,
    told: Vec<&'static str>,
    /// The lease was over before everyone had asked.
    over: bool,
}

/// The inner error is that of the process.
async fn kill(env: &Env, holder: &Holder, errand: Errand) -> Result<Result<Killed>> {
    let (victim, held) = match Victim::start(holder, &errand).await {
        Ok(started) => started,
        Err(error) => return Ok(Err(error)),
    };
    let id = errand.id()?;
    let until = env.row(&id).await?.created_at.checked_add(errand.lease());
    let status = victim.kill().await?;
    let told = env.all(|client| {
        let request = request(id.clone());
        async move { client.ask(&request?).await.map(|answer| word(&answer)) }
    });
    let told = told.await?;
    let over = Some(doctor::clock(&env.admin).await?) >= until;
    Ok(Ok(Killed {
        errand,
        held,
        status,
        until,
        told,
        over,
    }))
}

fn judge_blocked(check: &mut Check, killed: &Killed) {
    if killed.over {
        check.or_not_checked(&format!(
            "the lease of {} s was over before everyone had asked: too slow a connection",
            killed.errand.lease().as_secs()
        ));
        return;
    }
    let (told, status) = (&killed.told, killed.status);
    let blocked = told.iter().filter(|word| **word == "in progress").count();
    check.judge(
        blocked == told.len(),
        format!("ended by {status}; {blocked} of {} requests were told \"in progress\"", told.len()),
        (
            "When a process dies in the middle of a payment, nobody repeats it while its time has not run out.",
            "When a process dies in the middle of a payment, others repeat it AT ONCE.",
        ),
    );
}

fn judge_takeover(check: &mut Check, takeovers: &[Takeover], early: bool) {
    let attempts: Vec<String> = takeovers
        .iter()
        .map(|takeover| takeover.attempt.to_string())
        .collect();
    let when = if early {
        ", BEFORE the end of the lease"
    } else {
        ""
    };
    check.judge(
        matches!(takeovers, [one] if one.attempt == 2) && !early,
        format!(
            "{} took over (attempt {}){when}",
            takeovers.len(),
            attempts.join(", ")
        ),
        (
            "Afterwards exactly one other process takes the payment over.",
            "Afterwards it is NOT exactly one other process that takes the payment over.",
        ),
    );
}

fn unchecked(checks: &mut [Check], why: &str) {
    for check in checks {
        check.or_not_checked(why);
    }
}

/// One client that became the new holder.
#[derive(Debug)]
struct Takeover {
    attempt: i32,
    provider_key: String,
    /// By the database's clock.
    at: Timestamp,
}

/// Lets all clients ask until each has an answer.
async fn take_over(env: &Env, errand: &Errand) -> Result<Vec<Takeover>> {
    let until = Instant::now() + errand.lease() + PATIENCE;
    let id = errand.id()?;
    let met = env.all(|client| {
        let request = request(id.clone());
        async move {
            let request = request?;
            loop {
                match client.ask(&request).await? {
                    Reservation::Acquired(mut lease) => {
                        let takeover = Takeover {
                            attempt: lease.attempt(),
                            provider_key: lease.provider_key(),
                            at: doctor::clock(&client.conn).await?,
                        };
                        lease.complete(&client.conn, &Response::new(201, "{}")?).await?;
                        return Ok(Some(takeover));
                    }
                    Reservation::Replay(_) => return Ok(None),
                    Reservation::InProgress(_) if Instant::now() < until => tokio::time::sleep(PAUSE).await,
                    other => return Err(unexpected(request.id(), "taken over or replayed", &other)),
                }
            }
        }
    });
    Ok(met.await?.into_iter().flatten().collect())
}

/// A real process.
#[derive(Debug)]
struct Victim {
    child: Child,
    /// It ends by itself when this is closed, as when we are killed.
    _keyboard: Option<ChildStdin>,
}

impl Victim {
    async fn start(holder: &Holder, errand: &Errand) -> Result<(Self, Held)> {
        let mut child = Command::new(&holder.program)
            .args(&holder.args)
            .arg(&errand.schema)
            .arg(errand.number.to_string())
            .envs(holder.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| local(&format!("{} cannot be run: {error}", holder.program.display())))?;
        let stdout = child.stdout.take().ok_or_else(|| local(&"it has no output"))?;
        let stderr = child.stderr.take();
        let mut line = String::new();
        let mut reader = BufReader::new(stdout);
        let read = tokio::time::timeout(START, reader.read_line(&mut line)).await;
        match (read, serde_json::from_str(&line)) {
            (Ok(Ok(_)), Ok(held)) => {
                let keyboard = child.stdin.take();
                let victim = Self {
                    child,
                    _keyboard: keyboard,
                };
                Ok((victim, held))
            }
            (Err(_), _) => Err(local(&format!("it claimed nothing within {} s", START.as_secs()))),
            _ => Err(local(&format!(
                "it claimed nothing: {}",
                last_words(stderr).await
            ))),
        }
    }

    /// `kill -9`, and waits until it is gone.
    async fn kill(mut self) -> Result<ExitStatus> {
        let result = async {
            self.child.start_kill()?;
            self.child.wait().await
        };
        result.await.map_err(|error| local(&error))
    }
}

/// What it said about its trouble, in one line.
async fn last_words(stderr: Option<ChildStderr>) -> String {
    let mut text = Vec::new();
    if let Some(mut stderr) = stderr {
        let reading = stderr.read_to_end(&mut text);
        // What was read until then will do.
        let _ = tokio::time::timeout(Duration::from_secs(1), reading).await;
    }
    let text = String::from_utf8_lossy(&text);
    let error = text.lines().find(|line| line.starts_with("error: "));
    error
        .or_else(|| text.lines().next_back())
        .unwrap_or("it said nothing")
        .to_owned()
}
