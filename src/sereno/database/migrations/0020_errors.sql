-- Failures by fingerprint: what breaks, since when, for whom; and the jobs of one kind of failure, without a scan.

-- A success has none, and none of these indexes holds a row of one.
alter table sereno.attempts add column fingerprint text;
alter table sereno.history add column fingerprint text;

create index attempts_fingerprint on sereno.attempts (fingerprint, job_id) where fingerprint is not null;
-- Of dead letters alone: a job that was cancelled did not end by a failure.
create index history_dead_fingerprint on sereno.history_dead (fingerprint, id) where fingerprint is not null;

-- One kind of failure. `message`: what the newest one said. `count`: all of them since `first_at`.
-- A few thousand rows, so it has no index but its key: then adding to a row touches no index at all.
create table sereno.error_groups (
    fingerprint  text primary key,
    task         text not null,
    error_type   text not null,
    message      text not null,
    frame        text not null,
    first_at     timestamptz not null,
    last_at      timestamptz not null,
    count        bigint not null,
    last_job_id  bigint not null,
    muted_until  timestamptz,
    note         text
) with (fillfactor = 70);

-- The same by hour and tenant. Without a tenant, or beyond the first hundred of an hour, it is the empty text.
create table sereno.error_hours (
    fingerprint  text not null,
    hour         timestamptz not null,
    tenant       text not null,
    count        integer not null,
    primary key (fingerprint, hour, tenant)
) with (fillfactor = 70);

create index error_hours_hour on sereno.error_hours (hour);

-- How many tries successes took: the first place counts those of one try, the last one all beyond.
create table sereno.tries (
    hour   timestamptz not null,
    task   text not null,
    tries  integer[] not null,
    primary key (hour, task)
) with (fillfactor = 70);
