-- Monitoring: statistics of attempts, the central log, alerts, error groups and bulk operations.

-- Attempts that ended, by minute; workers add to it a few times a minute, so that no page counts attempts. `waits`,
-- `runs`: histograms of waiting and running times, by the buckets of sereno.telemetry.metrics, and one beyond.
create table sereno.minutes (
    minute     timestamptz not null,
    queue      text not null,
    task       text not null,
    succeeded  integer not null default 0,
    retried    integer not null default 0,
    dead       integer not null default 0,
    cancelled  integer not null default 0,
    other      integer not null default 0,
    waits      integer[] not null,
    runs       integer[] not null,
    run_seconds  double precision not null default 0,
    primary key (minute, queue, task)
) with (fillfactor = 70);

-- The same by ten minutes: a week of it is read in a tenth of the time.
create table sereno.ten_minutes (like sereno.minutes including all) with (fillfactor = 70);

-- The same by hour and tenant: attempts that ended, those that did not succeed, seconds of running time.
create table sereno.tenant_hours (
    hour     timestamptz not null,
    tenant   text not null,
    ended    integer not null default 0,
    failed   integer not null default 0,
    seconds  double precision not null default 0,
    primary key (hour, tenant)
) with (fillfactor = 70);

-- Return the sum of two histograms with the same buckets.
create function sereno.added(integer[], integer[]) returns integer[]
    language sql immutable strict as $$
    select array_agg(coalesce(mine, 0) + coalesce(theirs, 0) order by place)
    from unnest($1, $2) with ordinality as both_of(mine, theirs, place)
    $$;

-- The sum of histograms.
create aggregate sereno.sum_of(integer[]) (sfunc = sereno.added, stype = integer[]);

-- The central log of handlers and workers. Append-only; old lines are deleted along the primary key. `at`: when the
-- line was logged; it is written a second later, and at most ten minutes later. `context`: further fields, without
-- secrets.
create table sereno.logs (
    id         bigint generated always as identity primary key,
    at         timestamptz not null,
    level      text not null,
    event      text not null,
    message    text not null,
    tenant     text,
    job_id     bigint,
    task       text,
    queue      text,
    trace_id   text,
    session    bigint,
    context    jsonb not null default '{}',
    traceback  text
);

create index logs_at on sereno.logs (at);
create index logs_event on sereno.logs (event, id);
create index logs_tenant on sereno.logs (tenant, id) where tenant is not null;
create index logs_job on sereno.logs (job_id, id) where job_id is not null;
create index logs_trace on sereno.logs (trace_id, id) where trace_id is not null;

-- Alert rules. `kinds`: the alert conditions that the rule covers; null for all. `log`: covers lines of the log
-- instead: level, event, count, within. `targets`: channel, address and its keys; an address may be a secret, and is
-- never shown. `log_read`, `log_reached`: the last log line of the previous and of the latest evaluation; `hits`: id
-- and time of the newest lines that match.
create table sereno.alert_rules (
    name           text primary key,
    kinds          text[],
    log            jsonb,
    targets        jsonb not null check (jsonb_typeof(targets) = 'array'),
    level          text not null default 'warn' check (level in ('warn', 'bad')),
    tenant         text,
    queue          text,
    task           text,
    for_seconds    double precision not null default 0 check (for_seconds >= 0),
    again_seconds  double precision not null default 14400 check (again_seconds > 0),
    enabled        boolean not null default true,
    note           text,
    created_at     timestamptz not null default sereno.now(),
    changed_at     timestamptz not null default sereno.now(),
    changed_by     text not null,
    log_read       bigint,
    log_reached    bigint,
    hits           jsonb not null default '[]',
    error          text,
    error_at       timestamptz
) with (fillfactor = 70);

