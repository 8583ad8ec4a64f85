-- Why: each of the janitor's jobs is run by one process at a time, and a process that starts must know when the job
--   last ran, whoever ran it. One row for each job: who runs it and until when that holds, and how the last run went.
--   A process renews its term while it works; where it dies, the term runs out and another one takes over.
-- Lock: none that anybody could wait for; the table is new.
-- Time: milliseconds.
--
-- It is an ordinary small table also where the keys are partitioned or distributed over nodes. A row is made when a
-- janitor first sees the job: until then there is no run that could have been missed.

create table if not exists {jobs} (
    job text primary key,
    known_since timestamptz not null default now(),
    holder text,
    token uuid,
    held_until timestamptz,
    last_scheduled_at timestamptz,
    last_started_at timestamptz,
    last_finished_at timestamptz,
    last_success_at timestamptz,
    last_outcome text,
    last_summary text
);
