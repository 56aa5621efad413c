-- Current activity: attempts by worker, and jobs that arrived and ended by queue. Every query is bounded.

-- name: work
-- Attempts of each worker that run now or ended lately. Running jobs have their own index; ended attempts are
-- searched among the newest finished jobs and the newest attempts that were followed by another.
with clock as materialized (select sereno.now() as now),
running as materialized (
    select session_id, id, attempt, task, 'running' as outcome, claimed_at as started_at, null::timestamptz as finished_at
    from sereno.jobs where state = 'running' limit %(most)s
),
done as materialized (
    select session_id, newest.id, attempt, task, state, started_at, finished_at
    from (select session_id, id, attempt, task, state, started_at, finished_at
          from sereno.history order by id desc limit %(window)s) as newest, clock
    where finished_at > clock.now - make_interval(secs => %(seconds)s)
    order by finished_at desc limit %(most)s
),
tried as materialized (
    select session_id, job_id, number, outcome, started_at, finished_at
    from (select session_id, job_id, number, outcome, started_at, finished_at
          from sereno.attempts order by job_id desc limit %(window)s) as newest, clock
    where finished_at > clock.now - make_interval(secs => %(seconds)s)
    order by finished_at desc limit %(most)s
)
select session_id, id, attempt, task, outcome, started_at, finished_at
from (select * from running
      union all
      select * from done
      union all
      select session_id, job_id, number,
             coalesce((select task from sereno.jobs where jobs.id = job_id),
                      (select task from sereno.history where history.id = job_id limit 1), ''),
             outcome, started_at, finished_at
      from tried) as every
where session_id is not null and started_at is not null
order by finished_at desc nulls first, started_at desc
limit %(most)s;

-- name: arrived
-- Jobs that each queue received lately, among the newest live and finished ones; and whether there may be more
-- than were read.
with clock as materialized (select sereno.now() - make_interval(secs => %(seconds)s) as since),
newest as materialized (
    (select 'live' as side, queue, created_at from sereno.jobs order by id desc limit %(bound)s)
    union all
    (select 'ended', queue, created_at from sereno.history order by id desc limit %(bound)s)
),
cut as materialized (
    select bool_or(rows >= %(bound)s and oldest > clock.since) as more
    from (select count(*) as rows, min(created_at) as oldest from newest group by side) as sides, clock
)
select newest.queue, count(*)::integer, (select more from cut)
from newest, clock
where newest.created_at > clock.since
group by newest.queue;

-- name: ended
-- Attempts that ended in each minute of these queues, oldest first.
select queue, minute, sum(succeeded)::integer, sum(retried)::integer, sum(dead)::integer, sum(cancelled)::integer
from sereno.minutes
where minute >= sereno.now() - make_interval(secs => %(seconds)s) and queue = any(%(queues)s)
group by queue, minute
order by queue, minute;
