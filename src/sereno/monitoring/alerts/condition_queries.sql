-- Conditions that need an operator. Each query is bounded: its cost does not grow with the installation.

-- name: queues
-- Queues with ready jobs: their number, up to a bound; the age of the oldest job that is not paused; whether a worker
-- serves the queue. Jobs that wait for a limit are not late.
with clock as materialized (select sereno.now() as now),
ready_queue as materialized (select queue from sereno.ready_queues() as queue limit 1000),
paused as materialized (select kind, name from sereno.pauses),
head as materialized (
    select ready_queue.queue, first.run_at
    from ready_queue, generate_series(0, 9) as level,
         lateral (select run_at, task, tenant from sereno.jobs
                  where state = 'ready' and lane is null and jobs.queue = ready_queue.queue and jobs.priority = level
                  order by ready_seq limit 100) as first
    where first.task <> all(array(select name from paused where kind = 'task'))
      and (first.tenant is null or first.tenant <> all(array(select name from paused where kind = 'tenant')))
),
oldest as materialized (select queue, min(run_at) as run_at from head group by queue)
select ready_queue.queue,
       (select count(*) from (select from sereno.jobs
                              where state = 'ready' and lane is null and jobs.queue = ready_queue.queue
                              limit %(bound)s) as counted)
       + (select count(*) from (select from sereno.jobs
                                where state = 'ready' and lane is not null and jobs.queue = ready_queue.queue
                                limit %(bound)s) as counted),
       extract(epoch from greatest(clock.now, oldest.run_at) - oldest.run_at)::double precision, oldest.run_at,
       exists (select from sereno.sessions
               where state = 'alive' and lease_until > clock.now and queues ? ready_queue.queue),
       exists (select from paused where kind = 'queue' and name = ready_queue.queue)
from clock cross join ready_queue left join oldest on oldest.queue = ready_queue.queue
order by oldest.run_at nulls last limit %(most)s;

-- name: dead
-- Jobs that died within the last hour, by task, among the newest.
with newest as materialized (
    select task, tenant, finished_at from sereno.history_dead
    where finished_at > sereno.now() - interval '1 hour' order by finished_at desc limit %(bound)s
)
select task, count(*), min(finished_at) from newest
where %(tenant)s::text is null or tenant = %(tenant)s
group by task order by count(*) desc, task limit %(most)s;

-- name: missed
-- Fires of the last day that were dropped within the last hour.
with skipped as materialized (
    select schedule_id, stands_for, fired_at, reason from sereno.fires
    where reason is not null and planned_at > sereno.now() - interval '1 day' limit %(bound)s
)
select schedules.key, sum(stands_for)::bigint, min(skipped.fired_at), schedules.tenant
from skipped join sereno.schedules on schedules.id = schedule_id
where skipped.reason = 'missed' and skipped.fired_at > sereno.now() - interval '1 hour'
  and (%(tenant)s::text is null or schedules.tenant = %(tenant)s)
group by schedules.key, schedules.tenant order by min(skipped.fired_at) desc, schedules.key limit %(most)s;

-- name: schedules
-- Schedules that are parked because their rule is invalid, and those that were disabled because they failed too often.
select key, state, note, changed_at, task, queue, tenant
from (select * from sereno.schedules where state in ('parked', 'disabled') order by state desc, id limit %(bound)s) as found
where (state = 'parked' or starts_with(note, 'disabled after ')) and (%(tenant)s::text is null or tenant = %(tenant)s)
order by changed_at desc, key limit %(most)s;

-- name: channels
-- Channels that are paused, entirely or for one account.
select channel, account, reason, since from sereno.channel_pauses
where %(tenant)s::text is null or account = %(tenant)s
order by since desc, channel, account limit %(most)s;

-- name: failing
-- Outcomes of the newest deliveries, by channel.
select channel, count(*) filter (where state in ('failed', 'bounced', 'dead', 'unknown')), count(*)
from (select channel, state from sereno.deliveries order by id desc limit %(bound)s) as newest
where state not in ('pending', 'sending', 'skipped', 'expired')
group by channel order by channel limit %(most)s;

-- name: tenant
-- Since when a tenant is paused.
select paused_at from sereno.pauses where kind = 'tenant' and name = %(tenant)s;
