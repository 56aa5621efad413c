-- Read queries on jobs, queues and sessions. Every count has a bound: a page never reads a million rows.

-- name: list_jobs
-- Live and finished jobs together, newest first. Each table is read backwards along its index on id until the page is
-- full, so the filter is used twice. Conditions without an index are tested on a window of the newest jobs only. A waiting
-- job shows the reason and error of its last attempt.
with page as materialized (
    select * from (
        (select id, state, task, queue, tenant, priority::integer, attempt, failures, run_at, created_at,
                claimed_at as started_at, null::timestamptz as finished_at, unique_key, tags,
                null::text as reason, null::text as error_type, null::text as error_message
        from sereno.jobs
        where %(live)s and (%(before)s::bigint is null or id < %(before)s)
          and (%(window)s::bigint is null
               or id > coalesce((select id from sereno.jobs
                                 where %(before)s::bigint is null or id < %(before)s
                                 order by id desc offset %(window)s limit 1), -1))
          -- use: jobs.live_filter
        order by id desc limit %(limit)s)
        union all
        (select id, state, task, queue, tenant, priority::integer, attempt, failures, run_at, created_at,
                started_at, finished_at, unique_key, tags, reason, error_type, error_message
        from sereno.history
        where %(finished)s and (%(before)s::bigint is null or id < %(before)s)
          and (%(window)s::bigint is null
               or id > coalesce((select id from sereno.history
                                 where state = any(%(finished_states)s) and (%(before)s::bigint is null or id < %(before)s)
                                 order by id desc offset %(window)s limit 1), -1))
          -- use: jobs.finished_filter
        order by id desc limit %(limit)s)
    ) as every
    order by id desc
    limit %(limit)s
)
select page.id, page.state, page.task, page.queue, page.tenant, page.priority, page.attempt, page.failures, page.run_at,
       page.created_at, case when page.state in ('waiting', 'scheduled', 'ready') then null else page.started_at end,
       page.finished_at, page.unique_key, page.tags, coalesce(page.reason, last.reason),
       coalesce(page.error_type, last.error_type), coalesce(page.error_message, last.error_message)
from page
left join lateral (
    select reason, error_type, error_message from sereno.attempts
    where attempts.job_id = page.id
      -- No attempt is older than its job, so earlier partitions are not read. One day of tolerance for a clock set back.
      and attempts.partition_at >= page.created_at - interval '1 day'
    order by number desc limit 1
) as last on page.finished_at is null
order by page.id desc;

-- name: live_job
-- One live job with all its columns and the worker that runs it.
select jobs.id, jobs.state, task, queue, tenant, priority::integer, attempt, failures, crashes, snoozes, releases, run_at,
       created_at, case when jobs.state = 'running' then claimed_at end, null::timestamptz, expires_at, cancel_requested,
       unique_key, tags, sereno.trace_id(trace), sereno.shown(args), null::text, null::text, null::text, null::text, session_id,
       sessions.host, sessions.pid, ready_seq,
       coalesce((select key from sereno.schedules where schedules.id = schedule_id), '#' || schedule_id), planned_at, keys,
       null::jsonb, group_id,
       case when links ? 'after' then array(select jsonb_array_elements_text(links -> 'after')::bigint) end,
       links ->> 'on_dead', (links ->> 'of')::bigint, requires
from sereno.jobs left join sereno.sessions on sessions.id = session_id
where jobs.id = %(id)s;

-- name: finished_job
-- One finished job.
select history.id, history.state, task, queue, tenant, priority::integer, attempt, failures, crashes, snoozes, releases,
       run_at, created_at, history.started_at, finished_at, expires_at, false, unique_key, tags, sereno.trace_id(trace), sereno.shown(args), reason,
       error_type, error_message, traceback, session_id, sessions.host, sessions.pid, null::bigint,
       coalesce((select key from sereno.schedules where schedules.id = schedule_id), '#' || schedule_id), planned_at, keys,
       sereno.shown(result), group_id,
       case when links ? 'after' then array(select jsonb_array_elements_text(links -> 'after')::bigint) end,
       links ->> 'on_dead', (links ->> 'of')::bigint, requires
from sereno.history left join sereno.sessions on sessions.id = session_id
where history.id = %(id)s
order by finished_at desc limit 1;

-- name: attempts
-- All attempts of a job, except the last one of a finished job, which is in the row of the job. A job that is retried for
-- weeks has very many: the newest ones are returned, up to a number of rows and bytes.
select number, session_id, started_at, finished_at, outcome, reason, error_type, error_message, traceback
from (select *, sum(octet_length(coalesce(error_message, '')) + octet_length(coalesce(traceback, '')))
                    over (order by number desc rows between unbounded preceding and 1 preceding) as bytes
      from (select * from sereno.attempts where job_id = %(id)s order by number desc limit %(most)s) as newest) as sized
