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

-- name: deliveries
-- The newest deliveries by event type and state.
select events.type, newest.state, count(*)
from (select event_id, state from sereno.deliveries order by id desc limit %(most)s) as newest
join sereno.events on events.id = newest.event_id
group by events.type, newest.state;

-- name: reset
-- Drops everything that the previous demo created.
drop schema if exists sereno, sereno_archive, tenders, separate_worker, reminders, reconciliation, triggers cascade;
