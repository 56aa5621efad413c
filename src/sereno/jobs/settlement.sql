-- Settles attempts. Every statement is fenced by (job, attempt, session): a session that lost the job changes nothing.
-- A running row has a session and a waiting one has none, so the three are a complete fence; testing the state as well
-- would let the planner use the index of running rows, which is full of dead entries under a pinned snapshot.
-- Items are sorted by id and rows are locked in that order, so that two batches cannot deadlock.

-- name: succeed
-- The hot path: delete the job and insert its history row in one statement.
-- The clock is read once: a call per row would cost more than the row.
with clock as materialized (select sereno.now() as now),
gone as (
    delete from sereno.jobs
    using unnest(%(ids)s::text::bigint[], %(attempts)s::text::integer[], %(began)s::text::real[])
        as item(item_id, tried, began)
    where id = any(%(ids)s::text::bigint[]) and id = item_id and attempt = tried and session_id = %(session)s
    returning jobs.*, began
),
recorded as (
    insert into sereno.history_done (
        id, session_id, finished_at, started_at, run_at, created_at, expires_at, attempt, failures, crashes, snoozes,
        releases, priority, state, queue, task, tenant, unique_key, trace, tags, args, schedule_id, planned_at, stands_for,
        keys, requires, group_id, links)
    select id, session_id, (select now from clock), claimed_at + began * interval '1 second', run_at, created_at,
           expires_at, attempt, failures, crashes, snoozes, releases, priority, 'succeeded', queue, task, tenant,
           unique_key, trace, tags, args, schedule_id, planned_at, stands_for, keys, requires, group_id, links
    from gone
),
ended as (
    insert into sereno.schedule_ends (schedule_id, job_id, state, finished_at)
    select schedule_id, id, 'succeeded', (select now from clock) from gone where schedule_id is not null
)
-- Null if all were applied, as usual: the ids are sent only if some were not.
select case when (select count(*) from gone) < %(count)s then (select coalesce(json_agg(id), '[]')::text from gone) end,
       (select sereno.notify_finished(array(select id from gone)) where exists (select from sereno.waiters));

-- name: succeed_with_results
-- The same for jobs whose task keeps what it returned.
with clock as materialized (select sereno.now() as now),
item as materialized (
    select * from jsonb_to_recordset(%(items)s::text::jsonb) as i(
        id bigint, attempt integer, began real, result jsonb, reason text)
),
gone as (
    delete from sereno.jobs
    where id = any(%(ids)s) and session_id = %(session)s and (id, attempt) in (select id, attempt from item)
    returning *
),
recorded as (
    insert into sereno.history_done (
        id, session_id, finished_at, started_at, run_at, created_at, expires_at, attempt, failures, crashes, snoozes,
        releases, priority, state, queue, task, tenant, unique_key, trace, tags, args, schedule_id, planned_at, stands_for,
        keys, requires, group_id, links, result, reason)
    select id, session_id, (select now from clock), claimed_at + began * interval '1 second', run_at, created_at,
           expires_at, attempt, failures, crashes, snoozes, releases, priority, 'succeeded', queue, task, tenant,
           unique_key, trace, tags, args, schedule_id, planned_at, stands_for, keys, requires, group_id, links, result, reason
    from gone join item using (id, attempt)
),
ended as (
    insert into sereno.schedule_ends (schedule_id, job_id, state, finished_at)
    select schedule_id, id, 'succeeded', (select now from clock) from gone where schedule_id is not null
)
select (select coalesce(json_agg(id), '[]')::text from gone),
       (select sereno.notify_finished(array(select id from gone)) where exists (select from sereno.waiters));

-- name: forget
-- A success whose task has history=False; its earlier attempts are deleted too (see `forget_attempts`).
with gone as (
    delete from sereno.jobs
    using unnest(%(ids)s::text::bigint[], %(attempts)s::text::integer[]) as item(item_id, tried)
    where id = any(%(ids)s::text::bigint[]) and id = item_id and attempt = tried and session_id = %(session)s
    returning id, attempt, schedule_id
),
ended as (
    insert into sereno.schedule_ends (schedule_id, job_id, state, finished_at)
    select schedule_id, id, 'succeeded', sereno.now() from gone where schedule_id is not null
)
select case when (select count(*) from gone) < %(count)s then (select coalesce(json_agg(id), '[]')::text from gone) end;

-- name: forget_attempts
-- A statement of its own, for the few jobs with earlier attempts: it opens every partition of attempts.
delete from sereno.attempts where job_id = any(%(ids)s);

