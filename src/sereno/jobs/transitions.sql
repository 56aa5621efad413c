-- State transitions of live jobs: enqueue, promote, claim, release, cancel, delete, requeue.

-- name: silence
-- No NOTIFY for the rest of the transaction: statements in a caller's transaction check this setting.
select set_config('sereno.notify', 'off', true);

-- name: enqueue
-- Plain jobs in bulk: one JSON value in, the ids in the same order out. No unique keys here, so no conflict clause,
-- which would cost time for every row. Idle workers are notified once per queue; busy ones poll by themselves.
-- If the first job of a queue is due within seconds, promoters are told when.
with clock as materialized (select sereno.now() as now),
made as (
    insert into sereno.jobs (task, args, queue, priority, run_at, tenant, expires_at, tags, trace, group_id, created_at,
                             state, ready_seq)
    select task, args, queue, priority, due, tenant, expires_at, tags, trace, group_id, clock.now,
           case when due <= clock.now then 'ready' else 'scheduled' end,
           case when due <= clock.now then nextval('sereno.ready_seq') end
    from clock,
         jsonb_to_recordset(%(jobs)s::text::jsonb) as wanted(
             task text, args jsonb, queue text, priority smallint, run_at timestamptz, delay double precision,
             tenant text, expires_at timestamptz, tags text[], trace text, group_id bigint),
         lateral (select coalesce(wanted.run_at, clock.now + make_interval(secs => coalesce(wanted.delay, 0)))) as d(due)
    returning id, queue, state, run_at
),
notified as (
    select pg_notify(case when due_in <= 0 then 'sereno.ready' else 'sereno.due' end,
                     case when due_in <= 0 then queue else round(due_in, 3) || ' ' || queue end)
    from (select queue, extract(epoch from min(run_at) - min(clock.now)) as due_in
          from made, clock where run_at <= clock.now + interval '10 seconds' group by queue, state) as filled
    where coalesce(current_setting('sereno.notify', true), '') <> 'off'
      and exists (select from sereno.sessions where idle and queues ? filled.queue)
)
select coalesce(json_agg(id), '[]')::text, (select count(*) from notified) from made;

-- name: enqueue_limited
-- Like `enqueue`, if some of the jobs have limits, or require something of their worker: those are stored with their
-- keys and the id of their lane, or with the requirement.
with clock as materialized (select sereno.now() as now),
made as (
    insert into sereno.jobs (task, args, queue, priority, run_at, tenant, expires_at, tags, trace, group_id, created_at,
                             keys, requires, lane, order_id, state, ready_seq)
    select task, args, queue, priority, due, tenant, expires_at, tags, trace, group_id, clock.now,
           found, requires, case when found is not null then sereno.lane_of(queue, found) end,
           case when found is not null then sereno.order_of(queue, found) end,
           case when due <= clock.now then 'ready' else 'scheduled' end,
           case when due <= clock.now then nextval('sereno.ready_seq') end
    from clock,
         jsonb_to_recordset(%(jobs)s::text::jsonb) as wanted(
             task text, args jsonb, queue text, priority smallint, run_at timestamptz, delay double precision,
             tenant text, expires_at timestamptz, tags text[], trace text, group_id bigint, keys jsonb, by_rules boolean,
             requires jsonb),
         lateral (select coalesce(wanted.run_at, clock.now + make_interval(secs => coalesce(wanted.delay, 0)))) as d(due),
         lateral (select coalesce(wanted.keys, case when by_rules then sereno.keys_for(task, queue, tenant, args) end)) as k(found)
    returning id, queue, state, run_at
),
notified as (
    select pg_notify(case when due_in <= 0 then 'sereno.ready' else 'sereno.due' end,
                     case when due_in <= 0 then queue else round(due_in, 3) || ' ' || queue end)
    from (select queue, extract(epoch from min(run_at) - min(clock.now)) as due_in
          from made, clock where run_at <= clock.now + interval '10 seconds' group by queue, state) as filled
    where coalesce(current_setting('sereno.notify', true), '') <> 'off'
      and exists (select from sereno.sessions where idle and queues ? filled.queue)
)
select coalesce(json_agg(id), '[]')::text, (select count(*) from notified) from made;

