-- Gauges of the database for Prometheus. Every query is bounded: its cost does not grow with the installation.

-- name: ready_queues
-- Queues with ready jobs, from queue to queue along their index.
select queue from sereno.ready_queues() as queue limit %(most)s;

-- name: jobs
-- Jobs by queue, tenant and state, and the age of the oldest ready one. Ready jobs are read in the order in which they are
-- claimed, up to a bound for each queue, and the first one of each priority, which may be behind that bound. The largest
-- queues and tenants have a line of their own.
with clock as materialized (select sereno.now() as now),
ready_queue as materialized (select unnest(%(queues)s::text[]) as queue),
found as materialized (
    select ready_queue.queue, tenant, 'ready' as state, run_at
    from ready_queue,
         lateral (select tenant, run_at from sereno.jobs
                  where state = 'ready' and lane is null and jobs.queue = ready_queue.queue
                  order by priority, ready_seq limit %(of_queue)s) as plain
    union all
    select ready_queue.queue, tenant, 'ready', run_at
    from ready_queue,
         lateral (select tenant, run_at from sereno.jobs
                  where state = 'ready' and lane is not null and jobs.queue = ready_queue.queue
                  order by lane, priority, ready_seq limit %(of_queue)s) as in_lanes
    union all
    select ready_queue.queue, tenant, 'first', run_at
    from ready_queue, generate_series(0, 9) as level,
         lateral (select tenant, run_at from sereno.jobs
                  where state = 'ready' and lane is null and jobs.queue = ready_queue.queue and jobs.priority = level
                  order by ready_seq limit 1) as first
    union all
    (select queue, tenant, 'scheduled', null from sereno.jobs where state = 'scheduled' order by run_at limit %(bound)s)
    union all
    (select queue, tenant, 'waiting', null from sereno.jobs where state = 'waiting' limit %(bound)s)
    union all
    (select queue, tenant, 'running', null from sereno.jobs where state = 'running' limit %(bound)s)
    union all
    (select queue, tenant, 'dead', null from sereno.history_dead order by finished_at desc limit %(bound)s)
),
large_tenant as materialized (
    select tenant from found where tenant is not null group by tenant order by count(*) desc, tenant limit %(tenants)s
),
large_queue as materialized (
    select queue from found group by queue order by count(*) desc, queue limit %(labels)s
)
select case when queue in (select queue from large_queue) then queue else %(other)s end,
       case when tenant is null then ''
            when tenant in (select tenant from large_tenant) then tenant else %(other)s end,
       state, count(*),
       extract(epoch from max(greatest(clock.now, run_at) - run_at))::double precision
from found cross join clock
group by 1, 2, 3
order by 1, 2, 3;

-- name: queues
-- Workers and slots of each queue, and whether it is paused.
select queue, count(slots)::integer, coalesce(sum(slots), 0)::integer, bool_or(is_paused)
from (select entry.key as queue, entry.value::integer as slots, false as is_paused
      from sereno.sessions, jsonb_each_text(sessions.queues) as entry
      where state = 'alive' and lease_until > sereno.now()
      union all
      select name, null, true from sereno.pauses where kind = 'queue') as found
group by queue order by queue limit %(most)s;

-- name: deliveries
-- Deliveries by channel and state: the newest ones, those that failed, and pauses.
select 'newest' as kind, channel, state, count(*)
from (select channel, state from sereno.deliveries order by id desc limit %(bound)s) as newest group by channel, state
union all
select 'failed', channel, state, count(*)
from (select channel, state from sereno.failed_deliveries limit %(bound)s) as failed group by channel, state
union all
select 'paused', channel, '', count(*) from sereno.channel_pauses group by channel
order by kind, channel, state limit %(most)s;

-- name: limits
-- For each limit, the used part by its fullest key, among some of its keys, and the keys for which jobs wait.
with clock as materialized (select sereno.now() as now),
chosen as materialized (select * from sereno.limits order by name limit %(limits)s)
select chosen.name,
       coalesce((select max(case when chosen.kind = 'slots' and chosen.slots = 0 then 1
                                 when chosen.kind = 'slots' then sereno.slots_taken(held)::double precision / chosen.slots
                                 else 1 - (coalesce(tokens, burst) + greatest(0, extract(epoch from clock.now - used_at))
                                           * chosen.units / chosen.period) / chosen.burst end)
                 from (select held, tokens, used_at from sereno.limiters where limit_name = chosen.name
                       limit %(keys)s) as limiter, clock), 0)::double precision,
       (select count(*) from (select from sereno.limiters where limit_name = chosen.name and check_at is not null
                              limit %(keys)s) as waiting)
from chosen
order by chosen.name;

-- name: replicas
-- How far each standby is behind this primary; the furthest one of each name. A login without pg_monitor sees no positions.
select name, max(lag)
from (select coalesce(nullif(application_name, ''), client_addr::text, pid::text) as name,
             case when replay_lsn >= pg_current_wal_lsn() then 0
                  else coalesce(extract(epoch from replay_lag), 0) end::double precision as lag
      from pg_stat_replication
      where replay_lsn is not null and not pg_is_in_recovery()) as standby
group by name order by name limit %(most)s;
