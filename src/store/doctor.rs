//! What `doctor` asks: catalogue, settings, privileges and activity; nothing here reads a row of ours.

use tokio_postgres::types::Type;

use super::purge::no_row;
use super::{Executor, Sql, Tables};
use crate::error::Result;
use crate::time::Timestamp;

const DOCTOR_SERVER: Sql = Sql {
    name: "doctor_server",
    text: "-- idemctl:doctor_server
select current_setting('server_encoding') as encoding,
       current_setting('fsync')::bool as fsync,
       current_setting('full_page_writes')::bool as full_page_writes,
       current_setting('synchronous_commit') as synchronous_commit,
       current_setting('autovacuum')::bool as autovacuum,
       current_setting('track_counts')::bool as track_counts,
       array(select p.name::text
               from unnest(current_schemas(false)) with ordinality as p(name, position)
               join pg_namespace n on n.nspname = p.name
               join pg_class c on c.relnamespace = n.oid and c.relname = 'idempotency' and c.relkind in ('r', 'p')
              order by p.position) as schemas",
    types: &[],
};

const DOCTOR_CLOCK: Sql = Sql {
    name: "doctor_clock",
    text: "-- idemctl:doctor_clock
select clock_timestamp() as now",
    types: &[],
};

const DOCTOR_BACKEND: Sql = Sql {
    name: "doctor_backend",
    text: "-- idemctl:doctor_backend
select pg_backend_pid() as backend",
    types: &[],
};

const DOCTOR_TABLE: Sql = Sql {
    name: "doctor_table",
    text: "-- idemctl:doctor_table
with root as (
    select c.oid, c.relkind
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = $1 /* schema */ and c.relname = 'idempotency' and c.relkind in ('r', 'p')
), node as (
    select root.oid from root
    union
    select t.relid::oid from root, pg_partition_tree(root.oid) t where root.relkind = 'p'
), part as (
    select c.oid, c.relkind, c.relpersistence, c.reloptions, format('%I.%I', n.nspname, c.relname) as name
      from node
      join pg_class c on c.oid = node.oid
      join pg_namespace n on n.oid = c.relnamespace
)
select coalesce(row_security_active(root.oid), false) as row_security,
       array(select part.name from part where part.relpersistence = 'u' and part.relkind <> 'p' order by 1) as unlogged,
       array(select part.name from part
              where exists (select from unnest(part.reloptions) as o(text)
                             where case when o.text like 'autovacuum_enabled=%'
                                        then not split_part(o.text, '=', 2)::bool end)
              order by 1) as unvacuumed,
       array(select distinct t.tgname::text from pg_trigger t join node on node.oid = t.tgrelid
              where not t.tgisinternal and t.tgenabled <> 'D'
             union
             select r.rulename::text from pg_rewrite r join node on node.oid = r.ev_class
              order by 1) as triggers,
       array(select format('%I.%I', n.nspname, c.relname)
               from pg_index i
               join node on node.oid = i.indrelid
               join pg_class c on c.oid = i.indexrelid
               join pg_namespace n on n.oid = c.relnamespace
              where not i.indisvalid and c.relkind = 'i'
              order by 1) as invalid
  from root",
    types: &[Type::TEXT],
};