-- Alerts, open until their condition ends. `notified_at`: when the first notification was sent; null while the condition
-- has not lasted long enough. `times`: notifications sent. `openings`: how many times it reopened within an hour;
-- each time it must stay resolved for longer. `sent`: jobs whose message the scheduler sent itself, because no worker
-- was alive.
create table sereno.alerts (
    id                bigint generated always as identity primary key,
    rule              text not null,
    kind              text not null,
    subject           text not null,
    level             text not null check (level in ('warn', 'bad')),
    sentence              text not null,
    details           jsonb not null,
    words             text not null,
    remedy            text not null,
    opened_at         timestamptz not null default sereno.now(),
    last_seen_at      timestamptz not null default sereno.now(),
    notified_at           timestamptz,
    times             integer not null default 0,
    openings          integer not null default 1,
    resolved_at       timestamptz,
    resolved_notified_at  timestamptz,
    silenced_until    timestamptz,
    silenced_by       text,
    sent              bigint[] not null default '{}'
) with (fillfactor = 70);

create unique index alerts_open on sereno.alerts (rule, kind, subject) where resolved_at is null;
create index alerts_resolved on sereno.alerts (resolved_at) where resolved_at is not null;

-- Error groups: failures with the same fingerprint. `message`: that of the newest failure. `count`: all failures
-- since `first_at`. A few thousand rows and no index but the primary key, so an update changes no index.
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

-- Failures of a group by hour and tenant. The tenant is empty for jobs without one, and beyond the first hundred of
-- an hour.
create table sereno.error_hours (
    fingerprint  text not null,
    hour         timestamptz not null,
    tenant       text not null,
    count        integer not null,
    primary key (fingerprint, hour, tenant)
) with (fillfactor = 70);

create index error_hours_hour on sereno.error_hours (hour);

-- How many attempts successes took: the first element counts those of one attempt, the last all beyond.
create table sereno.tries (
    hour   timestamptz not null,
    task   text not null,
    tries  integer[] not null,
    primary key (hour, task)
) with (fillfactor = 70);

-- Bulk operations: a row states the change and its progress, and one of sereno's own jobs performs it in batches, so
-- it continues after the client that requested it has disconnected.
-- `wanted`: the filter, for display. `selection`: the same as parameters of the query that finds the rows. `options`:
-- further parameters of the change, such as the end of a pause. `total`: matching rows at the start; null if the
-- count took too long. `cursor`: rows up to this id are done; schedules are processed in the order of their keys, and
-- `cursor_key` is the last of these. `upper_id`: rows above it are newer and are not changed. `paced_at`: with a
-- rate, when the next batch may start.
create table sereno.bulk_operations (
    id             bigint generated always as identity primary key,
    action         text not null check (action in (
                       'job.retry', 'job.cancel', 'job.delete', 'delivery.requeue', 'schedule.pause', 'schedule.resume',
                       'schedule.disable', 'schedule.delete', 'schedule.spread')),
    state          text not null default 'waiting' check (state in ('waiting', 'running', 'done', 'stopped', 'failed')),
    wanted         jsonb not null,
    selection           jsonb not null,
    options        jsonb not null default '{}',
    tenant         text,
    rate           double precision check (rate > 0),
    reason         text,
    requested_by       text not null,
    total          bigint,
    total_exact    boolean not null default true,
    done           bigint not null default 0,
    stop_requested  bigint not null default 0,
    left_alone     bigint not null default 0,
    cursor         bigint not null default 0,
    cursor_key     text not null default '',
    upper_id       bigint not null,
    job_id         bigint,
    paced_at       timestamptz,
    created_at     timestamptz not null default sereno.now(),
    started_at     timestamptz,
    seen_at        timestamptz,
    stop_requested_at  timestamptz,
    stop_requested_by  text,
    finished_at    timestamptz,
    error          text
) with (fillfactor = 70);

create index bulk_operations_live on sereno.bulk_operations (job_id) where state in ('waiting', 'running');
create index bulk_operations_tenant on sereno.bulk_operations (tenant, id) where tenant is not null;
