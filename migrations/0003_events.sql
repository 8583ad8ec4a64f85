-- Why: the append-only log of what operators and the janitor did to which key, with the row before and after.
--   It outlives the keys, so there is no foreign key.
-- Lock: none that anybody could wait for; the table is new.
-- Time: milliseconds.

create table if not exists {events} (
    id bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    client_id text,
    key text,
    action text not null,
    db_user text not null default session_user,
    os_user text,
    host text,
    reason text,
    before jsonb,
    after jsonb,
    details jsonb
);

create index if not exists idempotency_event_key_idx on {events} (client_id, key);