/// `null` where the table is not there. A privilege on a part of the needed columns is none.
const DOCTOR_PRIVILEGES: Sql = Sql {
    name: "doctor_privileges",
    text: "-- idemctl:doctor_privileges
with t as (
    select n.oid as schema,
           max(c.oid) filter (where c.relname = 'idempotency') as keys,
           max(c.oid) filter (where c.relname = 'idempotency_event') as events,
           max(c.oid) filter (where c.relname = 'idempotency_job') as jobs,
           max(c.oid) filter (where c.relname = 'idempotency_migration') as migrations
      from pg_namespace n
      left join pg_class c on c.relnamespace = n.oid and c.relkind in ('r', 'p')
     where n.nspname = $1
     group by n.oid
)
select has_schema_privilege(t.schema, 'usage') as usage,
       (select pg_has_role(c.relowner, 'usage') from pg_class c where c.oid = t.keys) as owner,
       (select bool_and(has_column_privilege(t.keys, a.attnum, 'select')) from pg_attribute a
         where a.attrelid = t.keys and a.attname = any($2 /* shown */)) as keys_read,
       (select bool_and(has_column_privilege(t.keys, a.attnum, 'select')) from pg_attribute a
         where a.attrelid = t.keys and a.attname in ('response', 'response_body')) as bodies_read,
       has_table_privilege(t.keys, 'insert') as keys_insert,
       (select bool_and(has_column_privilege(t.keys, a.attnum, 'update')) from pg_attribute a
         where a.attrelid = t.keys and a.attname = any($3 /* ending */)) as keys_end,
       has_table_privilege(t.keys, 'update') as keys_update,
       has_table_privilege(t.keys, 'delete') as keys_delete,
       has_table_privilege(t.events, 'select') as events_read,
       (select bool_and(has_column_privilege(t.events, a.attnum, 'insert')) from pg_attribute a
         where a.attrelid = t.events
           and a.attname in ('client_id', 'key', 'action', 'os_user', 'host', 'reason', 'before', 'after', 'details')
       ) as events_insert,
       has_table_privilege(t.events, 'delete') as events_delete,
       has_table_privilege(t.migrations, 'select') as migrations_read,
       has_table_privilege(t.jobs, 'select') as jobs_read,
       (select has_column_privilege(t.jobs, 'job', 'insert')
               and bool_and(has_column_privilege(t.jobs, a.attnum, 'update'))
          from pg_attribute a
         where a.attrelid = t.jobs and a.attnum > 0 and not a.attisdropped
           and a.attname not in ('job', 'known_since')) as jobs_write
  from t",
    types: &[Type::TEXT, Type::TEXT_ARRAY, Type::TEXT_ARRAY],
};

/// What other roles do is hidden from those who are not in `pg_read_all_stats` (PostgreSQL manual, "The Cumulative
/// Statistics System", section "Viewing Statistics").
const DOCTOR_ACTIVITY: Sql = Sql {
    name: "doctor_activity",
    text: "-- idemctl:doctor_activity
select pg_has_role('pg_read_all_stats', 'usage') as sees_all, oldest.what, oldest.seconds, oldest.mend
  from (select 1 as one) always
  left join lateral (
      select format('pid %s (role %s, application %s, %s)', a.pid, a.usename, a.application_name, a.state) as what,
             extract(epoch from clock_timestamp() - a.xact_start)::float8 as seconds,
             format('select pg_terminate_backend(%s)', a.pid) as mend
        from pg_stat_activity a
       where a.datname = current_database() and a.backend_type = 'client backend' and a.pid <> pg_backend_pid()
         and a.xact_start is not null
      union all
      select format('prepared transaction %L (role %s)', p.gid, p.owner),
             extract(epoch from clock_timestamp() - p.prepared)::float8,
             format('rollback prepared %L', p.gid)
        from pg_prepared_xacts p
       where p.database = current_database()
       order by 2 desc
       limit 1) oldest on true",
    types: &[],
};

const DOCTOR_ANALYZE: Sql = Sql {
    name: "doctor_analyze",
    text: "-- idemctl:doctor_analyze
analyze {keys}",
    types: &[],
};

pub(crate) const STATEMENTS: &[Sql] = &[
    DOCTOR_SERVER,
    DOCTOR_CLOCK,
    DOCTOR_BACKEND,
    DOCTOR_TABLE,
    DOCTOR_PRIVILEGES,
    DOCTOR_ACTIVITY,
    DOCTOR_ANALYZE,
];

/// Settings of the server as they hold for this session.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of the server")]
pub(crate) struct Server {
    pub(crate) encoding: String,
    pub(crate) fsync: bool,
    pub(crate) full_page_writes: bool,
    pub(crate) synchronous_commit: String,
    pub(crate) autovacuum: bool,
    pub(crate) track_counts: bool,
    /// Schemas of the search path that have the table, in its order.
    pub(crate) schemas: Vec<String>,
}

/// What was done to the table and its partitions. Names are quoted as SQL needs them.
#[derive(Debug)]
pub(crate) struct TableFacts {
    pub(crate) row_security: bool,
    pub(crate) unlogged: Vec<String>,
    pub(crate) unvacuumed: Vec<String>,
    pub(crate) triggers: Vec<String>,
    pub(crate) invalid: Vec<String>,
}

