-- The demo's own database: dropped at each start, unless another demo still uses it.

-- name: others
-- Workers with a valid lease: they may still be running.
select host, pid from sereno.sessions where state = 'alive' and lease_until > sereno.now();

-- name: is_there
-- Whether the schema of an earlier demo exists.
select to_regclass('sereno.sessions') is not null;

-- name: workers
-- The process of each example system that runs its jobs: that of its newest session. The names of its tasks begin with its own.
select distinct on (system) system, pid
from sereno.sessions, unnest(%(systems)s::text[]) as system
where state = 'alive' and (select bool_or(starts_with(task, system || '.')) from unnest(tasks) as task)
order by system, id desc;

-- name: jobs
-- Jobs by the first part of their task: waiting, running, succeeded, dead, and how often they were retried. All of them,
-- so that no total falls and the dead ones are those of `sereno status`.
with every as materialized (
    select id, task, state from sereno.jobs union all select id, task, state from sereno.history
),
retried as materialized (
    select job_id, count(*) as times from sereno.attempts where outcome = 'retry' group by job_id
)
select split_part(task, '.', 1),
       count(*) filter (where state in ('waiting', 'scheduled', 'ready')),
       count(*) filter (where state = 'running'),
       count(*) filter (where state = 'succeeded'),
       count(*) filter (where state = 'dead'),
       coalesce(sum(times), 0)::bigint
from every left join retried on retried.job_id = every.id
group by 1;

-- name: deliveries
-- Deliveries by event type and state: all of them.
select events.type, deliveries.state, count(*)
from sereno.deliveries join sereno.events on events.id = deliveries.event_id
group by events.type, deliveries.state;

-- name: reset
-- Drops everything that the previous demo created.
drop schema if exists sereno, sereno_archive, tenders, separate_worker, reminders, reconciliation, triggers cascade;
