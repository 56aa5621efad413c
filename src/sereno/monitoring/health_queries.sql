-- Queries of `sereno doctor`. Each is cheap and read-only.

-- name: server
-- The server's version and settings, its clock at the start of this statement, and the usage of its notification queue.
select current_setting('server_version_num')::integer, current_setting('server_version'),
       current_setting('synchronous_commit'), extract(epoch from query_start)::double precision,
       pg_notification_queue_usage()
from pg_stat_activity where pid = pg_backend_pid();

-- name: has_schema
-- Whether the schema of sereno exists.
select to_regclass('sereno.migrations') is not null;

-- name: applied
-- The applied migrations, with their checksums at that time.
select number, checksum from sereno.migrations order by number;

-- name: clock
-- The offset of a moved clock, which is for tests only.
select extract(epoch from ahead)::double precision from sereno.clock;

-- name: live_workers
-- Workers with a valid lease, and sessions whose lease expired without any worker declaring them dead.
select count(*) filter (where lease_until > sereno.now()),
       count(*) filter (where lease_until <= sereno.now() - interval '15 seconds')
from sereno.sessions where state = 'alive';

-- name: connections
-- The connections available to clients, and the processes and slots of the live Python workers.
select current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
       - coalesce(current_setting('reserved_connections', true)::integer, 0),
       count(distinct id)::integer, coalesce(sum(slots.value::integer), 0)::integer
from sereno.sessions left join lateral jsonb_each_text(queues) as slots on true
where state = 'alive' and lease_until > sereno.now() and opened_by is null;

-- name: unserved_queues
-- Queues with ready jobs that no live worker serves; scans from queue to queue along the index.
with ready_queue as materialized (select queue from sereno.ready_queues() as queue)
select queue from ready_queue
where not exists (select from sereno.sessions
                  where state = 'alive' and lease_until > sereno.now() and queues ? ready_queue.queue)
order by queue limit 20;

-- name: unknown_tasks
-- Tasks at the head of a queue that no live worker of the queue knows. Their jobs stay at the head, so reading it is enough.
with ready_queue as materialized (select queue from sereno.ready_queues() as queue),
head as materialized (
    select distinct ready_queue.queue, head.task
    from ready_queue, generate_series(0, 9) as level,
         lateral (select task from sereno.jobs
                  where state = 'ready' and lane is null and jobs.queue = ready_queue.queue and jobs.priority = level
                  order by ready_seq limit 500) as head
    union
    select ready_queue.queue, head.task
    from ready_queue,
         lateral (select task from sereno.jobs
                  where state = 'ready' and lane is not null and jobs.queue = ready_queue.queue limit 500) as head
)
select distinct head.task, head.queue from head
where exists (select from sereno.sessions
              where state = 'alive' and lease_until > sereno.now() and queues ? head.queue)
  and not exists (select from sereno.sessions
                  where state = 'alive' and lease_until > sereno.now() and queues ? head.queue and head.task = any(tasks))
order by head.task limit 20;

-- name: pinned
-- What holds back vacuum: old transactions of this server, replication slots, prepared transactions.
select * from (
    select 'transaction' as kind, other.pid::text as name, coalesce(other.application_name, '') as detail,
           extract(epoch from mine.query_start - other.xact_start)::double precision as seconds,
           coalesce(age(other.backend_xmin), 0) as transactions
    from pg_stat_activity other, pg_stat_activity mine
    where mine.pid = pg_backend_pid() and other.pid <> mine.pid and other.xact_start < mine.query_start
      and other.backend_type = 'client backend'
    union all
    select 'replication slot', slot_name::text, case when active then 'active' else 'inactive' end, null,
           greatest(age(xmin), age(catalog_xmin))
    from pg_replication_slots where xmin is not null or catalog_xmin is not null
    union all
    select 'prepared transaction', gid, owner::text,
           extract(epoch from mine.query_start - prepared)::double precision, age(transaction)
    from pg_prepared_xacts, pg_stat_activity mine
    where mine.pid = pg_backend_pid()
) as holders
order by seconds desc nulls last limit 5;

-- name: dead_tuples
-- Dead and live rows of the jobs table.
select n_dead_tup, n_live_tup from pg_stat_user_tables where relid = 'sereno.jobs'::regclass;

-- name: partitions
-- Whether history has partitions for today and tomorrow, and how many rows are in the default partition.
select to_regclass('sereno.history_done_' || to_char((sereno.now() at time zone 'UTC')::date, 'YYYYMMDD')) is not null,
       to_regclass('sereno.history_done_' || to_char((sereno.now() at time zone 'UTC')::date + 1, 'YYYYMMDD')) is not null,
       (select count(*) from (select from sereno.history_done_default limit 10001) as counted);

-- name: schedules
-- Whether schedules are due, whether a scheduler leads, its delay, and schedules that do not run. The engine's own
-- schedules are left out: without workers they are not missed.
select exists (select from sereno.schedules where next_run_at is not null and not starts_with(task, 'sereno.')),
       exists (select from sereno.leases where name = 'scheduler' and until > sereno.now()),
       (select extract(epoch from sereno.now() - greatest(next_run_at, timestamptz 'epoch'))::double precision
        from sereno.schedules where next_run_at <= sereno.now() and not starts_with(task, 'sereno.') order by next_run_at limit 1),
       array(select key from sereno.schedules where state = 'parked' order by id limit 5),
       array(select key from sereno.schedules where state = 'disabled' and starts_with(note, 'disabled after ') order by id limit 5),
       array(select key || ' (' || service || '): ' || problem from sereno.refused_declarations order by refused_at, key limit 5);

-- name: limits
-- Awaited limits that are unknown or closed for long, dead jobs that block an order, and the number of unread wake-ups. Only
-- limiters that jobs wait for are read, along their index.
with awaited as materialized (
    select limit_name, limits.name is null as is_unknown
    from (select * from sereno.limiters where check_at is not null order by check_at limit 10000) as limiter
    left join sereno.limits on limits.name = limit_name
    where limit_name is not null
      and (limits.name is null or closed_until > sereno.now() + make_interval(secs => %(closed)s))
),
blocking as materialized (
    select id, queue, keys from sereno.history_dead where keys ? 'blocks' limit 10000
)
select array(select distinct limit_name from awaited where is_unknown order by limit_name limit 5),
       array(select distinct limit_name from awaited where not is_unknown order by limit_name limit 5),
       array(select id from blocking
             where exists (select from sereno.jobs where order_id = sereno.order_of(blocking.queue, blocking.keys))
             order by id limit 5),
       (select count(*) from (select from sereno.lane_wakes limit %(wakes)s + 1) as counted);