/// What the role may do; `None` where there is no such table.
#[derive(Debug, Default)]
pub(crate) struct Privileges {
    pub(crate) usage: bool,
    pub(crate) owner: Option<bool>,
    pub(crate) keys_read: Option<bool>,
    pub(crate) bodies_read: Option<bool>,
    pub(crate) keys_insert: Option<bool>,
    pub(crate) keys_end: Option<bool>,
    pub(crate) keys_update: Option<bool>,
    pub(crate) keys_delete: Option<bool>,
    pub(crate) events_read: Option<bool>,
    pub(crate) events_insert: Option<bool>,
    pub(crate) events_delete: Option<bool>,
    pub(crate) migrations_read: Option<bool>,
    pub(crate) jobs_read: Option<bool>,
    pub(crate) jobs_write: Option<bool>,
}

/// The oldest transaction of the database but ours.
#[derive(Debug)]
pub(crate) struct Activity {
    /// Whether the role sees what others do.
    pub(crate) sees_all: bool,
    pub(crate) what: Option<String>,
    pub(crate) seconds: Option<f64>,
    pub(crate) mend: Option<String>,
}

async fn one(executor: &impl Executor, sql: &Sql, tables: &Tables) -> Result<tokio_postgres::Row> {
    let answer = executor.run(&tables.statement(sql), &[]).await?;
    answer.rows.into_iter().next().ok_or_else(|| no_row(sql.name))
}

pub(crate) async fn server(executor: &impl Executor) -> Result<Server> {
    let row = one(executor, &DOCTOR_SERVER, &Tables::new("")).await?;
    Ok(Server {
        encoding: row.get("encoding"),
        fsync: row.get("fsync"),
        full_page_writes: row.get("full_page_writes"),
        synchronous_commit: row.get("synchronous_commit"),
        autovacuum: row.get("autovacuum"),
        track_counts: row.get("track_counts"),
        schemas: row.get("schemas"),
    })
}

/// The server's clock at this moment.
pub(crate) async fn clock(executor: &impl Executor) -> Result<Timestamp> {
    Ok(one(executor, &DOCTOR_CLOCK, &Tables::new("")).await?.get("now"))
}

/// Which server process answers.
pub(crate) async fn backend(executor: &impl Executor) -> Result<i32> {
    Ok(one(executor, &DOCTOR_BACKEND, &Tables::new(""))
        .await?
        .get("backend"))
}

/// `None` where there is no table.
pub(crate) async fn table(executor: &impl Executor, schema: &str) -> Result<Option<TableFacts>> {
    let statement = Tables::new("").statement(&DOCTOR_TABLE);
    let answer = executor.run(&statement, &[/* schema */ &schema]).await?;
    Ok(answer.rows.first().map(|row| TableFacts {
        row_security: row.get("row_security"),
        unlogged: row.get("unlogged"),
        unvacuumed: row.get("unvacuumed"),
        triggers: row.get("triggers"),
        invalid: row.get("invalid"),
    }))
}

/// `None` where there is no such schema. `shown`: the columns that `inspect` and `list` read; `ending`: those that are
/// written when a key is ended.
pub(crate) async fn privileges(
    executor: &impl Executor,
    schema: &str,
    shown: &[&str],
    ending: &[&str],
) -> Result<Option<Privileges>> {
    let statement = Tables::new("").statement(&DOCTOR_PRIVILEGES);
    let answer = executor
        .run(
            &statement,
            &[
                /* schema */ &schema, /* shown */ &shown, /* ending */ &ending,
            ],
        )
        .await?;
    Ok(answer.rows.first().map(|row| Privileges {
        usage: row.get("usage"),
        owner: row.get("owner"),
        keys_read: row.get("keys_read"),
        bodies_read: row.get("bodies_read"),
        keys_insert: row.get("keys_insert"),
        keys_end: row.get("keys_end"),
        keys_update: row.get("keys_update"),
        keys_delete: row.get("keys_delete"),
        events_read: row.get("events_read"),
        events_insert: row.get("events_insert"),
        events_delete: row.get("events_delete"),
        migrations_read: row.get("migrations_read"),
        jobs_read: row.get("jobs_read"),
        jobs_write: row.get("jobs_write"),
    }))
}

pub(crate) async fn activity(executor: &impl Executor) -> Result<Activity> {
    let row = one(executor, &DOCTOR_ACTIVITY, &Tables::new("")).await?;
    Ok(Activity {
        sees_all: row.get("sees_all"),
        what: row.get("what"),
        seconds: row.get("seconds"),
        mend: row.get("mend"),
    })
}

/// Gathers the planner's statistics of the table.
pub(crate) async fn analyze(executor: &impl Executor, schema: &str) -> Result<()> {
    let statement = Tables::new(schema).statement(&DOCTOR_ANALYZE);
    executor.run(&statement, &[]).await.map(drop)
}