-- name: enqueue_alike
-- Many jobs of one task with the same options: the options are sent once, only the arguments are a list.
with clock as materialized (
    select now, coalesce(%(run_at)s::timestamptz, now + make_interval(secs => %(delay)s::double precision)) as due
    from (select sereno.now() as now offset 0) as moment
),
made as (
    insert into sereno.jobs (task, args, queue, priority, run_at, tenant, expires_at, tags, trace, group_id, created_at,
                             state, ready_seq)
    select %(task)s::text, args, %(queue)s::text, %(priority)s::smallint, due, %(tenant)s::text, %(expires_at)s::timestamptz, %(tags)s::text[], %(trace)s::text,
           %(group_id)s::bigint, now,
           case when due <= now then 'ready' else 'scheduled' end,
           case when due <= now then nextval('sereno.ready_seq') end
    from clock, jsonb_array_elements(%(args)s::text::jsonb) as args
    returning id
),
notified as (
    select pg_notify(case when due <= now then 'sereno.ready' else 'sereno.due' end,
                     case when due <= now then %(queue)s::text
                          else round(extract(epoch from due - now), 3) || ' ' || %(queue)s::text end)
    from clock
    where due <= now + interval '10 seconds'
      and coalesce(current_setting('sereno.notify', true), '') <> 'off'
      and exists (select from sereno.sessions where idle and queues ? %(queue)s::text)
)
select json_agg(id)::text, (select count(*) from notified) from made;

-- name: enqueue_one
-- One plain job, due at once: the most common call, with the smallest plan.
insert into sereno.jobs (task, args, queue, priority, run_at, created_at, state, ready_seq)
select %(task)s, %(args)s::text::jsonb, %(queue)s, %(priority)s::smallint, now, now, 'ready', nextval('sereno.ready_seq')
from (select sereno.now() as now offset 0) as clock
returning id, (select pg_notify('sereno.ready', %(queue)s)
               where coalesce(current_setting('sereno.notify', true), '') <> 'off'
                 and exists (select from sereno.sessions where idle and queues ? %(queue)s));

-- name: enqueue_keyed
-- Jobs with a unique key; the unique index decides which is first (see the function).
select sereno.enqueue_keyed(%(jobs)s::text::jsonb)::text;

-- name: promote
-- Make due scheduled jobs ready; return how many. `look_back` bounds the scan: under a pinned snapshot the entries of jobs
-- promoted long ago are still in the index. `until`: only jobs that have been due for longer than this many seconds.
with clock as materialized (select sereno.now() as now),
moved as (
    update sereno.jobs
    set state = 'ready', ready_seq = nextval('sereno.ready_seq')
    where id = any(array(
        select id from sereno.jobs
        where state = 'scheduled' and run_at <= (select now from clock) - make_interval(secs => %(until)s)
          and run_at >= (select now from clock) - make_interval(secs => %(look_back)s)
        order by run_at
        limit 1000
        for update skip locked))
    returning queue
),
notified as (
    select pg_notify('sereno.ready', queue)
    from (select distinct queue from moved) as filled
    where exists (select from sereno.sessions where idle and queues ? queue)
)
select (select count(*) from moved), (select count(*) from notified);