where coalesce(bytes, 0) < %(bytes)s
order by number;

-- name: steps
-- The finished steps of a job, and results of procedures, which are retained longer than steps. The newest ones, up to a
-- number of rows and bytes.
select name, attempt, sereno.shown(result), done_at
from (select *, sum(octet_length(coalesce(result::text, ''))) over (order by done_at desc, name desc rows between unbounded preceding and 1 preceding) as bytes
      from (select name, attempt, result, done_at from sereno.steps where job_id = %(id)s
            union all
            select 'result', attempt, result, finished_at from sereno.procedure_runs where job_id = %(id)s
            order by done_at desc, name desc limit %(most)s) as newest) as sized
where coalesce(bytes, 0) < %(bytes)s
order by done_at, name;

-- name: progress
-- The latest progress of the running attempt.
select attempt, fraction, note, updated_at from sereno.progress where job_id = %(id)s;

-- name: queues
-- Every queue that has jobs, a worker, a pause or a carrier. Ready jobs are counted along their index, queue by queue, up to the
-- bound, and so are jobs that wait for others; scheduled ones among the next few thousand that become due; finished
-- ones among the newest rows only.
with clock as materialized (select sereno.now() as now),
ready_queue as materialized (select queue from sereno.ready_queues() as queue),
held as materialized (
    select distinct queue from (select queue from sereno.jobs where state = 'waiting' limit %(bound)s + 1) as waiting
),
soon as materialized (
    select queue, count(*) as count
    from (select queue from sereno.jobs where state = 'scheduled' order by run_at limit %(bound)s + 1) as next
    group by queue
),
busy as materialized (
    select queue, count(*) as count
    from (select queue from sereno.jobs where state = 'running' limit %(bound)s + 1) as running
    group by queue
),
ended as materialized (
    select queue, count(*) as count
    from (select queue, finished_at from sereno.history order by id desc limit %(bound)s) as newest
    where finished_at > (select now from clock) - interval '1 minute'
    group by queue
),
slots as materialized (
    select entry.key as queue, sum(entry.value::integer)::integer as slots, count(*)::integer as workers
    from sereno.sessions, clock, jsonb_each_text(sessions.queues) as entry
    where state = 'alive' and lease_until > clock.now
    group by entry.key
),
known as (
    select queue from ready_queue
    union select queue from held
    union select queue from soon
    union select queue from busy
    union select queue from slots
    union select name from sereno.pauses where kind = 'queue'
    union select queue from sereno.carrier_states
    where reported_at > (select now from clock) - interval '1 day' or pending_messages + held_messages > 0
)
select known.queue,
       (select count(*) from (select from sereno.jobs where state = 'waiting' and jobs.queue = known.queue
                              limit %(bound)s + 1) as counted),
       coalesce(soon.count, 0),
       (select coalesce(sum(count), 0) from soon) > %(bound)s,
       (select count(*) from (select from sereno.jobs
                              where state = 'ready' and lane is null and jobs.queue = known.queue
                              limit %(bound)s + 1) as counted)
       + (select count(*) from (select from sereno.jobs
                                where state = 'ready' and lane is not null and jobs.queue = known.queue
                                limit %(bound)s + 1) as counted),
       coalesce(busy.count, 0),
       coalesce(ended.count, 0),
       (select extract(epoch from max(greatest(clock.now, oldest.run_at) - oldest.run_at))::double precision
        from clock, (
            (select first.run_at
             from generate_series(0, 9) as level,
                  lateral (select run_at from sereno.jobs
                           where state = 'ready' and lane is null and jobs.queue = known.queue and jobs.priority = level
                           order by ready_seq limit 1) as first)
            union all
            (select run_at from sereno.jobs
             where state = 'ready' and lane is not null and jobs.queue = known.queue limit %(bound)s)
        ) as oldest),
       coalesce(slots.slots, 0), coalesce(slots.workers, 0),
       pauses.paused_at, pauses.paused_by, pauses.note
from known
left join soon on soon.queue = known.queue
left join busy on busy.queue = known.queue
left join ended on ended.queue = known.queue
left join slots on slots.queue = known.queue
left join sereno.pauses on pauses.kind = 'queue' and pauses.name = known.queue
order by known.queue;

-- name: pauses
-- Paused queues, tasks and tenants.
select kind, name, paused_at, paused_by, note, by_tenant from sereno.pauses
where %(names)s::text[] is null or name = any(%(names)s)
order by kind, name limit %(most)s;

-- name: sessions
-- Live sessions, then those that ended recently.
with clock as materialized (select sereno.now() as now),
busy as materialized (
    select session_id, count(*) as running from (
        select session_id from sereno.jobs where state = 'running' limit %(bound)s) as counted
    group by session_id
)
select id, host, pid, case when state = 'alive' and lease_until <= clock.now then 'expired' else state end,
       queues, cardinality(tasks), coalesce(busy.running, 0), started_at, ended_at,
       extract(epoch from lease_until - clock.now)::double precision, version, idle, release
