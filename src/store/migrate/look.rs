//! What stands in the way of migrating, and what was applied already.

use tokio_postgres::types::Type;

use crate::error::{Error, Result};
use crate::store::{Executor, Sql, Tables};
use crate::time::Timestamp;

/// The schema and what we may do there.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) role: String,
    pub(crate) database: String,
    pub(crate) schema_exists: bool,
    /// CREATE on the schema, or on the database where the schema is absent.
    pub(crate) may_create: bool,
}

const PLACE: Sql = Sql {
    name: "migrate_place",
    text: "-- idemctl:migrate_place
select current_user::text as role,
       current_database()::text as database,
       n.oid is not null as schema_exists,
       case when n.oid is null then has_database_privilege(current_database(), 'create')
            else has_schema_privilege(n.oid, 'create') and has_schema_privilege(n.oid, 'usage')
       end as may_create
  from (select $1 /* schema */ as name) as wanted
  left join pg_namespace n on n.nspname = wanted.name",
    types: &[Type::TEXT],
};

pub(crate) async fn place(executor: &impl Executor, schema: &str) -> Result<Place> {
    let statement = Tables::new("").statement(&PLACE);
    let answer = executor.run(&statement, &[/* schema */ &schema]).await?;
    let row = answer.rows.first().ok_or_else(|| Error::Inconsistent {
        what: "the catalogue query returned no row; is this a PostgreSQL server?".to_owned(),
    })?;
    Ok(Place {
        role: row.get("role"),
        database: row.get("database"),
        schema_exists: row.get("schema_exists"),
        may_create: row.get("may_create"),
    })
}

/// Something that bears one of our tables' names.
#[derive(Debug)]
pub(crate) struct Relation {
    pub(crate) name: String,
    /// `pg_class.relkind`.
    pub(crate) kind: String,
    pub(crate) owner: String,
    /// Whether we are, or belong to, the owner.
    pub(crate) owned: bool,
    pub(crate) columns: Vec<String>,
}

const RELATIONS: Sql = Sql {
    name: "migrate_relations",
    text: "-- idemctl:migrate_relations
select c.relname::text as name,
       c.relkind::text as kind,
       pg_get_userbyid(c.relowner)::text as owner,
       pg_has_role(c.relowner, 'usage') as owned,
       array(select a.attname::text from pg_attribute a
              where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum) as columns
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = $1 /* schema */
   and c.relname in ('idempotency', 'idempotency_event', 'idempotency_job', 'idempotency_migration')
 order by c.relname",
    types: &[Type::TEXT],
};

pub(crate) async fn relations(executor: &impl Executor, schema: &str) -> Result<Vec<Relation>> {
    let statement = Tables::new("").statement(&RELATIONS);
    let answer = executor.run(&statement, &[/* schema */ &schema]).await?;
    let relation = |row: &tokio_postgres::Row| Relation {
        name: row.get("name"),
        kind: row.get("kind"),
        owner: row.get("owner"),
        owned: row.get("owned"),
        columns: row.get("columns"),
    };
    Ok(answer.rows.iter().map(relation).collect())
}

/// A row of `idempotency_migration`.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "the names are the table's columns")]
pub(crate) struct Applied {
    pub(crate) version: i32,
    pub(crate) name: String,
    pub(crate) sha256: String,
    pub(crate) applied_at: Option<Timestamp>,
    pub(crate) app_version: Option<String>,
}

const APPLIED: Sql = Sql {
    name: "migrate_applied",
    text: "-- idemctl:migrate_applied
select version, coalesce(name, '') as name, coalesce(sha256, '') as sha256, applied_at, app_version
  from {migrations}
 order by version",
    types: &[],
};

/// What was applied; the table must be there.
pub(crate) async fn applied(executor: &impl Executor, tables: &Tables) -> Result<Vec<Applied>> {
    let answer = executor.run(&tables.statement(&APPLIED), &[]).await?;
    let applied = |row: &tokio_postgres::Row| Applied {
        version: row.get("version"),
        name: row.get("name"),
        sha256: row.get("sha256"),
        applied_at: row.get("applied_at"),
        app_version: row.get("app_version"),
    };
    Ok(answer.rows.iter().map(applied).collect())
}

const BLOCKERS: Sql = Sql {
    name: "migrate_blockers",
    text: "-- idemctl:migrate_blockers
with root as (
    select c.oid from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = $1 /* schema */ and c.relname = 'idempotency'
), node as (
    select root.oid from root
    union
    select tree.relid::oid from root, pg_partition_tree(root.oid) tree
)
select l.pid,
       coalesce(max(a.application_name), '') as application,
       max(a.usename::text) as role,
       extract(epoch from clock_timestamp() - max(a.xact_start))::float8 as seconds
  from pg_locks l
  left join pg_stat_activity a on a.pid = l.pid
 where l.locktype = 'relation' and l.granted and l.pid <> pg_backend_pid()
   and l.relation in (select node.oid from node)
   and l.database = (select d.oid from pg_database d where d.datname = current_database())
 group by l.pid
 order by max(a.xact_start) nulls last
 limit 5",
    types: &[Type::TEXT],
};

/// Who holds locks on the table, oldest transaction first, in words.
pub(crate) async fn blockers(executor: &impl Executor, schema: &str) -> Result<Vec<String>> {
    let statement = Tables::new("").statement(&BLOCKERS);
    let answer = executor.run(&statement, &[/* schema */ &schema]).await?;
    let describe = |row: &tokio_postgres::Row| {
        let pid: i32 = row.get("pid");
        let application: String = row.get("application");
        let role: Option<String> = row.get("role");
        let seconds: Option<f64> = row.get("seconds");
        let age = seconds.map_or_else(
            || "of unknown age".to_owned(),
            |age| format!("open for {age:.0} s"),
        );
        let role = role.unwrap_or_else(|| "unknown".to_owned());
        format!(
            "pid {pid} (role {}, {}, {age})",
            role.escape_debug(),
            application.escape_debug()
        )
    };
    Ok(answer.rows.iter().map(describe).collect())
}

/// The statements of this file.
pub(crate) const STATEMENTS: &[Sql] = &[PLACE, RELATIONS, APPLIED, BLOCKERS];