-- name: release_unlisted
-- Release jobs whose claim reply was lost: the session owns them, claimed them a while ago, and does not hold them.
-- Found by the index of running rows, then locked in order by the primary key.
with lost as materialized (
    select id from sereno.jobs
    where state = 'running' and session_id = %(session)s
      and claimed_at <= sereno.now() - make_interval(secs => %(older_than)s)
      and id <> all(%(held)s)
),
locked as materialized (
    select id from sereno.jobs
    where id = any(array(select id from lost)) and state = 'running' and session_id = %(session)s
    order by id
    for update skip locked
),
moved as (
    update sereno.jobs
    set state = 'ready', ready_seq = nextval('sereno.ready_seq'), session_id = null, releases = releases + 1
    where id = any(array(select id from locked))
    returning id
)
select count(*) from moved;

-- name: cancel
-- Waiting jobs become history at once; for running ones a cancel is requested and their worker is notified.
-- The state is read from the locked row: a job that was claimed while this waited for its lock is running now.
with found as materialized (
    select id, state from sereno.jobs where id = any(%(ids)s) order by id for update
),
gone as (
    delete from sereno.jobs where id = any(array(select id from found where state in ('scheduled', 'ready', 'waiting'))) returning *
),
recorded as (
    insert into sereno.history (
        id, finished_at, run_at, created_at, expires_at, attempt, failures, crashes, snoozes, releases, priority, state,
        queue, task, tenant, unique_key, trace, tags, args, schedule_id, planned_at, stands_for, keys, requires, group_id, links,
        reason)
    select id, sereno.now(), run_at, created_at, expires_at, attempt, failures, crashes, snoozes, releases, priority,
           'cancelled', queue, task, tenant, unique_key, trace, tags, args, schedule_id, planned_at, stands_for, keys, requires,
           group_id, links, %(reason)s
    from gone
),
ended as (
    insert into sereno.schedule_ends (schedule_id, job_id, state, finished_at, error)
    select schedule_id, id, 'cancelled', sereno.now(), %(reason)s from gone where schedule_id is not null
),
forgotten as (delete from sereno.steps where job_id = any(array(select id from gone))),
unawaited as (delete from sereno.signal_waits where job_id = any(array(select id from gone))),
cleared as (delete from sereno.progress where job_id = any(array(select id from gone))),
stopping as (
    update sereno.jobs set cancel_requested = true
    where id = any(array(select id from found where state = 'running'))
    returning id
),
notified as (select pg_notify('sereno.cancel', id::text) from stopping)
select coalesce((select json_agg(id) from gone), '[]')::text, coalesce((select json_agg(id) from stopping), '[]')::text,
       (select count(*) from notified),
       (select sereno.notify_finished(array(select id from gone)) where exists (select from sereno.waiters)),
       coalesce((select json_agg(json_build_array(id, coalesce(group_id, 0))) from gone
                 where group_id is not null or has_successors), '[]')::text;

-- name: delete
-- Delete waiting and finished jobs and release their unique keys. Never a running job, and none that ended after `ended_by`:
-- a job that was waiting when it was chosen may have run since.
with waiting as materialized (
    select id from sereno.jobs where id = any(%(ids)s) and state in ('scheduled', 'ready', 'waiting') order by id for update
),
gone as (
    delete from sereno.jobs where id = any(array(select id from waiting))
    returning id, task, unique_key, tenant, schedule_id, group_id, has_successors
),
ended as (
    insert into sereno.schedule_ends (schedule_id, job_id, state, finished_at)
    select schedule_id, id, 'deleted', sereno.now() from gone where schedule_id is not null
),
past as (
    delete from sereno.history
    where id = any(%(ids)s) and (%(ended_by)s::timestamptz is null or finished_at <= %(ended_by)s)
    returning id, task, unique_key, tenant
),
both_places as materialized (select id, task, unique_key, tenant from gone union select * from past),
keys as (
    delete from sereno.unique_keys held using both_places
    where held.task = both_places.task and held.unique_key = both_places.unique_key
      and held.tenant is not distinct from both_places.tenant and held.job_id = both_places.id
),
-- For what waits for it, also in a transaction that is not committed yet.
noted as (insert into sereno.deleted_jobs (id) select id from both_places on conflict do nothing),
tries as (delete from sereno.attempts where job_id = any(array(select id from both_places))),
steps as (delete from sereno.steps where job_id = any(array(select id from both_places))),
waits as (delete from sereno.signal_waits where job_id = any(array(select id from both_places))),
removed_runs as (delete from sereno.procedure_runs where job_id = any(array(select id from both_places))),
progress as (delete from sereno.progress where job_id = any(array(select id from both_places))),
chunks as (delete from sereno.job_chunks where job_id = any(array(select id from both_places))),
streams as (delete from sereno.job_streams where job_id = any(array(select id from both_places)))
select coalesce((select json_agg(id) from both_places), '[]')::text,
       coalesce((select json_agg(json_build_array(id, coalesce(group_id, 0))) from gone
                 where group_id is not null or has_successors), '[]')::text;

