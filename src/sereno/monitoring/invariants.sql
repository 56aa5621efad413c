-- The invariants, as queries that must return no rows. Each returns (id, description) of at most twenty violations.
-- They run in one read-only snapshot. Only the newest rows are checked, up to a window; no window means all.

-- name: begin
-- One read-only snapshot for all queries.
set transaction isolation level repeatable read, read only;

-- name: orphaned
-- A running job belongs to a live session, or to one that has just died.
select jobs.id, 'its session ' || session_id || ' is ' || coalesce(sessions.state, 'unknown')
from sereno.jobs left join sereno.sessions on sessions.id = session_id
where jobs.state = 'running'
  and case when sessions.id is null then claimed_at < sereno.now() - make_interval(secs => %(grace)s)
           when sessions.state = 'alive' then lease_until < sereno.now() - make_interval(secs => %(grace)s)
           else greatest(ended_at, claimed_at) < sereno.now() - make_interval(secs => %(grace)s) end
order by jobs.id limit 20;

-- name: live_and_finished
-- A job is live or finished, never both.
select id, 'it is both live and ' || state
from (select id, state from sereno.history order by id desc limit %(window)s) as past
where exists (select from sereno.jobs where jobs.id = past.id)
order by id limit 20;

-- name: finished_twice
-- A job finishes once.
select id, 'it finished ' || count(*) || ' times'
from (select id from sereno.history order by id desc limit %(window)s) as past
group by id having count(*) > 1
order by id limit 20;

-- name: attempts_of_live_jobs
-- The recorded attempts of a running job are those before its current one; those of a waiting job include the last one.
select jobs.id, 'attempt ' || number || ' is recorded, the job is ' || state || ' at attempt ' || attempt
from (select id, state, attempt from sereno.jobs order by id desc limit %(window)s) as jobs
join sereno.attempts on attempts.job_id = jobs.id
where number > attempt or (number = attempt and state = 'running')
order by jobs.id limit 20;

-- name: attempts_of_finished_jobs
-- The last attempt of a finished job is its own row: its number is used nowhere else, and none is higher. Materialized,
-- because the planner expects many violations: with the limit it would compare all pairs, to find the first ones sooner.
with broken as materialized (
    select past.id, number, attempt
    from (select id, attempt, started_at, session_id from sereno.history order by id desc limit %(window)s) as past
    join sereno.attempts on attempts.job_id = past.id
    where number > attempt or (number = attempt and past.session_id is not null and past.started_at is not null)
)
select id, 'attempt ' || number || ' is recorded, the job ended with attempt ' || attempt from broken order by id limit 20;

-- name: attempts_once
-- An attempt number is used once per job. No unique key spans the daily partitions of attempts.
select job_id, 'attempt ' || number || ' is recorded ' || count(*) || ' times'
from (select job_id, number from sereno.attempts order by job_id desc limit %(window)s) as tried
group by job_id, number having count(*) > 1
order by job_id limit 20;

-- name: sessions_of_jobs
-- A running job has a session, a waiting one has none.
select id, 'it is ' || state || case when session_id is null then ' without a session' else ' and has a session' end
from sereno.jobs
where (state = 'running') <> (session_id is not null)
order by id limit 20;

-- name: ready_order
-- A ready job has a position in the order.
select id, 'it is ready and has no position in the order' from sereno.jobs
where state = 'ready' and ready_seq is null
order by id limit 20;

-- name: known_states
-- A job is in one of the known states.
select id, 'its state is ' || state
from ((select id, state from sereno.jobs where state not in ('scheduled', 'ready', 'running') limit 20)
      union all
      (select id, state from (select id, state from sereno.history order by id desc limit %(window)s) as past
       where state not in ('succeeded', 'dead', 'cancelled') limit 20)) as odd
order by id limit 20;

-- name: unique_live_keys
-- At most one live job has a given task, tenant and unique key.
select min(id), 'the key ' || unique_key || ' of task ' || task || ' has ' || count(*) || ' live jobs'
from sereno.jobs
where unique_key is not null
group by task, unique_key, tenant having count(*) > 1
order by min(id) limit 20;

-- name: unique_stored_keys
-- A key that outlives its job points to one job.
select min(job_id), 'the key ' || unique_key || ' of task ' || task || ' points to ' || count(*) || ' jobs'
from sereno.unique_keys
group by task, unique_key, tenant having count(*) > 1
order by min(job_id) limit 20;

-- name: times_in_order
-- Created, then started, then finished. One second of tolerance covers clocks that were adjusted in between.
select id, 'it finished before it was ' || case when finished_at < created_at - interval '1 second' then 'created'
                                                else 'started' end
