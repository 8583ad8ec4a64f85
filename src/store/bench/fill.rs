//! Rows for the benchmark's scratch schema.

use tokio_postgres::types::Type;

use crate::error::Result;
use crate::store::scratch::Scrap;
use crate::store::{Executor, Tables};

/// Keys that were done an hour ago.
const FILL_DONE: Scrap = Scrap {
    name: "bench_fill_done",
    text: "-- idemctl:bench_fill_done
insert into {keys} (client_id, key, fingerprint, status, locked_until, status_code, response, created_at,
                    completed_at, lease_token, owner, operation)
select $1, 'order-' || n, $2, 'done', now() - interval '59 min', 201, $3::json, now() - interval '1 h',
       now() - interval '1 h', gen_random_uuid(), 'bench', $4
  from generate_series($5, $6) n",
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
        Type::INT8,
    ],
};

/// Keys whose holder is gone.
const FILL_EXPIRED: Scrap = Scrap {
    name: "bench_fill_expired",
    text: "-- idemctl:bench_fill_expired
insert into {keys} (client_id, key, fingerprint, status, locked_until, created_at, lease_token, owner, operation)
select $1, 'order-' || n, $2, 'in_progress', now() - interval '59 min', now() - interval '1 h',
       gen_random_uuid(), 'bench', $3
  from generate_series($4, $5) n",
    types: &[Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8, Type::INT8],
};

const ANALYZE: Scrap = Scrap {
    name: "bench_analyze",
    text: "-- idemctl:bench_analyze
analyze {keys}",
    types: &[],
};

/// Rows `from` to `to` of keys that are done.
pub(crate) async fn fill_done(
    executor: &impl Executor,
    tables: &Tables,
    client: &str,
    (fingerprint, body, operation): (&str, &str, &str),
    (from, to): (i64, i64),
) -> Result<()> {
    executor
        .run(
            &FILL_DONE.of(tables),
            &[
                /* client_id */ &client,
                /* fingerprint */ &fingerprint,
                /* response */ &body,
                /* operation */ &operation,
                /* from */ &from,
                /* to */ &to,
            ],
        )
        .await?;
    Ok(())
}

/// Rows `from` to `to` of keys whose lease is over.
pub(crate) async fn fill_expired(
    executor: &impl Executor,
    tables: &Tables,
    client: &str,
    (fingerprint, operation): (&str, &str),
    (from, to): (i64, i64),
) -> Result<()> {
    executor
        .run(
            &FILL_EXPIRED.of(tables),
            &[
                /* client_id */ &client,
                /* fingerprint */ &fingerprint,
                /* operation */ &operation,
                /* from */ &from,
                /* to */ &to,
            ],
        )
        .await?;
    Ok(())
}

/// Tells the planner what there is.
pub(crate) async fn analyze(executor: &impl Executor, tables: &Tables) -> Result<()> {
    executor.run(&ANALYZE.of(tables), &[]).await?;
    Ok(())
}
