//! The script that makes the group roles and their privileges; it is printed for a DBA and never sent.

use super::shape::{NEW_COLUMNS, OLD_COLUMNS};
use super::{Tables, quote_ident};

/// Columns that hold stored bodies: the viewer's role cannot read them.
const BODY_COLUMNS: [&str; 2] = ["response", "response_body"];

/// Columns of the event log that a member writes. `id`, `at` and `db_user` are not among them: they take their
/// defaults, so that no operator can write an event in another's name or of another time.
const EVENT_COLUMNS: &str = "client_id, key, action, os_user, host, reason, before, after, details";

/// Columns of a key that a member writes: those that end it (`expired_finish`). What identifies the row, its
/// request and its payment is not among them, so that no operator can steer a question about the money to another
/// order, nor a lease to another holder. One of them is enough to lock the row (PostgreSQL manual, SELECT, "The
/// Locking Clause"), and a delete needs none.
pub(crate) const END_COLUMNS: [&str; 7] = [
    "status",
    "status_code",
    "response",
    "response_headers",
    "response_body",
    "completed_at",
    "last_error",
];

/// A purge by hand counts as the job's run like the daemon's. `known_since` takes its default: nobody can make a job
/// seem new, and so keep it from being made up for.
const JOBS: &str = "select, insert (job), update (holder, token, held_until, last_scheduled_at, last_started_at, \
                    last_finished_at, last_success_at, last_outcome, last_summary)";

/// One group role and what it may do with each of the tables; empty: nothing.
struct Role {
    suffix: &'static str,
    purpose: &'static str,
    keys: &'static str,
    events: &'static str,
    jobs: &'static str,
    migrations: &'static str,
}

/// `{columns}` are the viewer's columns, `{event_columns}` those that an event is written with, `{end_columns}` those
/// that end a key.
const ROLES: [Role; 4] = [
    Role {
        suffix: "app",
        purpose: "services that use the library: the protocol, and nothing of the event log",
        keys: "select, insert, update, delete",
        events: "",
        jobs: "",
        migrations: "",
    },
    Role {
        suffix: "viewer",
        purpose: "people who look: everything but the stored response bodies",
        keys: "select ({columns})",
        events: "select",
        jobs: "select",
        migrations: "select",
    },
    Role {
        suffix: "operator",
        purpose: "people who release, reconcile, resolve and purge: they may end a key, not rewrite whose it is, and the \
                  event log is append-only to them",
        keys: "select, update ({end_columns}), delete",
        events: "select, insert ({event_columns})",
        jobs: JOBS,
        migrations: "select",
    },
    Role {
        suffix: "janitor",
        purpose: "the daemon alone, never people: an operator that may also delete events (retention.events)",
        keys: "select, update ({end_columns}), delete",
        events: "select, insert ({event_columns}), delete",
        jobs: JOBS,
        migrations: "select",
    },
];

/// The longest of the suffixes with its underscore, in bytes.
pub(crate) const LONGEST_SUFFIX: usize = "_operator".len();

const HEAD: &str = "\
-- Group roles for idemctl's tables in schema {schema}, and what each may do. Run it as superuser, or as the tables'
-- owner with CREATEROLE, after `idemctl migrate`; again at any time, also after a new partition was attached:
--     psql --no-psqlrc -v ON_ERROR_STOP=1 -f FILE
-- Then give people and services a login of their own and make it a member, for example:
--     create role alice login; grant {viewer} to alice;
-- What PUBLIC may do with the tables is revoked: a login that has its privileges that way alone loses them.
-- Nobody but the owner may update an event, and nobody but the owner and {janitor} delete one.
-- It is one transaction: members are never without their privileges, and when the last block finds that a
-- role may do more than it should (through PUBLIC or a membership), nothing is changed.
begin;
set local search_path to pg_catalog, pg_temp;
set local lock_timeout = '2s';
";

const ROLE: &str = "
-- {role}: {purpose}
do {tag}
begin
    if not exists (select from pg_roles where rolname = {role_literal}) then
        create role {role} nologin;
    elsif exists (select from pg_roles
                   where rolname = {role_literal}
                     and (rolcanlogin or rolsuper or rolcreaterole or rolcreatedb or rolreplication or rolbypassrls)) then
        raise exception 'role % is there already and is no plain group role; choose another --role-prefix',
            {role_literal};
    end if;
end
{tag};
";

/// Members reach the rows through the parent, so that a privilege on a partition is only a way around.
const REVOKE: &str = "
-- From everybody first, so that what an older script granted is gone.
-- (CREATE: up to PostgreSQL 14 everybody may make tables in the schema public.)
revoke create on schema {schema} from public, {roles};
revoke all on {keys}, {events}, {jobs}, {migrations} from public, {roles};
do {tag}
declare
    part regclass;
    sequence text := pg_get_serial_sequence({events_literal}, 'id');