from clock, sereno.sessions left join busy on busy.session_id = sessions.id
where state = 'alive' or ended_at > clock.now - interval '1 day'
order by (state = 'alive') desc, coalesce(ended_at, started_at) desc, id desc
limit 200;

-- name: dead_letters
-- How many dead letters there are, up to the bound.
select count(*) from (select from sereno.history_dead limit %(bound)s + 1) as counted;

-- name: next_scheduled
-- The job that becomes due next.
select id, task, run_at, extract(epoch from run_at - sereno.now())::double precision
from sereno.jobs where state = 'scheduled' order by run_at limit 1;

-- name: schema_version
-- The newest migration that was applied.
select max(number) from sereno.migrations;

-- name: oldest_transaction
-- The oldest open transaction of this database; its age is measured from the start of this statement.
select other.pid, coalesce(other.application_name, ''),
       extract(epoch from mine.query_start - other.xact_start)::double precision, other.state
from pg_stat_activity other, pg_stat_activity mine
where mine.pid = pg_backend_pid() and other.pid <> mine.pid and other.xact_start < mine.query_start
  and other.datname = current_database() and other.backend_type = 'client backend'
order by other.xact_start limit 1;

-- name: waiting
-- Why a ready job is not claimed: the workers of its queue, those that have its task, their slots, and how many jobs are
-- ahead of it.
with clock as materialized (select sereno.now() as now),
alive as materialized (
    select id, queues, tasks from sereno.sessions, clock where state = 'alive' and lease_until > clock.now
),
serving as (select * from alive where queues ? %(queue)s),
able as (select * from serving where %(task)s = any(tasks))
select (select count(*) from alive),
       (select count(*) from serving),
       (select count(*) from able),
       coalesce((select sum((queues ->> %(queue)s)::integer) from able), 0),
       (select count(*) from sereno.jobs
        where state = 'running' and jobs.queue = %(queue)s and session_id = any(array(select id from able))),
       (select count(*) from (select from sereno.jobs
                              where state = 'ready' and lane is null and jobs.queue = %(queue)s
                                and (priority, ready_seq) < (%(priority)s::smallint, %(ready_seq)s::bigint)
                              limit %(bound)s + 1) as ahead),
       (select now from clock);

-- name: newest_failures
-- Recent failures among the newest jobs: dead letters and attempts that are retried.
select * from (
    (select id, task, queue, attempt, 'dead' as outcome, finished_at, reason, error_type, error_message
     from sereno.history_dead order by id desc limit 500)
    union all
    (select tried.job_id, jobs.task, jobs.queue, tried.number, tried.outcome, tried.finished_at, tried.reason,
            tried.error_type, tried.error_message
     from (select * from sereno.attempts order by job_id desc limit 500) as tried
     join sereno.jobs on jobs.id = tried.job_id
     where tried.outcome in ('retry', 'crash'))
) as failed
order by finished_at desc
limit %(limit)s;

-- name: finished_total
-- How many rows were ever inserted into history, from the server's statistics: two reads give a rate at no cost.
select coalesce(sum(n_tup_ins), 0)::bigint
from pg_stat_user_tables
where relid = 'sereno.history_dead'::regclass
   or relid in (select inhrelid from pg_inherits where inhparent = 'sereno.history_done'::regclass);

-- name: by_task
-- Figures by task over the newest jobs: waiting, running, ended, retried, and the median wait.
with recent as materialized (
    (select id, task, state, null::double precision as waited from sereno.jobs order by id desc limit %(bound)s)
    union all
    (select id, task, state, extract(epoch from started_at - run_at)::double precision
     from sereno.history order by id desc limit %(bound)s)
),
tried as materialized (
    select recent.task, count(*) as retries
    from (select job_id from sereno.attempts where outcome = 'retry' order by job_id desc limit %(bound)s) as failed
    join recent on recent.id = failed.job_id
    group by recent.task
)
select recent.task,
       count(*) filter (where state in ('waiting', 'scheduled', 'ready')),
       count(*) filter (where state = 'running'),
       count(*) filter (where state = 'succeeded'),
       count(*) filter (where state = 'cancelled'),
       count(*) filter (where state = 'dead'),
       coalesce(max(tried.retries), 0),
       percentile_cont(0.5) within group (order by greatest(waited, 0)) filter (where state = 'succeeded')
from recent left join tried on tried.task = recent.task
group by recent.task
order by recent.task;

-- name: running_now
-- Running jobs that report progress, longest running first.
select jobs.id, task, tenant, extract(epoch from sereno.now() - claimed_at)::double precision, fraction, note
from sereno.jobs join sereno.progress on progress.job_id = jobs.id and progress.attempt = jobs.attempt
where state = 'running'
order by claimed_at
limit %(limit)s;
