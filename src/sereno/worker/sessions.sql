-- Worker sessions: their leases, their end, and the jobs that are rescued when a session dies.

-- name: register
-- Creates a session. With the floors that other sessions have published, a restarted worker need not scan from zero.
with clock as materialized (select sereno.now() as now),
made as (
    insert into sereno.sessions (host, pid, version, release, queues, tasks, capabilities, lease_until, started_at, seen_at)
    select %(host)s, %(pid)s, %(version)s, %(release)s, %(queues)s::text::jsonb, %(tasks)s, %(capabilities)s::text::jsonb,
           clock.now + make_interval(secs => %(lease)s), clock.now, clock.now
    from clock
    returning id
)
select made.id,
       coalesce((select json_agg(floors) from sereno.sessions
                 where seen_at > clock.now - interval '1 minute'), '[]')::text
from made, clock;

-- name: keep
-- The heartbeat: renews leases. A session that was declared dead stays dead and is not returned.
update sereno.sessions
set lease_until = sereno.now() + make_interval(secs => %(lease)s), seen_at = sereno.now()
where id = any(%(ids)s) and state = 'alive'
returning id;

-- name: report
-- Publishes the floors and waiting jobs of a session; returns its state, and which of its jobs are to be cancelled.
with me as (
    update sereno.sessions set floors = %(floors)s::text::jsonb, waiting = %(waiting)s where id = %(session)s returning state
)
select coalesce((select state from me), 'dead'),
       coalesce((select json_agg(id) from sereno.jobs
                 where id = any(%(held)s) and session_id = %(session)s and cancel_requested), '[]')::text;

-- name: announce
-- The suspects that run alone in a session, stored before the newest of them starts: if all processes of the session die at once,
-- this is the only record of which jobs may have caused it.
update sereno.sessions set suspects = %(suspects)s::text::jsonb where id = %(session)s and state = 'alive' returning id;

-- name: set_idle
-- Marks a session idle or busy. An enqueue sends a NOTIFY only if a session of its queue is idle.
update sereno.sessions set idle = %(idle)s where id = %(session)s and idle <> %(idle)s returning id;

-- name: is_own
-- Whether the session is that of this process. A promoted standby without the last commits may have given its id to another worker.
select exists (select from sereno.sessions where id = %(session)s and host = %(host)s and pid = %(pid)s);

-- name: finish
-- Ends a session: closed by its worker, or dead because its supervisor saw the process die, whose id is compared then.
update sereno.sessions
set state = %(state)s, idle = false, ended_at = sereno.now()
where id = any(%(ids)s) and state = 'alive' and (%(pid)s::integer is null or pid = %(pid)s)
returning id;

-- name: due_work
-- One cheap query for due work: seconds until the next scheduled job, expired leases, jobs of dead sessions, signals and
-- waits for signals that are not checked, if asked for, dependencies to check, groups to cancel. The jobs of
-- other workers' queues count `elsewhere` seconds later: those workers make them ready, and otherwise this one does. An own
-- job that follows more jobs than are read is due after the last of them.
with clock as materialized (select sereno.now() as now),
next as materialized (
    select run_at, %(queues)s::text[] is null or queue = any(%(queues)s) as is_own from sereno.jobs
    where state = 'scheduled' and run_at >= (select now from clock) - make_interval(secs => %(look_back)s)
    order by run_at limit 100
)
select (select extract(epoch from least(min(run_at) filter (where is_own), min(run_at) + make_interval(secs => %(elsewhere)s),
                                        case when count(*) = 100 then max(run_at) end) - clock.now)
        from next)::double precision,
       exists (select from sereno.sessions where state = 'alive' and lease_until < clock.now),
       exists (select from sereno.jobs
               where state = 'running'
                 and session_id = any(array(select id from sereno.sessions
                                            where state <> 'alive' and ended_at > clock.now - interval '1 hour'))),
       %(signals)s and (exists (select from sereno.signals where not is_checked)
                        or exists (select from sereno.signal_waits where not is_checked)),
       exists (select from sereno.dependencies where to_check),
       exists (select from sereno.groups where cancelling)
from clock;

-- name: expire
-- Declares sessions dead whose lease has expired. SKIP LOCKED: a session whose heartbeat is being written is not dead.
update sereno.sessions
set state = 'dead', idle = false, ended_at = sereno.now()
where id = any(array(select id from sereno.sessions
                     where state = 'alive' and lease_until < sereno.now()
                     order by id for update skip locked))
returning id, host, pid;