-- name: bury
-- Dead or cancelled: the whole job is stored, with the reason and the error of the last attempt.
with item as materialized (
    select * from jsonb_to_recordset(%(items)s::text::jsonb) as i(
        id bigint, attempt integer, began real, outcome text, reason text, failed integer, crashed integer,
        error_type text, error_message text, traceback text, fingerprint text)
),
gone as (
    delete from sereno.jobs
    where id = any(%(ids)s) and session_id = %(session)s and (id, attempt) in (select id, attempt from item)
    returning *
),
recorded as (
    insert into sereno.history (
        id, session_id, finished_at, started_at, run_at, created_at, expires_at, attempt, failures, crashes, snoozes,
        releases, priority, state, queue, task, tenant, unique_key, trace, tags, args,
        schedule_id, planned_at, stands_for, keys, requires, group_id, links, reason, error_type, error_message, traceback,
        fingerprint)
    select id, session_id, sereno.now(), claimed_at + item.began * interval '1 second', run_at, created_at, expires_at,
           attempt, failures + item.failed, crashes + item.crashed, snoozes, releases, priority, item.outcome, queue,
           task, tenant, unique_key, trace, tags, args, schedule_id, planned_at, stands_for, keys, requires, group_id, links,
           item.reason, item.error_type, item.error_message, item.traceback, item.fingerprint
    from gone join item using (id, attempt)
),
ended as (
    insert into sereno.schedule_ends (schedule_id, job_id, state, finished_at, error)
    select schedule_id, id, item.outcome, sereno.now(), coalesce(item.error_type || ': ' || item.error_message, item.reason)
    from gone join item using (id, attempt) where schedule_id is not null
)
select (select coalesce(json_agg(id), '[]')::text from gone),
       (select sereno.notify_finished(array(select id from gone)) where exists (select from sereno.waiters));

-- name: reschedule
-- Retry, snooze, release or crash: the job waits again. It never runs before the stored run_at.
-- An attempt that never started (released at shutdown) leaves no attempt row.
-- A job with a requested cancel is not tried again: it ends here as cancelled.
-- Rows are locked by the primary key alone and joined afterwards, and the array keeps the update on that key:
-- with a join, a batch is planned as a scan of the whole table.
with clock as materialized (select sereno.now() as now),
item as materialized (
    select * from jsonb_to_recordset(%(items)s::text::jsonb) as i(
        id bigint, attempt integer, began real, outcome text, reason text, delay double precision, until timestamptz,
        error_type text, error_message text, traceback text, started boolean, fingerprint text)
),
held as materialized (
    select id, attempt, session_id, claimed_at, run_at, cancel_requested
    from sereno.jobs
    where id = any(%(ids)s) and session_id = %(session)s
    order by id
    for update
),
mine as materialized (
    select id, attempt, session_id, claimed_at + began * interval '1 second' as started_at, started, outcome, reason,
           error_type, error_message, traceback, cancel_requested, fingerprint,
           case when outcome = 'release' and coalesce(delay, 0) <= 0 then run_at
                else greatest(until, (select now from clock) + make_interval(secs => coalesce(delay, 0)),
                              case when outcome = 'release' then run_at end) end as due
    from held join item using (id, attempt)
),
moved as (
    update sereno.jobs
    set run_at = mine.due,
        state = case when mine.due <= (select now from clock) then 'ready' else 'scheduled' end,
        ready_seq = case when mine.due <= (select now from clock) then nextval('sereno.ready_seq') end,
        session_id = null,
        failures = failures + (outcome = 'retry')::integer,
        crashes = crashes + (outcome = 'crash')::integer,
        snoozes = snoozes + (outcome = 'snooze')::integer,
        releases = releases + (outcome = 'release')::integer
    from mine
    where jobs.id = any(%(ids)s) and jobs.id = mine.id and not mine.cancel_requested
    returning jobs.id, jobs.queue, jobs.state
),
tried as (
    insert into sereno.attempts (job_id, number, session_id, started_at, finished_at, outcome, reason,
                                 error_type, error_message, traceback, fingerprint)
    select id, attempt, session_id, started_at, (select now from clock), outcome, reason,
           error_type, error_message, traceback, fingerprint
    from mine where started and not cancel_requested
),
stopped as (
    delete from sereno.jobs where id = any(array(select id from mine where cancel_requested)) returning *
),
recorded as (
    insert into sereno.history (
        id, session_id, finished_at, started_at, run_at, created_at, expires_at, attempt, failures, crashes, snoozes,
        releases, priority, state, queue, task, tenant, unique_key, trace, tags, args,
        schedule_id, planned_at, stands_for, keys, requires, group_id, links, reason, error_type, error_message, traceback)
    select id, stopped.session_id, (select now from clock), mine.started_at, run_at, created_at, expires_at,
           stopped.attempt, failures + (outcome = 'retry')::integer, crashes + (outcome = 'crash')::integer,
           snoozes + (outcome = 'snooze')::integer, releases + (outcome = 'release')::integer, priority, 'cancelled',
           queue, task, tenant, unique_key, trace, tags, args, schedule_id, planned_at, stands_for, keys, requires, group_id, links,
           coalesce(mine.reason, 'cancelled while running'),
           mine.error_type, mine.error_message, mine.traceback
    from stopped join mine using (id)
),
ended as (
    insert into sereno.schedule_ends (schedule_id, job_id, state, finished_at)
    select schedule_id, id, 'cancelled', (select now from clock) from stopped where schedule_id is not null
),
forgotten as (delete from sereno.steps where job_id = any(array(select id from stopped))),
unawaited as (delete from sereno.signal_waits where job_id = any(array(select id from stopped))),
cleared as (delete from sereno.progress where job_id = any(array(select id from stopped))),
notified as (
    select pg_notify('sereno.ready', queue)
    from (select distinct queue from moved where state = 'ready') as filled
    where exists (select from sereno.sessions where idle and id <> %(session)s and queues ? queue)
)
select coalesce((select json_agg(id) from (select id from moved union all select id from stopped) as applied), '[]')::text,
       (select count(*) from notified),
       (select sereno.notify_finished(array(select id from stopped)) where exists (select from sereno.waiters)),
       coalesce((select json_agg(id) from stopped), '[]')::text;

