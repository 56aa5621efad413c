-- One life of one worker process: its lease, its death, and what comes back when it dies.

-- name: register
-- A fresh id per start. Another session's published floors spare a restarted worker the scan from zero.
with clock as materialized (select sereno.now() as now),
made as (
    insert into sereno.sessions (host, pid, version, queues, tasks, lease_until, started_at, seen_at)
    select %(host)s, %(pid)s, %(version)s, %(queues)s::text::jsonb, %(tasks)s,
           clock.now + make_interval(secs => %(lease)s), clock.now, clock.now
    from clock
    returning id
)
select made.id,
       coalesce((select json_agg(floors) from sereno.sessions
                 where seen_at > clock.now - interval '1 minute'), '[]')::text
from made, clock;

-- name: keep
-- The heartbeat. Death is one-way: a session that was declared dead is not in the answer.
update sereno.sessions
set lease_until = sereno.now() + make_interval(secs => %(lease)s), seen_at = sereno.now()
where id = any(%(ids)s) and state = 'alive'
returning id;

-- name: report
-- What a session knows of itself, and what it should know: is it still alive, which of its jobs are to be cancelled.
with me as (
    update sereno.sessions set floors = %(floors)s::text::jsonb, waiting = %(waiting)s where id = %(session)s returning state
)
select coalesce((select state from me), 'dead'),
       coalesce((select json_agg(id) from sereno.jobs
                 where id = any(%(held)s) and session_id = %(session)s and cancel_requested), '[]')::text;

-- name: announce
-- The suspects that run alone in a session, before the newest of them begins: should all of the session's processes die at once,
-- nothing else is left to say whose fault it may have been.
update sereno.sessions set suspects = %(suspects)s::text::jsonb where id = %(session)s and state = 'alive' returning id;

-- name: set_idle
-- Idle: enqueues should wake it.
update sereno.sessions set idle = %(idle)s where id = %(session)s and idle <> %(idle)s returning id;

-- name: finish
-- A session ends: closed by itself, or dead because its supervisor saw it die.
update sereno.sessions
set state = %(state)s, idle = false, ended_at = sereno.now()
where id = any(%(ids)s) and state = 'alive'
returning id;

-- name: look
-- One cheap look at what time has brought: seconds until the next future job, leases that ran out, jobs of the dead.
with clock as materialized (select sereno.now() as now)
select (select extract(epoch from run_at - clock.now)::double precision from sereno.jobs
        where state = 'scheduled' and run_at >= clock.now - make_interval(secs => %(look_back)s)
        order by run_at limit 1),
       exists (select from sereno.sessions where state = 'alive' and lease_until < clock.now),
       exists (select from sereno.jobs
               where state = 'running'
                 and session_id = any(array(select id from sereno.sessions
                                            where state <> 'alive' and ended_at > clock.now - interval '1 hour')))
from clock;

-- name: expire
-- Leases that ran out. SKIP LOCKED: a session whose heartbeat is being written right now is not dead.
update sereno.sessions
set state = 'dead', idle = false, ended_at = sereno.now()
where id = any(array(select id from sereno.sessions
                     where state = 'alive' and lease_until < sereno.now()
                     order by id for update skip locked))
returning id, host, pid;

-- name: rescue
-- Jobs whose session is not alive go back to ready. By anti-join on every pass, because a claim that was in flight
-- while its session was declared dead commits afterwards. What the death means for a job: see part_in_death.
-- Found by the index of running rows, then locked by the primary key: asked for in one go and in order, the planner
-- walks the whole table. The lock looks at the job alone and at ids of sessions that are dead for good: if another
-- rescue was faster and a live session has the job now, it must not pass for an orphan. Slots that come free this way are
-- handed over: whoever waits for them need not wait for the date on the limiter.
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
        releases = releases + (part in ('left', 'waited'))::integer
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
told as (
    select pg_notify('sereno.ready', queue)
    from (select distinct queue from moved) as filled
    where exists (select from sereno.sessions where idle and queues ? queue)
)
select coalesce(json_agg(id), '[]')::text, (select count(*) from told),
       sereno.hand_over(array(select limiter from orphan cross join lateral sereno.limiters_of(orphan.queue, orphan.keys) as limiter))
from moved;

-- name: unknown_tasks
-- Ready jobs that no living worker can run, by task. Nobody claims them, so they gather at the front of their queues:
-- a bounded look at each front is enough.
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
-- Maintenance that one worker of many does: the names of those duties that are due, for the worker that asks first. A
-- duty that is not due is only read.
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
-- It was dear: the next one is as much later.
update sereno.duties set done_at = sereno.now() + make_interval(secs => %(seconds)s) where name = %(name)s;

-- name: forget_ended
-- A page of sessions that ended long ago; history keeps their numbers.
delete from sereno.sessions
where id = any(array(select id from sereno.sessions
                     where state <> 'alive' and ended_at < sereno.now() - interval '7 days'
                     limit %(most)s for update skip locked))
returning id;

-- name: forget_keys
-- A page of unique keys whose period is over.
delete from sereno.unique_keys
where ctid = any(array(select ctid from sereno.unique_keys
                       where until < sereno.now() and until < 'infinity'
                       order by until limit %(most)s for update skip locked))
returning 1;
