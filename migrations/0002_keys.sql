-- Why: one row for each (client_id, key) decides which of many concurrent callers does the work. A table that
--   services in other languages already use is adopted as it stands: columns are added, rows are never touched.
-- Lock: none on a new database. On an existing table ACCESS EXCLUSIVE, for the catalogue change alone: each new
--   column is nullable or has a constant default, so nothing is rewritten and nothing is scanned (PostgreSQL
--   manual, ALTER TABLE, Notes). `idemctl migrate` asks for the lock with a short lock_timeout, again and again,
--   so that a long-running reader does not make every caller queue behind this statement.
-- Time: milliseconds once the lock is held, at any size.
--
-- `response` is json and not jsonb because json keeps the text byte for byte, and a replay must be the same
-- bytes. There are no check constraints: a service that only knows the first eight columns may write any word
-- into `status`, and has to go on working.

create table if not exists {keys} (
    client_id text not null,
    key text not null,
    fingerprint text not null,
    status text not null default 'in_progress',
    locked_until timestamptz not null default now() + interval '30 seconds',
    status_code int,
    response json,
    created_at timestamptz not null default now(),
    attempt int not null default 1,
    lease_token uuid,
    owner text,
    operation text,
    provider text,
    order_id text,
    completed_at timestamptz,
    response_headers jsonb,
    response_body bytea,
    last_error text,
    primary key (client_id, key)
);

alter table {keys}
    add column if not exists attempt int not null default 1,
    add column if not exists lease_token uuid,
    add column if not exists owner text,
    add column if not exists operation text,
    add column if not exists provider text,
    add column if not exists order_id text,
    add column if not exists completed_at timestamptz,
    add column if not exists response_headers jsonb,
    add column if not exists response_body bytea,
    add column if not exists last_error text;

-- An adopted table may lack defaults that the protocol promises. Those that are there stay as they are.
do $$
declare
    missing record;
begin
    for missing in
        select wanted.name, wanted.value
          from (values ('status', '''in_progress'''),
                       ('locked_until', 'now() + interval ''30 seconds'''),
                       ('created_at', 'now()')) as wanted (name, value)
          join pg_attribute a on a.attrelid = '{keys}'::regclass and a.attname = wanted.name
         where not a.atthasdef
    loop
        execute format('alter table {keys} alter column %I set default %s', missing.name, missing.value);
    end loop;
end
$$;
