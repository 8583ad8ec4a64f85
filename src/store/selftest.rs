//! Statements of the self test: what its rows are, and time that passes for them.

use tokio_postgres::types::Type;

use crate::error::{Error, Result};
use crate::key::KeyId;
use crate::store::scratch::Scrap;
use crate::store::{Executor, Tables};
use crate::time::Timestamp;

/// Any write makes another `xmin` or `ctid`, also one that changes no value.
const VERSION: Scrap = Scrap {
    name: "selftest_version",
    text: "-- idemctl:selftest_version
select format('%s %s %s', k.xmin, k.ctid, md5(k::text)) as version, k.created_at
  from {keys} k where client_id = $1 and key = $2",
    types: &[Type::TEXT, Type::TEXT],
};

/// As if so many hours had passed since; a row in progress has lost its lease by then.
const AGE: Scrap = Scrap {
    name: "selftest_age",
    text: "-- idemctl:selftest_age
update {keys}
   set created_at = created_at - make_interval(hours => $3),
       locked_until = locked_until - make_interval(hours => $4),
       completed_at = completed_at - make_interval(hours => $4)
 where client_id = $1 and key = $2",
    types: &[Type::TEXT, Type::TEXT, Type::INT4, Type::INT4],
};

/// As if a janitor had ended the key with a final error.
const FAIL: Scrap = Scrap {
    name: "selftest_fail",
    text: "-- idemctl:selftest_fail
update {keys} set status = 'failed', completed_at = now() where client_id = $1 and key = $2",
    types: &[Type::TEXT, Type::TEXT],
};

/// A row as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Another one after any write.
    pub(crate) version: String,
    /// When it was claimed.
    pub(crate) created_at: Timestamp,
}

/// `None` where there is no such row.
pub(crate) async fn row(executor: &impl Executor, tables: &Tables, id: &KeyId) -> Result<Option<Row>> {
    let answer = executor
        .run(
            &VERSION.of(tables),
            &[/* client_id */ &id.client_id(), /* key */ &id.key()],
        )
        .await?;
    Ok(answer.rows.first().map(|row| Row {
        version: row.get("version"),
        created_at: row.get("created_at"),
    }))
}

/// Moves a row into the past: its creation by `created` hours, its lease and its completion by `ended`.
pub(crate) async fn age(
    executor: &impl Executor,
    tables: &Tables,
    id: &KeyId,
    (created, ended): (i32, i32),
) -> Result<()> {
    let answer = executor
        .run(
            &AGE.of(tables),
            &[
                /* client_id */ &id.client_id(),
                /* key */ &id.key(),
                /* created */ &created,
                /* ended */ &ended,
            ],
        )
        .await?;
    one(answer.affected, id)
}

/// Ends a key with a final error.
pub(crate) async fn fail(executor: &impl Executor, tables: &Tables, id: &KeyId) -> Result<()> {
    let answer = executor
        .run(
            &FAIL.of(tables),
            &[/* client_id */ &id.client_id(), /* key */ &id.key()],
        )
        .await?;
    one(answer.affected, id)
}

fn one(affected: u64, id: &KeyId) -> Result<()> {
    if affected == 1 {
        return Ok(());
    }
    Err(Error::Inconsistent {
        what: format!("an update of the row {id} touched {affected} rows where one was meant"),
    })
}