begin
    for part in
        select t.relid
          from pg_class c
          join pg_namespace n on n.oid = c.relnamespace
          cross join pg_partition_tree(c.oid) t
         where n.nspname = {schema_literal} and c.relname = 'idempotency' and t.level > 0
    loop
        execute format('revoke all on %s from public, %s', part, {roles_literal});
    end loop;
    if sequence is not null then
        execute format('revoke all on sequence %s from public, %s', sequence, {roles_literal});
        -- An identity column needs no privilege on its sequence; a serial one, of a log made by hand, does.
        if exists (select from pg_attribute
                    where attrelid = {events_literal}::regclass and attname = 'id' and attidentity = '') then
            execute format('grant usage on sequence %s to %s', sequence, {writers_literal});
        end if;
    end if;
end
{tag};

grant usage on schema {schema} to {roles};
";

/// Privileges also come through PUBLIC, memberships and partitions' owners: what counts is what a role can do.
const CHECK: &str = "
do {tag}
declare
    too_much text;
begin
    select string_agg(format('%s: %s', held.role, held.what), ', ') into too_much
      from (select r.rolname as role, w.what
              from (values ({app_literal}), ({viewer_literal}), ({operator_literal}), ({janitor_literal})) as names(name)
              join pg_roles r on r.rolname = names.name
              cross join lateral (values
                  ('insert of keys',
                   name <> {app_literal} and has_any_column_privilege(r.oid, {keys_literal}, 'insert')),
                  ('update of keys',
                   name = {viewer_literal} and has_any_column_privilege(r.oid, {keys_literal}, 'update')),
                  ('update of more than a key''s end',
                   name in ({operator_literal}, {janitor_literal})
                   and exists (select from pg_attribute a
                                where a.attrelid = {keys_literal}::regclass and a.attnum > 0 and not a.attisdropped
                                  and a.attname not in ({end_literals})
                                  and has_column_privilege(r.oid, a.attrelid, a.attnum, 'update'))),
                  ('delete of keys',
                   name = {viewer_literal} and has_table_privilege(r.oid, {keys_literal}, 'delete')),
                  ('select of bodies',
                   name = {viewer_literal}
                   and (has_column_privilege(r.oid, {keys_literal}, 'response', 'select')
                        or has_column_privilege(r.oid, {keys_literal}, 'response_body', 'select'))),
                  ('select of events',
                   name = {app_literal} and has_any_column_privilege(r.oid, {events_literal}, 'select')),
                  ('insert of events',
                   name in ({app_literal}, {viewer_literal})
                   and has_any_column_privilege(r.oid, {events_literal}, 'insert')),
                  ('insert of events in another''s name',
                   has_column_privilege(r.oid, {events_literal}, 'id', 'insert')
                   or has_column_privilege(r.oid, {events_literal}, 'at', 'insert')
                   or has_column_privilege(r.oid, {events_literal}, 'db_user', 'insert')),
                  ('update of events', has_any_column_privilege(r.oid, {events_literal}, 'update')),
                  ('delete of events',
                   name <> {janitor_literal} and has_table_privilege(r.oid, {events_literal}, 'delete')),
                  ('change of jobs',
                   name in ({app_literal}, {viewer_literal})
                   and (has_any_column_privilege(r.oid, {jobs_literal}, 'insert')
                        or has_any_column_privilege(r.oid, {jobs_literal}, 'update'))),
                  ('delete of jobs', has_table_privilege(r.oid, {jobs_literal}, 'delete')),
                  ('truncate',
                   has_table_privilege(r.oid, {keys_literal}, 'truncate')
                   or has_table_privilege(r.oid, {jobs_literal}, 'truncate')
                   or has_table_privilege(r.oid, {events_literal}, 'truncate')),
                  ('membership in another role',
                   exists (select from pg_auth_members m where m.member = r.oid)),
                  ('create in the schema', has_schema_privilege(r.oid, {schema_literal}, 'create'))
              ) as w(what, held)
             where w.held) as held;
    if too_much is not null then
        raise exception 'these roles may do more than they should; nothing was changed: %', too_much;
    end if;
end
{tag};
commit;
";

