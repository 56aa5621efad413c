-- Bulk operations: begin, process batch by batch in a job, stop, list.

-- name: begin
-- Rows that exist now have ids up to the largest; later rows have larger ids and are left alone. If ids are given, only the
-- range from the first to the last has to be read.
insert into sereno.bulk_operations (
    action, wanted, selection, options, tenant, rate, reason, requested_by, total, total_exact, cursor, upper_id)
select %(action)s, %(wanted)s::text::jsonb, %(selection)s::text::jsonb, %(options)s::text::jsonb, %(tenant)s, %(rate)s,
       %(reason)s, %(actor)s, %(total)s, %(total_exact)s, least(largest, %(first)s::bigint - 1),
       least(largest, %(last)s::bigint)
from (select greatest(0, case %(kind)s
          when 'job' then greatest((select max(id) from sereno.jobs), (select max(id) from sereno.history))
          when 'schedule' then (select max(id) from sereno.schedules)
          when 'delivery' then (select max(id) from sereno.deliveries) end) as largest) as there
returning id;

-- name: under_way
-- Counts the operations in progress, in total and of one tenant, up to a bound. An operation whose job is gone has ended.
select count(*), count(*) filter (where tenant = %(tenant)s)
from (select tenant from sereno.bulk_operations operation
      where state in ('waiting', 'running') and exists (select from sereno.jobs where jobs.id = operation.job_id)
      limit %(bound)s) as live;

-- name: queue_for
-- A queue that a live worker with this task serves: not paused, preferably without limits and with many slots, because the
-- operation takes one slot until it ends.
select queue
from sereno.sessions, jsonb_each_text(sessions.queues) as serves (queue, slots)
where sessions.state = 'alive' and lease_until > sereno.now() and %(task)s = any(tasks)
  and not exists (select from sereno.pauses where kind = 'queue' and name = queue)
order by exists (select from sereno.limits where limits.queue = serves.queue), slots::integer desc,
         queue <> %(usual)s, queue
limit 1;

-- name: give_job
-- Links an operation to the one job that carries it out.
update sereno.bulk_operations set job_id = %(job)s where id = %(id)s;

-- name: adopt
-- A worker that starts takes over operations that wait in a queue that no live worker serves.
update sereno.jobs
set queue = %(queue)s, ready_seq = case when state = 'ready' then nextval('sereno.ready_seq') end
where id = any(array(select job_id from sereno.bulk_operations where bulk_operations.state in ('waiting', 'running')))
  and task = %(task)s and state in ('ready', 'scheduled') and queue <> all(%(queues)s)
  and not exists (select from sereno.sessions
                  where sessions.state = 'alive' and lease_until > sereno.now()
                    and %(task)s = any(tasks) and sessions.queues ? jobs.queue);

-- name: take
-- The operation, if this attempt holds its job. Locked until the batch commits, so that nothing is changed twice, even if another
-- attempt believes that it holds the job.
select id, action, selection::text, wanted::text, options::text, rate, reason, requested_by, done + stop_requested, left_alone, total,
       cursor, cursor_key, upper_id, created_at, stop_requested_at is not null, coalesce(date_part('epoch', paced_at - sereno.now()), 0)
from sereno.bulk_operations operation
where id = %(id)s and job_id = %(job)s and state in ('waiting', 'running')
  and exists (select from sereno.jobs
              where jobs.id = %(job)s and attempt = %(attempt)s and session_id = %(session)s and jobs.state = 'running')
for update of operation;

-- name: matching
-- The next jobs by id, in a bounded range of ids, so that the query is fast. Jobs that ended after the request are excluded.
select id from (
    (select id
    from sereno.jobs
    where %(live)s and id > %(after)s and id <= %(upto)s
      -- use: jobs.live_filter
    order by id limit %(limit)s)
    union all
    (select id
    from sereno.history
    where %(finished)s and id > %(after)s and id <= %(upto)s and finished_at <= %(requested_at)s
      -- use: jobs.finished_filter
    order by id limit %(limit)s)
) as every
order by id
limit %(limit)s;

-- name: matching_schedules
-- The next schedules by key, in a bounded range, so that the query is fast; also the end of the range and its number of rows.
with stretch as materialized (
    select * from sereno.schedules where key > %(after)s order by key limit %(stretch)s
),
found as (
    select key
    from stretch
    where id <= %(upper)s
      -- use: schedules.schedule_filter
    order by key limit %(limit)s
)
select coalesce((select array_agg(key order by key) from found), '{}'), max(key), count(*) from stretch;