from (select id, created_at, started_at, finished_at from sereno.history order by id desc limit %(window)s) as past
where finished_at < created_at - interval '1 second' or finished_at < started_at - interval '1 second'
order by id limit 20;

-- name: crash_limit
-- A job that kills its process is stopped at the crash limit.
select id, 'it has crashed ' || crashes || ' times, and is ' || state
from ((select id, crashes, state from sereno.jobs where crashes > %(crash_limit)s limit 20)
      union all
      (select id, crashes, state
       from (select id, crashes, state from sereno.history order by id desc limit %(window)s) as past
       where crashes > %(crash_limit)s limit 20)) as crashed
order by id limit 20;

-- name: dead_with_reason
-- A dead job has a reason.
select id, 'it is dead without a reason'
from (select id, reason, error_type from sereno.history_dead order by id desc limit %(window)s) as past
where coalesce(reason, '') = ''
order by id limit 20;

-- name: retry_never_early
-- An attempt starts after the previous one has ended. 100 ms of tolerance cover overlapping transactions.
with tries as materialized (
    (select job_id, number, started_at, finished_at from sereno.attempts order by job_id desc limit %(window)s)
    union all
    (select id, attempt, started_at, finished_at from sereno.history
     where attempt > 1 and started_at is not null and session_id is not null
     order by id desc limit %(window)s)
    union all
    (select id, attempt, claimed_at, null from sereno.jobs where state = 'running' and attempt > 1)
)
select later.job_id, 'attempt ' || later.number || ' started before attempt ' || earlier.number || ' had ended'
from tries earlier join tries later on later.job_id = earlier.job_id and later.number = earlier.number + 1
where later.started_at < earlier.finished_at - interval '100 milliseconds'
order by later.job_id limit 20;

-- name: side_rows
-- Steps and progress are deleted with the job, in the same transaction.
select job_id, what || ' of a job that is not live'
from (
    (select job_id, 'step ' || name as what from sereno.steps
     where not exists (select from sereno.jobs where jobs.id = steps.job_id)
     limit 20)
    union all
    (select job_id, 'progress' from sereno.progress
     where not exists (select from sereno.jobs where jobs.id = progress.job_id)
     limit 20)
) as left_behind
order by job_id limit 20;

-- name: one_job_per_fire
-- One schedule and instant has at most one job, live or finished.
select min(id), 'schedule ' || schedule_id || ' created ' || count(distinct id) || ' jobs for ' || planned_at
from ((select id, schedule_id, planned_at from sereno.jobs order by id desc limit %(window)s)
      union all
      (select id, schedule_id, planned_at from sereno.history order by id desc limit %(window)s)) as made
where schedule_id is not null and planned_at is not null
group by schedule_id, planned_at having count(distinct id) > 1
order by min(id) limit 20;

-- name: fires_accounted
-- A fire has a job or a reason. The job itself may have been deleted since.
select schedule_id, 'its fire of ' || planned_at || ' has neither a job nor a reason'
from (select schedule_id, planned_at, job_id, reason from sereno.fires order by planned_at desc limit %(window)s) as newest
where job_id is null and reason is null
order by schedule_id limit 20;

-- name: jobs_have_fires
-- A job of a schedule has its fire. Fires are retained for at least a day; older ones may be deleted.
select id, 'schedule ' || schedule_id || ' has no fire of ' || planned_at
from ((select id, schedule_id, planned_at, created_at from sereno.jobs order by id desc limit %(window)s)
      union all
      (select id, schedule_id, planned_at, created_at from sereno.history order by id desc limit %(window)s)) as made
where schedule_id is not null and least(planned_at, created_at) > sereno.now() - interval '1 day'
  and not exists (select from sereno.fires
                  where fires.planned_at = made.planned_at and fires.schedule_id = made.schedule_id)
order by id limit 20;

-- name: schedules_go_on
-- An enabled schedule without a next run, or with a fire that waits, has an active run or an end that was not read yet.
select id, 'schedule ' || key || case when held_at is null then ' has no next run' else ' holds a fire' end
           || ', and no run is active'
from sereno.schedules
where id in ((select id from sereno.schedules where state = 'enabled' and next_run_at is null
              order by id desc limit %(window)s)
             union all
             (select id from sereno.schedules where held_at is not null order by id desc limit %(window)s))
  and state = 'enabled' and not held_free
  and not exists (select from sereno.jobs where schedule_id = schedules.id)
  and not exists (select from sereno.schedule_ends where schedule_id = schedules.id)
order by id limit 20;