/// The script for the tables of one schema, with roles named `{prefix}_app` and so on.
pub(crate) fn script(tables: &Tables, prefix: &str) -> String {
    let names: Vec<String> = ROLES
        .iter()
        .map(|role| format!("{prefix}_{}", role.suffix))
        .collect();
    let roles: Vec<String> = names.iter().map(|name| quote_ident(name)).collect();
    let roles = roles.join(", ");
    let tag = tag(&[&tables.schema, prefix]);
    let of = |suffix: &str| format!("{prefix}_{suffix}");
    let common = [
        ("{tag}", tag),
        ("{roles}", roles.clone()),
        ("{roles_literal}", quote_literal(&roles)),
        ("{end_literals}", END_COLUMNS.map(quote_literal).join(", ")),
        (
            "{writers_literal}",
            quote_literal(&format!(
                "{}, {}",
                quote_ident(&of("operator")),
                quote_ident(&of("janitor"))
            )),
        ),
        ("{schema_literal}", quote_literal(&tables.schema)),
        ("{keys_literal}", quote_literal(&tables.fill("{keys}"))),
        ("{jobs_literal}", quote_literal(&tables.fill("{jobs}"))),
        ("{events_literal}", quote_literal(&tables.fill("{events}"))),
        ("{app_literal}", quote_literal(&of("app"))),
        ("{viewer_literal}", quote_literal(&of("viewer"))),
        ("{operator_literal}", quote_literal(&of("operator"))),
        ("{janitor_literal}", quote_literal(&of("janitor"))),
        ("{viewer}", quote_ident(&of("viewer"))),
        ("{janitor}", quote_ident(&of("janitor"))),
        ("{schema}", tables.fill("{schema}")),
        ("{keys}", tables.fill("{keys}")),
        ("{events}", tables.fill("{events}")),
        ("{jobs}", tables.fill("{jobs}")),
        ("{migrations}", tables.fill("{migrations}")),
    ];
    let mut script = fill(HEAD, &common);
    for (role, name) in ROLES.iter().zip(&names) {
        let own = [
            ("{role}", quote_ident(name)),
            ("{role_literal}", quote_literal(name)),
            ("{purpose}", role.purpose.to_owned()),
        ];
        script.push_str(&fill(ROLE, &[&own[..], &common].concat()));
    }
    script.push_str(&fill(REVOKE, &common));
    for (role, name) in ROLES.iter().zip(&names) {
        for (privileges, table) in [
            (role.keys, "{keys}"),
            (role.events, "{events}"),
            (role.jobs, "{jobs}"),
            (role.migrations, "{migrations}"),
        ] {
            if privileges.is_empty() {
                continue;
            }
            let privileges = privileges
                .replace("{columns}", &viewer_columns())
                .replace("{event_columns}", EVENT_COLUMNS)
                .replace("{end_columns}", &END_COLUMNS.join(", "));
            let table = tables.fill(table);
            let role = quote_ident(name);
            for part in ["grant ", &privileges, "\n    on ", &table, " to ", &role, ";\n"] {
                script.push_str(part);
            }
        }
    }
    script.push_str(&fill(CHECK, &common));
    script
}

/// Fills in values in one pass, so that a name that looks like a placeholder stays a name.
fn fill(template: &str, values: &[(&str, String)]) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(start) = rest.find('{') {
        let (before, from) = rest.split_at(start);
        text.push_str(before);
        if let Some((name, value)) = values.iter().find(|(name, _)| from.starts_with(name)) {
            text.push_str(value);
            rest = &from[name.len()..];
        } else {
            text.push('{');
            rest = &from[1..];
        }
    }
    text + rest
}

/// Columns of ours but the bodies. What else an adopted table has is not ours to show.
fn viewer_columns() -> String {
    shown_columns().join(", ")
}

/// The same as a list.
pub(crate) fn shown_columns() -> Vec<&'static str> {
    OLD_COLUMNS
        .iter()
        .chain(&NEW_COLUMNS)
        .map(|(name, _)| *name)
        .filter(|name| !BODY_COLUMNS.contains(name))
        .collect()
}

/// A dollar quote that none of the names can end.
fn tag(names: &[&str]) -> String {
    let mut tag = "$idemctl$".to_owned();
    while names.iter().any(|name| name.contains(&tag)) {
        tag.insert(tag.len() - 1, 'x');
    }
    tag
}

/// Text in single quotes. A backslash is a backslash: `standard_conforming_strings` is on unless somebody undid it.
fn quote_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_names() {
        // A schema with quotes or braces is refused before; the roles' prefix is free.
        let tables = Tables::new("odd $idemctl$");
        let script = script(&tables, "pre{roles}'\"fix");
        assert!(script.contains("$idemctlx$"), "{script}");
        assert!(script.contains(r#"on "odd $idemctl$".idempotency_event to "pre{roles}'""fix_janitor""#));
        assert!(script.contains(r#"'pre{roles}''"fix_app'"#));
        for (start, _) in script.match_indices('{') {
            assert!(script[start..].starts_with("{roles}'"), "{}", &script[start..]);
        }
    }

    #[test]
    fn the_longest_name_is_counted() {
        let longest = ROLES.iter().map(|role| role.suffix.len() + 1).max();
        assert_eq!(longest, Some(LONGEST_SUFFIX));
    }

    #[test]
    fn a_viewer_gets_every_column_but_the_bodies() {
        let columns = viewer_columns();
        assert!(columns.contains("response_headers") && columns.contains("last_error"));
        assert!(!columns.split(", ").any(|name| BODY_COLUMNS.contains(&name)));
    }
}