-- name: matching_deliveries
-- The next deliveries by id, in a bounded range of ids; or their count. Deliveries that changed after the request are excluded.
-- If all of them failed, only failed ones are read.
select count(*), coalesce(array_agg(id order by id) filter (where not %(counts)s), '{}')
from (
    select id
    from (
        select * from sereno.deliveries
        where not coalesce(%(states)s::text[] <@ sereno.failed_states(), false) and id > %(after)s and id <= %(upto)s
        union all
        select d.*
        from (select delivery_id from sereno.failed_deliveries
              where %(states)s::text[] <@ sereno.failed_states() and state = any(%(states)s)
                and delivery_id > %(after)s and delivery_id <= %(upto)s
              order by delivery_id) as failed
        join lateral (select * from sereno.deliveries where id = failed.delivery_id limit 1) as d on d.id = failed.delivery_id
    ) as deliveries
    where changed_at <= coalesce(%(requested_at)s::timestamptz, sereno.now())
      and (%(ids)s::bigint[] is null or id = any(%(ids)s))
      and (%(states)s::text[] is null or state = any(%(states)s))
      and (%(channel)s::text is null or channel = %(channel)s)
      and (%(tenant)s::text is null or tenant = %(tenant)s)
      and (%(event)s::bigint is null or event_id = %(event)s)
      and (%(since)s::timestamptz is null or created_at >= %(since)s::timestamptz)
      and (%(recipient)s::text is null
           or recipient_id = (select recipients.id from sereno.recipients
                              where recipients.tenant = coalesce(%(tenant)s::text, '') and key = %(recipient)s))
      -- One by one, by key: EXISTS may be planned as a scan of all events.
      and (%(type)s::text is null
           or (select of_it.type from sereno.events of_it where of_it.id = deliveries.event_id) = %(type)s)
      and (%(subject)s::text is null
           or (select of_it.subject from sereno.events of_it where of_it.id = deliveries.event_id) = %(subject)s)
-- use: notifications.delivery_terms
    order by id limit %(limit)s
) as found;

-- name: advance
-- Stores the progress, in the transaction of the batch. The rate counts from the previous batch, or from now if that is long
-- ago: time in which no worker ran is not caught up.
update sereno.bulk_operations
set state = case when %(ends)s then 'done' else 'running' end,
    finished_at = case when %(ends)s then sereno.now() end,
    started_at = coalesce(started_at, sereno.now()), seen_at = sereno.now(), cursor = %(cursor)s, cursor_key = %(key)s,
    done = done + %(done)s, stop_requested = stop_requested + %(stopping)s, left_alone = left_alone + %(left)s,
    paced_at = greatest(paced_at, sereno.now()) + make_interval(secs => %(cost)s)
where id = %(id)s;

-- name: finish
-- Ends an operation as stopped or failed; its changes so far remain.
update sereno.bulk_operations
set state = %(state)s, error = %(error)s, finished_at = sereno.now(), seen_at = sereno.now()
where id = %(id)s and state in ('waiting', 'running');

-- name: ask_to_stop
-- Stops an operation: at once if no worker runs it, else within a second. Returns its new state.
update sereno.bulk_operations operation
set stop_requested_at = coalesce(stop_requested_at, sereno.now()), stop_requested_by = coalesce(stop_requested_by, %(actor)s),
    state = case when ends then 'stopped' else state end,
    finished_at = case when ends then sereno.now() end
from (select found.id as found_id,
             found.started_at is null
             or not exists (select from sereno.jobs where jobs.id = found.job_id and jobs.state = 'running') as ends
      from sereno.bulk_operations found where found.id = %(id)s for update) as current
where operation.id = found_id and state in ('waiting', 'running')
returning state;

-- name: listed
-- Newest first. An operation has failed if its job ended without ending it; if that job is requeued, it continues. A filter may
-- name ten thousand ids: a list shows it up to some bytes.
select operation.id, action, shown, sereno.shown(wanted, %(bytes)s)::text, sereno.shown(options, %(bytes)s)::text, operation.tenant, rate, operation.reason, requested_by, total, total_exact,
       done, stop_requested, left_alone, operation.created_at, started_at, seen_at, stop_requested_at, stop_requested_by,
       operation.finished_at, operation.job_id,
       coalesce(error, case when shown = 'failed' then coalesce(
           (select 'its job ended: ' || coalesce(past.reason, past.error_message, past.state) from sereno.history past
            where past.id = operation.job_id limit 1), 'its job is gone') end),
       case when shown in ('waiting', 'running') and not exists (
                select from sereno.sessions
                where sessions.state = 'alive' and lease_until > sereno.now()
                  and %(task)s = any(tasks) and queues ? job.queue)
            then 'a worker' end
from sereno.bulk_operations operation
left join sereno.jobs job on job.id = operation.job_id,
lateral (select case when operation.state in ('waiting', 'running') and job.id is null then 'failed'
                     else operation.state end) as current (shown)
where operation.id < %(before)s and (%(tenant)s::text is null or operation.tenant = %(tenant)s)
order by operation.id desc
limit %(limit)s;

-- name: forget
-- Deletes operations that ended long ago, or whose job is gone without having ended them; a bounded number at a time.
delete from sereno.bulk_operations
where id = any(array(
    select found.id from sereno.bulk_operations found
    where coalesce(found.finished_at, found.seen_at, found.created_at) < sereno.now() - make_interval(days => %(days)s)
      and (found.state not in ('waiting', 'running') or not exists (select from sereno.jobs where jobs.id = found.job_id))
    order by found.id limit %(limit)s
    for update skip locked));