-- name: requeue
-- Requeue finished jobs under their own ids, with failures reset; the last attempt becomes an attempt row. None that
-- ended after `ended_by`: it was requeued and ran since it was chosen.
-- A job whose unique key is taken, by a live job or by an earlier one of the same call, stays finished and is not
-- returned. The unique index decides, so that a key taken meanwhile by another transaction affects that job alone. Keys
-- are inserted in the order of enqueue_keyed, so that the two cannot deadlock.
with free as materialized (
    select * from sereno.history past
    where id = any(%(ids)s) and (%(ended_by)s::timestamptz is null or finished_at <= %(ended_by)s)
      and not exists (select from sereno.jobs live where live.id = past.id)
      and (unique_key is null or not exists (
          select from sereno.jobs live
          where live.task = past.task and live.unique_key = past.unique_key
            and live.tenant is not distinct from past.tenant))
    order by id
    for update
),
chosen as (
    select *, sereno.now() + make_interval(secs => %(start)s + %(spacing)s * (row_number() over (order by id) - 1)) as due
    from (select *, row_number() over (partition by task, unique_key, tenant order by id) as turn from free) as ranked
    where unique_key is null or turn = 1
),
made as (
    insert into sereno.jobs (id, run_at, created_at, attempt, snoozes, releases, priority, queue, task, tenant,
                             unique_key, trace, tags, args, schedule_id, planned_at, stands_for, keys, lane, order_id,
                             group_id, links, has_successors, state, ready_seq, requires)
    select id, due, created_at, attempt, snoozes, releases, priority, queue, task, tenant, unique_key, trace, tags, args,
           schedule_id, planned_at, stands_for, keys,
           case when keys is not null then sereno.lane_of(queue, keys) end,
           case when keys is not null then sereno.order_of(queue, keys) end,
           -- A job whose end has counted for its group leaves it: it must not count twice.
           (select g.id from sereno.groups g where g.id = chosen.group_id and g.on_dead = 'wait' and chosen.state = 'dead'),
           links, (select true from sereno.dependencies where predecessor = chosen.id limit 1),
           case when due <= sereno.now() then 'ready' else 'scheduled' end,
           case when due <= sereno.now() then nextval('sereno.ready_seq') end, requires
    from chosen
    order by case when unique_key is not null then task end, unique_key,
             case when unique_key is not null then tenant end, chosen.id
    on conflict do nothing
    returning id, queue, state, run_at
),
past as (delete from sereno.history where id = any(array(select id from made)) returning *),
-- It does not wait again.
unlinked as (delete from sereno.dependencies where successor = any(array(select id from made))),
tried as (
    insert into sereno.attempts (job_id, number, session_id, started_at, finished_at, outcome, reason,
                                 error_type, error_message, traceback, fingerprint)
    select id, attempt, session_id, coalesce(started_at, finished_at), finished_at, state, reason,
           error_type, error_message, traceback, fingerprint
    from past
    where attempt > 0
      and (select true from sereno.attempts tried where tried.job_id = past.id and tried.number = past.attempt limit 1) is null
),
notified as (
    select pg_notify(case when state = 'ready' then 'sereno.ready' else 'sereno.due' end,
                     case when state = 'ready' then queue
                          else round(greatest(0, extract(epoch from first - sereno.now())), 3) || ' ' || queue end)
    from (select queue, state, min(run_at) as first from made group by queue, state) as filled
    where exists (select from sereno.sessions where idle and queues ? filled.queue)
)
select coalesce(json_agg(id order by id), '[]')::text, (select count(*) from notified) from made;

