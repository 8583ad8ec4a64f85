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
use crate::protocol::{Idempotency, Options, Reservation};
use crate::response::Response;
use crate::store::doctor;

const KEY: &str = "kill";
/// Long enough to be met alive by everyone.
const LEASE: Duration = Duration::from_secs(2);
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

/// The process that is to be killed: claims the key of the scratch schema `schema`, says so by `say` in one line, and
/// then does nothing until `end`.
///
/// Returns [`Error::Inconsistent`] where the key is not free.
pub async fn hold<E: From<Error>>(
    settings: &Settings,
    schema: &str,
    say: impl FnOnce(&str) -> Result<(), E>,
    end: impl Future<Output = ()>,
) -> Result<(), E> {
    let conn = Connection::open(settings).await?;
    let keys = Idempotency::open(&conn, Some(schema), Options::default()).await?;
    let request = request(id(KEY)?)?.lease(LEASE)?;
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
    Ok(())
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
    let (victim, held) = match Victim::start(holder, &env.tables.schema).await {
        Ok(started) => started,
        // Says nothing about the database.
        Err(error) => {
            unchecked(checks, &error.to_string());
            return Ok(());
        }
    };
    let id = id(KEY)?;
    // What the lease has to be, whatever the row says of it.
    let until = env.row(&id).await?.created_at.checked_add(LEASE);
    let status = victim.kill().await?;
    let first = env.all(|client| {
        let request = request(id.clone());
        async move { client.ask(&request?).await.map(|answer| word(&answer)) }
    });
    let first = first.await?;
    let over = Some(doctor::clock(&env.admin).await?) >= until;
    let blocked = first.iter().filter(|word| **word == "in progress").count();
    if over {
        checks[0].or_not_checked(&format!(
            "the lease of {} s was over before everyone had asked: too slow a connection",
            LEASE.as_secs()
        ));
    } else {
        checks[0].judge(
            blocked == first.len(),
            format!("ended by {status}; {blocked} of {} requests were told \"in progress\"", first.len()),
            (
                "When a process dies in the middle of a payment, nobody repeats it while its time has not run out.",
                "When a process dies in the middle of a payment, others repeat it AT ONCE.",
            ),
        );
    }
    let takeovers = take_over(env).await?;
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
    at: crate::time::Timestamp,
}

/// Lets all clients ask until each has an answer.
async fn take_over(env: &Env) -> Result<Vec<Takeover>> {
    let until = Instant::now() + LEASE + PATIENCE;
    let met = env.all(|client| async move {
        let request = request(id(KEY)?)?;
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
    async fn start(holder: &Holder, schema: &str) -> Result<(Self, Held)> {
        let mut child = Command::new(&holder.program)
            .args(&holder.args)
            .arg(schema)
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
