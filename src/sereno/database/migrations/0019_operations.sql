-- Bulk changes that go on after whoever asked for them has left: a row says what is wanted and how far it is, and a job
-- of the engine's own does it, batch by batch.

-- `wanted`: the filter, for people. `look`: the same as parameters of the statement that looks for them. `options`: what
-- else the change takes, such as until when schedules are paused.
-- `total`: how many there were when it was asked for; null if that took too long to count. `cursor`: what is up to this
-- id has been looked at; schedules are met in the order of their keys, and `cursor_key` is the last of these. `upper_id`:
-- what is above it came later, and is left alone. `paced_at`: with a rate, when the next batch may begin.
create table sereno.bulk_operations (
    id             bigint generated always as identity primary key,
    action         text not null check (action in (
                       'job.retry', 'job.cancel', 'job.delete', 'delivery.requeue', 'schedule.pause', 'schedule.resume',
                       'schedule.disable', 'schedule.delete', 'schedule.spread')),
    state          text not null default 'waiting' check (state in ('waiting', 'running', 'done', 'stopped', 'failed')),
    wanted         jsonb not null,
    look           jsonb not null,
    options        jsonb not null default '{}',
    tenant         text,
    rate           double precision check (rate > 0),
    reason         text,
    asked_by       text not null,
    total          bigint,
    total_exact    boolean not null default true,
    done           bigint not null default 0,
    asked_to_stop  bigint not null default 0,
    left_alone     bigint not null default 0,
    cursor         bigint not null default 0,
    cursor_key     text not null default '',
    upper_id       bigint not null,
    job_id         bigint,
    paced_at       timestamptz,
    created_at     timestamptz not null default sereno.now(),
    started_at     timestamptz,
    seen_at        timestamptz,
    stop_asked_at  timestamptz,
    stop_asked_by  text,
    finished_at    timestamptz,
    error          text
) with (fillfactor = 70);

create index bulk_operations_live on sereno.bulk_operations (job_id) where state in ('waiting', 'running');
create index bulk_operations_tenant on sereno.bulk_operations (tenant, id) where tenant is not null;