-- name: stopped_schedules
-- A paused, disabled, parked or finished schedule has no next run.
select id, 'schedule ' || key || ' is ' || state || ' and due at ' || next_run_at
from (select id, key, state, next_run_at from sereno.schedules
      where next_run_at is not null order by next_run_at limit %(window)s) as soonest
where state <> 'enabled'
order by id limit 20;

-- name: schedules_on_time
-- A due schedule is fired, unless a transaction is changing it: then the transaction that locked the row is still open.
-- A new leader gets a minute.
select overdue.id, 'schedule ' || key || ' was due at ' || next_run_at || ', and ' || holder || ' leads'
from (select id, key, next_run_at, xmax as locked_by from sereno.schedules
      where next_run_at < sereno.now() - interval '1 minute' order by next_run_at limit %(window)s) as overdue,
     (select holder from sereno.leases
      where name = 'scheduler' and until > sereno.now() and since < sereno.now() - interval '1 minute') as leader
where not exists (select from pg_locks where transactionid = locked_by)
order by overdue.id limit 20;

-- name: limits_respected
-- No limit has more running jobs than slots, counted from the jobs themselves. Jobs that one worker claimed to run one
-- after another share their slots. After a limit was lowered, jobs that hold a slot keep it. One second of tolerance
-- covers claims that overlapped with the change.
with running as materialized (
    select id, queue, keys, claimed_at, session_id from sereno.jobs
    where state = 'running' order by id desc limit %(window)s
),
passed as materialized (
    select running.id, session_id, claimed_at, limits.name, slots, changed_at, item ->> 1 as key,
           sereno.limiter_of(limits.name, item ->> 1) as limiter
    from running cross join lateral jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item
    join sereno.limits on limits.name = item ->> 0 and kind = 'slots'
    union
    select running.id, session_id, claimed_at, name, slots, changed_at, '', sereno.limiter_of(name, '')
    from running join sereno.limits on limits.queue = running.queue and kind = 'slots'
),
numbers as (
    select limiters.id as limiter, number,
           count(*) filter (where number < 0) over (partition by limiters.id order by place) as slot_group
    from sereno.limiters cross join lateral unnest(held) with ordinality as list(number, place)
    where limiters.id = any(array(select limiter from passed))
),
listed as (
    select limiter, number, slot_group, max(-number) filter (where number < 0) over (partition by limiter, slot_group) as shared
    from numbers
),
taken as (
    select name, key, slots, changed_at, min(passed.id) as id, min(claimed_at) as claimed_at, count(*) as jobs,
           least(max(shared), count(*)) as taken
    from passed left join listed on listed.limiter = passed.limiter and listed.number = passed.id
    group by name, key, slots, changed_at, slot_group, session_id
)
select min(id), 'the limit ' || name || ' has ' || slots || ' slots' || case when key = '' then '' else ' for the key ' || key end
                || ', and ' || sum(jobs) || ' jobs are running'
                || case when sum(jobs) = sum(taken) then '' else ', in ' || sum(taken) || ' slots' end
from taken
group by name, key, slots, changed_at
having sum(taken) > slots and min(claimed_at) > changed_at + interval '1 second'
order by min(id) limit 20;

-- name: slots_counted
-- A running job is in the list of every limiter of which it holds a slot. A limit that was created or changed after the
-- claim did not count it.
with running as materialized (
    select id, queue, keys, claimed_at from sereno.jobs where state = 'running' order by id desc limit %(window)s
),
passed as (
    select running.id, claimed_at, item ->> 0 as name, sereno.limiter_of(item ->> 0, item ->> 1) as limiter
    from running, jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item
    union
    select running.id, claimed_at, name, sereno.limiter_of(name, '')
    from running join sereno.limits on limits.queue = running.queue
),
counted as (
    select passed.id, 'the limit ' || passed.name as what, limiter
    from passed join sereno.limits on limits.name = passed.name and kind = 'slots'
    where claimed_at > changed_at + interval '1 second'
    union all
    select id, 'its order ' || (keys ->> 'order'), sereno.order_of(queue, keys) from running where keys ? 'order'
)
select counted.id, 'it is running, and ' || what || ' does not count it'
from counted left join sereno.limiters on limiters.id = limiter
where limiters.id is null or counted.id <> all(held)
order by counted.id limit 20;

-- name: slots_not_leaked
-- A running job that is counted by a limiter has that limit; otherwise it takes a slot for no reason.
with running as materialized (
    select id, queue, keys, claimed_at from sereno.jobs where state = 'running' order by id desc limit %(window)s
),
inside as materialized (
    select limiter.id, limit_name, key, job_id
    from (select id, limit_name, key, held from sereno.limiters where held <> '{}' limit %(window)s) as limiter
    cross join lateral unnest(held) as job_id
)
select distinct running.id, 'it takes a slot of ' || coalesce('the limit ' || limit_name, 'the order') || ', key '
                            || inside.key || ', and does not have that limit'