-- name: rescue
-- Makes jobs ready again whose session is not alive. An anti-join on every pass, because a claim that was in flight
-- while its session was declared dead commits afterwards. How the death is charged to a job: see part_in_death.
-- The rows are found by the index of running jobs, then locked by the primary key: in one ordered query the planner
-- would scan the whole table. The locking step compares the job with ids of sessions that are known to be dead: if another
-- rescue was faster and a live session has the job now, the job is no orphan. Freed limiter slots are handed over, so that
-- waiting lanes need not wait for the due time of the limiter.
with suspect as materialized (
    select id, session_id from sereno.jobs
    where state = 'running'
      and (%(everywhere)s or session_id = any(array(
          select id from sereno.sessions where state <> 'alive' and ended_at > sereno.now() - interval '1 hour')))
      and session_id <> all(array(select id from sereno.sessions where state = 'alive'))
    limit 1000
),
orphan as materialized (
    select id, attempt, session_id, claimed_at, queue, keys, crashes
    from sereno.jobs
    where id = any(array(select id from suspect))
      and session_id = any(array(select session_id from suspect))
      and state = 'running'
    order by id
    for update skip locked
),
judged as materialized (
    select *, sereno.part_in_death(id, attempt, crashes, session_id) as part from orphan
),
moved as (
    update sereno.jobs
    set state = 'ready', ready_seq = nextval('sereno.ready_seq'), session_id = null,
        crashes = case part when 'alone' then jobs.crashes + 1 when 'began' then greatest(jobs.crashes, 1) else jobs.crashes end,
        releases = releases + (part in ('left', 'waited', 'advanced'))::integer
    from judged
    where jobs.id = any(array(select id from suspect)) and jobs.id = judged.id
    returning jobs.id, jobs.queue
),
tried as (
    insert into sereno.attempts (job_id, number, session_id, started_at, finished_at, outcome, reason)
    select id, attempt, session_id, claimed_at, sereno.now(),
           case when part in ('alone', 'began') then 'crash' else 'release' end, sereno.words_for_death(part, session_id)
    from judged
),
notified as (
    select pg_notify('sereno.ready', queue)
    from (select distinct queue from moved) as filled
    where exists (select from sereno.sessions where idle and queues ? queue)
)
select coalesce(json_agg(id), '[]')::text, (select count(*) from notified),
       sereno.hand_over(array(select limiter from orphan cross join lateral sereno.limiters_of(orphan.queue, orphan.keys) as limiter))
from moved;

-- name: unknown_tasks
-- Ready jobs that no live worker can run, by task. They are never claimed, so they gather at the front of their queues,
-- and a bounded scan of each front is enough.
select front.queue, front.task, count(*)
from (select distinct jsonb_object_keys(queues) as queue from sereno.sessions where state = 'alive') as served
cross join lateral (
    (select queue, task from sereno.jobs
     where state = 'ready' and lane is null and jobs.queue = served.queue
     order by queue, priority, ready_seq
     limit 1000)
    union all
    (select queue, task from sereno.jobs
     where state = 'ready' and lane is not null and jobs.queue = served.queue limit 1000)
) as front
where front.task <> all(array(select unnest(tasks) from sereno.sessions where state = 'alive'))
group by front.queue, front.task
order by front.queue, front.task;

-- name: take_duties
-- Maintenance that one worker of many does: returns the names of the duties that are due, to the first worker that takes
-- them. A duty that is not due is only read.
with wanted as materialized (
    select * from unnest(%(names)s::text[], %(every)s::float8[]) as duty (name, every)
)
insert into sereno.duties as duty (name, done_at)
select name, sereno.now() from wanted
where not exists (select from sereno.duties as known
                  where known.name = wanted.name and known.done_at > sereno.now() - make_interval(secs => wanted.every))
order by name
on conflict (name) do update set done_at = excluded.done_at
    where duty.done_at <= sereno.now() - make_interval(secs => (select every from wanted where wanted.name = excluded.name))
returning name;

-- name: put_off_duty
-- Postpones a duty that was expensive.
update sereno.duties set done_at = sereno.now() + make_interval(secs => %(seconds)s) where name = %(name)s;

-- name: forget_ended
-- Deletes a page of sessions that ended long ago; the history retains their ids.
delete from sereno.sessions
where id = any(array(select id from sereno.sessions
                     where state <> 'alive' and ended_at < sereno.now() - interval '7 days'
                     limit %(most)s for update skip locked))
returning id;

-- name: forget_keys
-- Deletes a page of unique keys whose period is over.
delete from sereno.unique_keys
where ctid = any(array(select ctid from sereno.unique_keys
                       where until < sereno.now() and until < 'infinity'
                       order by until limit %(most)s for update skip locked))
returning 1;
