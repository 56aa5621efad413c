-- Queries by trace. Every query is bounded: a million jobs may share a trace.

-- name: jobs
-- The first live and finished jobs of a trace. The tenant filter reads no further than a window.
select row_to_json(found)::text
from (select * from (
          (select id, state, task, queue, tenant, created_at, run_at, case when state = 'running' then claimed_at end as started_at,
                  null::timestamptz as finished_at, attempt, null::text as reason, null::text as error_type, schedule_id, planned_at, group_id,
                  links -> 'after' as after, (links ->> 'of')::bigint as after_group
           from (select * from sereno.jobs where trace is not null and hashtext(sereno.trace_id(trace)) = hashtext(%(trace)s::text)
                 and sereno.trace_id(trace) = %(trace)s
                 order by hashtext(sereno.trace_id(trace)), id limit %(window)s) as live
           where %(tenant)s::text is null or tenant = %(tenant)s
           order by id limit %(most)s)
          union all
          (select id, state, task, queue, tenant, created_at, run_at, case when session_id is not null then started_at end, finished_at,
                  attempt, reason, error_type, schedule_id, planned_at, group_id,
                  links -> 'after' as after, (links ->> 'of')::bigint as after_group
           from (select * from sereno.history where trace is not null and hashtext(sereno.trace_id(trace)) = hashtext(%(trace)s::text)
                 and sereno.trace_id(trace) = %(trace)s
                 order by hashtext(sereno.trace_id(trace)), id limit %(window)s) as ended
           where %(tenant)s::text is null or tenant = %(tenant)s
           order by id limit %(most)s)) as every
      order by id limit %(most)s) as found
order by id;

-- name: job
-- One live or finished job, with its trace id.
select sereno.trace_id(trace), row_to_json(found)::text
from (select id, state, task, queue, tenant, created_at, run_at, case when state = 'running' then claimed_at end as started_at,
             null::timestamptz as finished_at, attempt, null::text as reason, null::text as error_type, schedule_id, planned_at, trace, group_id,
                  links -> 'after' as after, (links ->> 'of')::bigint as after_group
      from sereno.jobs where id = %(id)s
      union all
      select id, state, task, queue, tenant, created_at, run_at, case when session_id is not null then started_at end, finished_at,
             attempt, reason, error_type, schedule_id, planned_at, trace, group_id,
                  links -> 'after' as after, (links ->> 'of')::bigint as after_group
      from sereno.history where id = %(id)s) as found
where %(tenant)s::text is null or tenant = %(tenant)s
order by finished_at desc nulls first limit 1;

-- name: attempts
-- The attempts of jobs, except the last ones, which are in the rows of the jobs.
select row_to_json(found)::text
from (select job_id, number, started_at, finished_at, outcome, reason, error_type from sereno.attempts
      where job_id = any(%(ids)s) order by job_id, number limit %(most)s) as found
order by job_id, number;

-- name: fires
-- The instants of schedules that created the jobs.
select row_to_json(found)::text
from (select wanted.job_id, coalesce(s.key, '#' || wanted.schedule_id) as key, wanted.planned_at, f.fired_at
      from jsonb_to_recordset(%(jobs)s::text::jsonb) as wanted(job_id bigint, schedule_id bigint, planned_at timestamptz)
      left join sereno.fires f on f.planned_at = wanted.planned_at and f.schedule_id = wanted.schedule_id
      left join sereno.schedules s on s.id = wanted.schedule_id) as found
order by planned_at, key;

-- name: events
-- The first events of a trace.
select row_to_json(found)::text
from (select id, type, nullif(tenant, '') as tenant, subject, sereno.trace_id(trace) as trace, created_at, due_at, matched_at
      from (select * from sereno.events where trace is not null and hashtext(sereno.trace_id(trace)) = hashtext(%(trace)s::text)
                 and sereno.trace_id(trace) = %(trace)s
            order by hashtext(sereno.trace_id(trace)), id limit %(window)s) as newest
      where %(tenant)s::text is null or tenant = %(tenant)s
      order by id limit %(most)s) as found
order by id;

-- name: event
-- One event, by its id or by the id of a delivery.
select row_to_json(found)::text
from (select id, type, nullif(tenant, '') as tenant, subject, sereno.trace_id(trace) as trace, created_at, due_at, matched_at from sereno.events
      where id = coalesce(%(event)s::bigint, (select event_id from sereno.deliveries where id = %(delivery)s::bigint))
        and (%(tenant)s::text is null or tenant = %(tenant)s)) as found;

-- name: subject
-- Events with a subject, newest first.
select row_to_json(found)::text
from (select id, type, nullif(tenant, '') as tenant, subject, sereno.trace_id(trace) as trace, created_at, due_at, matched_at
      from (select * from sereno.events where subject = %(subject)s order by id desc limit %(window)s) as newest
      where %(tenant)s::text is null or tenant = %(tenant)s
      order by id desc limit %(most)s) as found
order by id desc;

-- name: newest
-- The newest events that have any subject.
select row_to_json(found)::text
from (select id, type, nullif(tenant, '') as tenant, subject, sereno.trace_id(trace) as trace, created_at, due_at, matched_at
      from (select * from sereno.events order by id desc limit %(window)s) as newest
      where subject is not null and (%(tenant)s::text is null or tenant = %(tenant)s)
      order by id desc limit %(most)s) as found
order by id desc;

-- name: deliveries
-- Deliveries of events by channel and state; a bounded number for each event.
select row_to_json(found)::text
from (select event_id, channel, state, count(*) as count, min(created_at) as first_at, max(changed_at) as last_at,
             min(sent_at) as first_sent_at, max(sent_at) as last_sent_at
      from unnest(%(events)s::bigint[]) as event(id)
      cross join lateral (select * from sereno.deliveries where event_id = event.id limit %(bound)s + 1) as d
      group by event_id, channel, state) as found
order by event_id, channel, state;

-- name: sample
-- A sample of the deliveries of events, each event in turn along its own index.
select row_to_json(found)::text
from (select d.id, d.event_id, d.channel, d.state, d.attempts, d.created_at, d.due_at, d.sent_at, d.changed_at, d.reason, d.error_code
      from unnest(%(events)s::bigint[]) as event(id)
      cross join lateral (select * from sereno.deliveries where event_id = event.id limit %(most)s) as d
      limit %(most)s) as found
order by id;

-- name: receipts
-- The receipts of deliveries.
select row_to_json(found)::text
from (select delivery_id, outcome, code, at from sereno.receipts
      where delivery_id = any(%(ids)s) order by at, id limit %(most)s) as found
order by at;