from running join inside on inside.job_id = running.id
left join sereno.limits on limits.name = limit_name
where case when limit_name is null then sereno.order_of(running.queue, running.keys) is distinct from inside.id
           else kind = 'slots' and claimed_at > changed_at + interval '1 second'
                and limits.queue is distinct from running.queue
                and not exists (select from jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item
                                where sereno.limiter_of(item ->> 0, item ->> 1) = inside.id) end
order by running.id limit 20;

-- name: lanes_awake
-- The lane of a ready job with limits has work or a wake-up; otherwise no worker would ever start the job. Scans from lane
-- to lane along the index.
with recursive line as (
    (select queue, lane from sereno.jobs where state = 'ready' and lane is not null order by queue, lane limit 1)
    union all
    select next.queue, next.lane
    from line cross join lateral (
        select jobs.queue, jobs.lane from sereno.jobs
        where state = 'ready' and jobs.lane is not null and (jobs.queue, jobs.lane) > (line.queue, line.lane)
        order by jobs.queue, jobs.lane limit 1
    ) as next
),
seen as materialized (select queue, lane from line limit %(window)s),
lost as materialized (
    select queue, lane from seen
    where not exists (select from sereno.lanes where lanes.id = seen.lane and has_work)
      and not exists (select from sereno.lane_wakes where lane_wakes.lane = seen.lane)
)
select job.id, 'it is ready, and its lane has neither work nor a wake-up'
from lost cross join lateral (
    select id from sereno.jobs
    where state = 'ready' and jobs.lane is not null and jobs.queue = lost.queue and jobs.lane = lost.lane
      and run_at < sereno.now() - interval '5 seconds'
    limit 1
) as job
order by job.id limit 20;

-- name: waits_are_checked
-- A lane that waits for a limiter has a time for its next check. A lane that waits for its order gets a wake-up when it is
-- its turn, so only the head of the order is checked.
with waiting as materialized (
    select id, queue, waits_for, order_id, keys from sereno.lanes
    where has_work and waits_for is not null limit %(window)s
)
select coalesce(job.id, waiting.id), 'it waits for ' || coalesce('the limit ' || limit_name, 'its order')
                                     || ', and no check is planned'
from waiting left join sereno.limiters on limiters.id = waits_for
left join lateral (
    select id from sereno.jobs
    where state = 'ready' and jobs.lane is not null and jobs.queue = waiting.queue and jobs.lane = waiting.id
    order by priority, ready_seq limit 1
) as job on true
where check_at is null
  and not exists (select from sereno.lane_wakes where lane_wakes.lane = waiting.id)
  and (waits_for is distinct from waiting.order_id
       or (exists (select from (select state, lane from sereno.jobs where jobs.order_id = waiting.order_id
                                order by id limit 1) as head
                   where head.state = 'ready' and head.lane = waiting.id)
           and not exists (select from sereno.history_dead
                           where history_dead.keys ? 'blocks' and history_dead.queue = waiting.queue
                             and history_dead.keys ->> 'order' = waiting.keys ->> 'order')))
order by 1 limit 20;

-- name: order_respected
-- One job of an order runs at a time, and no live job of that order precedes it. A job that became live later under a
-- lower id is left out: a dead job that was retried, or one whose transaction was open for long.
with running as materialized (
    select id, order_id, claimed_at, xmin as written_by from sereno.jobs
    where state = 'running' and order_id is not null order by id desc limit %(window)s
),
earlier as (
    select running.id, head.id as head_id, head.state
    from running cross join lateral (
        select id, state, attempt, created_at, xmin as written_by from sereno.jobs
        where jobs.order_id = running.order_id order by id limit 1
    ) as head
    where head.id < running.id and head.state <> 'running'
      and case when head.attempt = 0
               then head.created_at < running.claimed_at - make_interval(secs => %(grace)s)
                    and age(head.written_by) > age(running.written_by)
               else exists (select from sereno.attempts
                            where job_id = head.id and finished_at < running.claimed_at - interval '1 second')
                    and not exists (select from sereno.attempts
                                    where job_id = head.id and outcome in ('succeeded', 'dead', 'cancelled')) end
    union all
    select later.id, first.id, 'running'
    from running later join running first on first.order_id = later.order_id and first.id < later.id
)
select id, 'it is running, and job ' || min(head_id) || ', which is before it in its order, is ' || min(state)
from earlier
group by id
order by id limit 20;
