//! Start-up against psql, the size of the binary, the memory of the daemon.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use idemctl::connect::{Connection, Settings};
use idemctl::fingerprint::Fingerprint;
use idemctl::key::KeyId;
use idemctl::ops::migrate;
use idemctl::protocol::{Idempotency, Options, Request, Reservation};
use idemctl::response::Response;

use crate::goal::Goal;
use crate::servers::Servers;
use crate::{Effort, Result};

const IDEMCTL: &str = env!("CARGO_BIN_EXE_idemctl");

pub(crate) async fn run(servers: &Servers, effort: Effort) -> Result<Vec<Goal>> {
    let url = servers.postgres.url("idemctl");
    one_row(&url).await?;
    let starts = starts(&url, effort.starts)?;
    let (size, stripped) = sizes(servers.scratch())?;
    let memory = janitor(&url)?;
    println!("\n| footprint | |\n| --- | --- |");
    if let Some((ours, psql)) = starts {
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        println!(
            "| `idemctl inspect` of one key, end to end (median) | {} |",
            ms(ours)
        );
        println!("| `psql -c` for the same row | {} |", ms(psql));
    }
    println!("| binary of this build | {:.1} MB |", mb(size));
    match stripped {
        Some(bytes) => println!("| the same without symbols | {:.1} MB |", mb(bytes)),
        None => println!("| the same without symbols | not measured: no `strip` here |"),
    }
    println!("| resident memory of `idemctl janitor` after its start | {memory} |");
    let ratio = starts.map(|(ours, psql)| ours.as_secs_f64() / psql.as_secs_f64());
    let inspect = Goal::of("`inspect` : `psql -c`, start to end", "(no goal)", ratio, |_| {
        None
    });
    Ok(vec![inspect])
}

/// A key that is done.
async fn one_row(url: &str) -> Result<()> {
    let settings = Settings::from_dsn(url)?;
    migrate::run(&settings, None, &migrate::Options::default()).await?;
    let connection = Connection::open(&settings).await?;
    let keys = Idempotency::open(&connection, None, Options::default()).await?;
    let request = Request::new(KeyId::new("shop-1", "order-1")?, Fingerprint::of_json(b"1")?);
    let Reservation::Acquired(mut lease) = keys.reserve(&connection, &request).await? else {
        return Err("the key of a new database is taken".into());
    };
    lease
        .complete(&connection, &Response::new(201, r#"{"charge_id":1}"#)?)
        .await?;
    connection.close().await;
    Ok(())
}

/// Medians of both, in turns; `None` without psql.
fn starts(url: &str, count: usize) -> Result<Option<(Duration, Duration)>> {
    let row = "select * from idempotency where client_id = 'shop-1' and key = 'order-1'";
    let (mut ours, mut psql) = (Vec::new(), Vec::new());
    // The first of each reads the programs from the disk.
    for number in 0..=count {
        let mut inspect = Command::new(IDEMCTL);
        inspect
            .args(["inspect", "shop-1", "order-1"])
            .env("IDEMCTL_DATABASE_URL", url);
        let inspected = time(&mut inspect)?;
        let mut asked = Command::new("psql");
        asked.args(["-X", "-c", row, url]);
        let Ok(asked) = time(&mut asked) else {
            println!("psql is not here: start-up is not compared");
            return Ok(None);
        };
        if number > 0 {
            ours.push(inspected);
            psql.push(asked);
        }
    }
    Ok(Some((median(ours), median(psql))))
}

fn time(command: &mut Command) -> Result<Duration> {
    let started = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    let elapsed = started.elapsed();
    if status.success() {
        return Ok(elapsed);
    }
    Err(format!("{command:?} ended with {status}").into())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Bytes of the binary, and of a copy without symbols.
fn sizes(scratch: &Path) -> Result<(u64, Option<u64>)> {
    let copy = scratch.join("idemctl");
    let stripped = Command::new("strip").arg("-o").arg(&copy).arg(IDEMCTL).status();
    let stripped = match stripped {
        Ok(status) if status.success() => Some(std::fs::metadata(&copy)?.len()),
        _ => None,
    };
    Ok((std::fs::metadata(IDEMCTL)?.len(), stripped))
}

/// `VmRSS` of proc(5), once the daemon has planned its first runs.
fn janitor(url: &str) -> Result<String> {
    let mut child = Command::new(IDEMCTL)
        .arg("janitor")
        .env("IDEMCTL_DATABASE_URL", url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let log = child.stderr.take().ok_or("a pipe was asked for")?;
    let planned = BufReader::new(log)
        .lines()
        .map_while(std::result::Result::ok)
        .filter(|line| line.contains("next run"))
        .nth(1);
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
    child.kill()?;
    child.wait()?;
    if planned.is_none() {
        return Err("the janitor ended before it had planned its runs".into());
    }
    let text = status.unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Ok(line.map_or_else(
        || "not measured: no /proc here".to_owned(),
        |line| line.trim().to_owned(),
    ))
}

#[expect(clippy::cast_precision_loss, reason = "a binary has far less than 2^53 bytes")]
fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
