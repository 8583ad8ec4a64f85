//! How far the project's goals for speed and size are met, on this machine.
//!
//! `cargo bench --bench goals [-- --duration 60s] [-- --short]`: starts a private PostgreSQL and a private Redis that
//! go when it ends, compares the ways to claim (`idemctl bench`'s own code), and measures start-up and footprint. It
//! asserts nothing: the machine decides times. It fails when something cannot be measured at all. The goals of the
//! purge stand at the end of `cargo bench --bench table`, those of a table that grows at the end of `--bench scale`.

#![expect(clippy::print_stdout, reason = "what it prints is what it is for")]

mod compare;
mod footprint;
#[path = "../support/goal.rs"]
mod goal;
#[path = "../support/server.rs"]
mod server;
mod servers;
mod wire;

use std::time::Duration;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

/// How thoroughly.
#[derive(Debug, Clone, Copy)]
struct Effort {
    /// All turns of the comparison together.
    duration: Duration,
    keys: u32,
    /// Runs of each of two programs that are compared.
    starts: usize,
    /// Only shows that everything still works.
    trial: bool,
}

fn main() -> Result<()> {
    let effort = effort()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let servers = servers::start().await?;
        let measured = measure(&servers, effort).await;
        servers.stop().await?;
        measured
    })
}

async fn measure(servers: &servers::Servers, effort: Effort) -> Result<()> {
    let mut goals = compare::run(servers, effort).await?;
    goals.extend(footprint::run(servers, effort).await?);
    wire::run(servers, effort).await?;
    goal::print(&goals, effort.trial);
    Ok(())
}

/// Cargo adds `--bench`.
fn effort() -> Result<Effort> {
    let mut effort = Effort {
        duration: Duration::from_mins(1),
        keys: 100_000,
        starts: 40,
        trial: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--short" => {
                effort = Effort {
                    duration: Duration::from_secs(1),
                    keys: 2_000,
                    starts: 3,
                    trial: true,
                }
            }
            "--duration" => {
                let text = args.next().ok_or("--duration needs a time, such as 60s")?;
                effort.duration = idemctl::duration::parse(&text)?;
            }
            "--bench" => {}
            other => {
                return Err(
                    format!("unknown argument {other:?}; --duration TIME and --short are known").into(),
                );
            }
        }
    }
    Ok(effort)
}
