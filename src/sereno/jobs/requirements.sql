-- Requirements of waiting jobs that no worker meets (see sereno.meets).

-- name: unmet
-- What ready jobs require and no live worker of their queue has; and what those workers have.
select waiting.queue, waiting.task, waiting.requires,
       array(select distinct coalesce((capabilities -> 'versions' ->> waiting.task)::integer, 1) from sereno.sessions
             where state = 'alive' and lease_until > sereno.now() and queues ? waiting.queue and waiting.task = any(tasks)
             order by 1),
       array(select distinct key from sereno.sessions, jsonb_array_elements_text(capabilities -> 'keys') as key
             where state = 'alive' and lease_until > sereno.now() and queues ? waiting.queue and waiting.task = any(tasks)
             order by 1)
from sereno.ready_requirements() as waiting
where not exists (select from sereno.sessions
                  where state = 'alive' and lease_until > sereno.now() and queues ? waiting.queue
                    and waiting.task = any(tasks) and sereno.meets(waiting.requires, waiting.task, capabilities))
limit 20;

-- name: unmet_by_job
-- The same for one job that waits.
select waiting.queue, waiting.task, waiting.requires,
       array(select distinct coalesce((capabilities -> 'versions' ->> waiting.task)::integer, 1) from sereno.sessions
             where state = 'alive' and lease_until > sereno.now() and queues ? waiting.queue and waiting.task = any(tasks)
             order by 1),
       array(select distinct key from sereno.sessions, jsonb_array_elements_text(capabilities -> 'keys') as key
             where state = 'alive' and lease_until > sereno.now() and queues ? waiting.queue and waiting.task = any(tasks)
             order by 1)
from sereno.jobs as waiting
where waiting.id = %(id)s and waiting.state <> 'running' and waiting.requires is not null
  and not exists (select from sereno.sessions
                  where state = 'alive' and lease_until > sereno.now() and queues ? waiting.queue
                    and waiting.task = any(tasks) and sereno.meets(waiting.requires, waiting.task, capabilities));

-- name: tasks_without_key
-- Tasks with encrypted arguments in live workers that have no key: they can neither enqueue nor run such jobs.
select distinct task
from sereno.sessions, jsonb_array_elements_text(capabilities -> 'encrypting') as task
where state = 'alive' and lease_until > sereno.now() and jsonb_array_length(capabilities -> 'keys') = 0
order by task limit 20;

-- name: bury_unmet
-- Dead letters of jobs that have been due for the grace and that no worker could run meanwhile. A worker of their queue and
-- task must have lived as long: if all workers were down, the first one to start does not bury what the next one can run.
-- A session that ended within the grace still counts as able, because its restart may be under way.
-- The third column: its group, or 0 if other jobs wait for it.
-- SKIP LOCKED: a job that another transaction changes is left to the next page. Locked in the order of the ids.
with clock as materialized (select sereno.now() as now, make_interval(secs => %(grace)s) as grace),
unmet as materialized (
    select waiting.queue, waiting.task, waiting.requires
    from clock, sereno.ready_requirements() as waiting
    where exists (select from sereno.sessions
                  where state = 'alive' and lease_until > clock.now and started_at <= clock.now - clock.grace
                    and queues ? waiting.queue and waiting.task = any(tasks))
      and not exists (select from sereno.sessions
                      where (state = 'alive' or ended_at > clock.now - clock.grace)
                        and queues ? waiting.queue and waiting.task = any(tasks)
                        and sereno.meets(waiting.requires, waiting.task, capabilities))
),
chosen as materialized (
    select job.id
    from unmet cross join lateral (
        select jobs.id from sereno.jobs, clock
        where state = 'ready' and jobs.requires is not null
          and (jobs.queue, jobs.task, jobs.requires) = (unmet.queue, unmet.task, unmet.requires)
          and run_at <= clock.now - clock.grace
        limit %(most)s
    ) as job
    limit %(most)s
),
locked as materialized (
    select id from sereno.jobs where id = any(array(select id from chosen)) and state = 'ready'
    order by id
    for update skip locked
),
gone as (delete from sereno.jobs where id = any(array(select id from locked)) returning *),
recorded as (
    insert into sereno.history (
        id, finished_at, run_at, created_at, expires_at, attempt, failures, crashes, snoozes, releases, priority, state,
        queue, task, tenant, unique_key, trace, tags, args, schedule_id, planned_at, stands_for, keys, requires, group_id,
        links, reason)
    select id, clock.now, run_at, created_at, expires_at, attempt, failures, crashes, snoozes, releases, priority,
           'dead', queue, task, tenant, unique_key, trace, tags, args, schedule_id, planned_at, stands_for, keys, requires,
           group_id, links, 'no worker could run it for ' || %(grace)s::integer || ' s: it requires ' || requires::text
    from gone, clock
    returning id, reason, schedule_id
),
ended as (
    insert into sereno.schedule_ends (schedule_id, job_id, state, finished_at, error)
    select schedule_id, id, 'dead', clock.now, reason from recorded, clock where schedule_id is not null
),
forgotten as (delete from sereno.steps where job_id = any(array(select id from gone))),
cleared as (delete from sereno.progress where job_id = any(array(select id from gone)))
select recorded.id, recorded.reason, case when has_successors or group_id is not null then coalesce(group_id, 0) end,
       (select sereno.notify_finished(array(select id from gone)) where exists (select from sereno.waiters))
from recorded join gone using (id) order by recorded.id;