-- name: settled_before
-- Of settlements that were not applied: those that an earlier try, whose reply was lost, applied. The others lost the job.
-- A statement of its own, because the snapshot of the first one may still see the old row. The outcome is compared,
-- because a rescue also writes a row about the attempt.
select coalesce(json_agg(id), '[]')::text
from (
    select id from sereno.history
    join jsonb_to_recordset(%(items)s::text::jsonb) as i(id bigint, attempt integer) using (id, attempt)
    where session_id = %(session)s and id = any(%(ids)s)
    union
    select job_id from sereno.attempts
    join jsonb_to_recordset(%(items)s::text::jsonb) as i(id bigint, attempt integer, outcome text)
        on attempts.job_id = i.id and attempts.number = i.attempt and attempts.outcome = i.outcome
    where session_id = %(session)s and job_id = any(%(ids)s)
) as mine;

-- name: steps
-- Results of the steps that earlier attempts of this job have finished.
select coalesce(json_object_agg(name, json_build_array(result, position, pending)), '{}')::text
from sereno.steps where job_id = %(id)s and not is_cursor;

-- name: keep_step
-- Store the result of a step, once, by the attempt that holds the job; a repeated write keeps the first result.
-- FOR KEY SHARE, as below: a settlement of the job waits for this statement and then deletes the step; or it came first,
-- and nothing is written.
insert into sereno.steps (job_id, name, attempt, result, position, pending)
select id, %(name)s, attempt, %(result)s::text::jsonb, %(position)s, %(pending)s::text[]
from sereno.jobs where id = %(id)s and attempt = %(attempt)s and session_id = %(session)s
for key share
on conflict (job_id, name) do update set name = excluded.name
returning job_id;

-- name: report_progress
-- Store the progress of a running attempt; only the attempt that holds the job may write.
insert into sereno.progress (job_id, attempt, fraction, note)
select id, attempt, %(fraction)s, %(note)s
from sereno.jobs where id = %(id)s and attempt = %(attempt)s and session_id = %(session)s
for key share
on conflict (job_id) do update
    set attempt = excluded.attempt, fraction = excluded.fraction, note = excluded.note, updated_at = excluded.updated_at
returning job_id;

-- name: forget_side_rows
-- Delete steps, progress and waits for signals of finished jobs.
with done as (
    select id from unnest(%(ids)s::bigint[]) as wanted(id) where not exists (select from sereno.jobs where jobs.id = wanted.id)
),
waits as (delete from sereno.signal_waits where job_id in (select id from done)),
steps as (delete from sereno.steps where job_id in (select id from done))
delete from sereno.progress where job_id in (select id from done);

-- name: make_waiting
-- Let jobs wait for others, which this transaction has inserted or settled as snoozed (see the function).
select sereno.make_waiting(%(jobs)s::text::jsonb);

-- name: count_members
-- Count successes of jobs of groups, if that continues no job; return whether they were counted (see the function).
select sereno.count_members(%(ids)s::text::bigint[], %(groups)s::text::bigint[], %(parts)s::text::smallint[],
                            %(numbers)s::text::bigint[]);

-- name: end_links
-- Continue jobs that wait for these, which have ended in the same transaction; return whether jobs became ready.
select sereno.end_links(%(ids)s::text::bigint[], %(groups)s::text::bigint[],
                        array_fill(%(state)s::text, array[coalesce(%(count)s::integer, 0)]), %(settled_by)s::bigint);

-- name: check_links
-- Check dependencies that a settlement may not have known of; return whether there are any.
select sereno.check_links();