-- name: ready_index
-- The last value of the sequence, and the size of the index of ready jobs, dead entries included.
select coalesce(pg_sequence_last_value('sereno.ready_seq'), 0), pg_relation_size('sereno.jobs_ready');

-- name: key_holders
-- Those of the finished jobs whose unique key a live job holds, with that job.
select past.id, live.id
from sereno.history past
join sereno.jobs live on live.task = past.task and live.unique_key = past.unique_key
                     and live.tenant is not distinct from past.tenant
where past.id = any(%(ids)s)
order by past.id;

-- name: claim
-- Claim ready jobs for every queue with free slots (field `slots`), from ranges of ready_seq in the given order: a priority,
-- its floor (inclusive) and its ceiling (exclusive).
-- SKIP LOCKED: a row that another claim has locked belongs to that claim.
-- A job that requires what this session does not have is left to others: the subquery is run only for such a job.
-- Queues with a limit of their own are excluded. Also returns which queues have lanes to serve, which have limits of their
-- own, whether there are lanes of the served queues to wake (or many of others, which may hide them), and whether a limiter
-- is due; then the last value of the sequence, the size of the index, and all pauses.
with clock as materialized (select sereno.now() as now),
paused as materialized (select kind, name from sereno.pauses),
picked as materialized (
    select job.id
    from jsonb_to_recordset(%(queues)s::text::jsonb) as wanted(queue text, slots integer, floors jsonb)
    cross join lateral (
        select candidate.id
        from jsonb_to_recordset(wanted.floors) as step(priority smallint, floor bigint, ceiling bigint)
        cross join lateral (
            select jobs.id
            from sereno.jobs
            where jobs.state = 'ready' and jobs.lane is null
              and jobs.queue = wanted.queue
              and jobs.priority = step.priority
              and jobs.ready_seq >= step.floor
              and jobs.ready_seq < coalesce(step.ceiling, 9223372036854775807)
              and (jobs.requires is null or sereno.meets(
                      jobs.requires, jobs.task, (select capabilities from sereno.sessions where id = %(session)s)))
              and jobs.task = any(%(tasks)s)
              and jobs.task <> all(array(select name from paused where kind = 'task'))
              and (jobs.tenant is null or jobs.tenant <> all(array(select name from paused where kind = 'tenant')))
            order by jobs.ready_seq
            limit 1500
            for update skip locked
        ) as candidate
        limit wanted.slots
    ) as job
    where wanted.queue <> all(array(select name from paused where kind = 'queue'))
      and wanted.queue <> all(array(select queue from sereno.limits where queue is not null))
),
-- use: jobs.claimed_jobs
select
-- use: jobs.claimed_columns
    (select array_agg(queue) from sereno.lane_queues
     where (select true from sereno.lanes where has_work and waits_for is null and lanes.queue = lane_queues.queue limit 1)),
    (select array_agg(queue) from sereno.limits where queue is not null),
    (select true from (select queue from sereno.lane_wakes where id >= %(wakes)s order by id limit 20) as woken
     having bool_or(queue = any(%(served)s)) or count(*) = 20),
    (select true from sereno.due_limiters(%(served)s, (select now from clock)) limit 1),
    (select max(changed_at) from sereno.limits),
    coalesce(pg_sequence_last_value('sereno.ready_seq'), 0),
    pg_relation_size('sereno.jobs_ready'),
    (select array_agg(array[kind, name]) from paused)
from claimed;
