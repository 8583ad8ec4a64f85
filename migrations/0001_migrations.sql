-- Why: the record of what was applied, so that a changed, missing or unknown migration is noticed.
-- Lock: none that anybody could wait for; the table is new.
-- Time: milliseconds.

create table if not exists {migrations} (
    version int primary key,
    name text not null,
    sha256 text not null,
    applied_at timestamptz not null default clock_timestamp(),
    app_version text not null
);
