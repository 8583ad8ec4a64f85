//! What lies between us and the rows: reported, not judged.

use serde::Serialize;
use tokio::task::JoinSet;

use super::env::Env;
use crate::connect::{Connection, Encryption, Route, Settings, StatementMode};
use crate::error::{Error, Result};
use crate::ops::doctor as other;
use crate::store::{bench, doctor};

/// Connections and statements of the trial of prepared statements.
const SESSIONS: usize = 4;
const STATEMENTS: usize = 25;

/// Something that was found out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// Its name, which stays the same.
    pub name: &'static str,
    /// In words.
    pub found: String,
}

/// Refuses more clients than the server has room for.
pub(super) async fn room(admin: &Connection, clients: usize) -> Result<()> {
    let most = bench::activity(admin).await?.max_connections;
    // Ours for looking at rows, the one of the schema, and the process that is killed.
    let needed = clients + 3;
    if usize::try_from(most).is_ok_and(|most| needed > most) && !pooled(admin) {
        return Err(Error::Invalid {
            field: "clients",
            reason: format!("is {clients}, and the server's max_connections is {most}"),
        });
    }
    Ok(())
}

/// Whether somebody may stand in between.
pub(super) fn pooled(admin: &Connection) -> bool {
    admin.facts().route != Route::Direct
}

pub(super) async fn facts(settings: &Settings, env: &mut Env) -> Result<Vec<Fact>> {
    let facts = env.admin.facts().clone();
    let encryption = match &facts.encryption {
        Encryption::Tls => "TLS",
        Encryption::Local => "a local socket",
        Encryption::Plain { .. } => "not encrypted",
    };
    let fact = |name, found| Fact { name, found };
    let mut list = vec![
        fact(
            "connection",
            format!("{} as {}, {encryption}", facts.host, facts.user),
        ),
        fact("server", format!("PostgreSQL {}", facts.server_version)),
        fact("pooler", other::pooler(settings, &mut env.admin).await.found),
    ];
    list.push(fact("prepared", prepared(settings, &facts.route).await?));
    let activity = bench::activity(&env.admin).await?;
    list.push(fact(
        "durability",
        format!(
            "fsync {}, synchronous_commit {}",
            activity.fsync, activity.synchronous_commit
        ),
    ));
    list.push(fact("clock", other::clock(&env.admin).await.found));
    Ok(list)
}

/// Whether prepared statements pass, where they are not used because nobody knows.
async fn prepared(settings: &Settings, route: &Route) -> Result<String> {
    if *route == Route::Direct {
        return Ok("used: the connection is direct".to_owned());
    }
    if settings.statements == StatementMode::Prepared {
        return Ok("used: the configuration forces them".to_owned());
    }
    let mut settings = settings.clone();
    settings.statements = StatementMode::Prepared;
    let mut tasks = JoinSet::new();
    for _ in 0..SESSIONS {
        let settings = settings.clone();
        tasks.spawn(async move {
            let Ok(conn) = Connection::open(&settings).await else {
                return STATEMENTS;
            };
            for done in 0..STATEMENTS {
                // What comes after one that has failed says nothing.
                if doctor::backend(&conn).await.is_err() || doctor::clock(&conn).await.is_err() {
                    return STATEMENTS - done;
                }
            }
            conn.close().await;
            0
        });
    }
    let mut failed = 0;
    while let Some(result) = tasks.join_next().await {
        failed += result.map_err(|error| Error::Local {
            what: format!("the trial of prepared statements broke: {error}"),
        })?;
    }
    let all = SESSIONS * STATEMENTS;
    Ok(if failed == 0 {
        format!("not used; in a trial {all} of {all} prepared statements passed, which proves nothing")
    } else {
        format!("not used, and rightly: in a trial {failed} of {all} prepared statements failed")
    })
}
