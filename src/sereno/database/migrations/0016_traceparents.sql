-- A trace may be a W3C traceparent: it then names the span that has enqueued the job, and belongs to the trace of its id.
-- It is found, shown and logged by that id, and stored as a whole for the span of the attempt.

create function sereno.trace_id(trace text) returns text language sql immutable parallel safe as $$
    select case when trace ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then substr(trace, 4, 32)
                else trace end
$$;

-- Without the function, which a role that writes rows may not be allowed to call.
drop index sereno.jobs_trace;
create index jobs_trace on sereno.jobs (hashtext(
    case when trace ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then substr(trace, 4, 32) else trace end), id)
    where trace is not null;
drop index sereno.history_trace;
create index history_trace on sereno.history (hashtext(
    case when trace ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then substr(trace, 4, 32) else trace end), id)
    where trace is not null;
drop index sereno.events_trace;
create index events_trace on sereno.events (hashtext(
    case when trace ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then substr(trace, 4, 32) else trace end), id)
    where trace is not null;

-- The views show the id, also without the function.
create or replace view sereno.jobs_v1 as
select every.id, every.task, every.queue, every.state, every.priority, every.tenant, every.tags,
       case when every.trace ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then substr(every.trace, 4, 32) else every.trace end as trace, every.args,
       every.unique_key, every.attempt, every.failures, every.crashes, every.snoozes, every.releases,
       every.run_at, every.created_at, every.started_at, every.finished_at, every.expires_at, every.cancel_requested,
       every.session_id, sessions.host, sessions.pid,
       coalesce(every.reason, last.reason) as reason, coalesce(every.error_type, last.error_type) as error_type,
       coalesce(every.error_message, last.error_message) as error_message, every.result, every.group_id,
       every.schedule_id, schedules.key::text as schedule, every.planned_at, every.stands_for, every.keys, every.requires
from (
    select id, task, queue, state, priority, tenant, tags, trace, args::jsonb as args, unique_key,
           attempt, failures, crashes, snoozes, releases, run_at, created_at,
           case when state = 'running' then claimed_at end as started_at, null::timestamptz as finished_at, expires_at,
           cancel_requested, session_id, null::text as reason, null::text as error_type, null::text as error_message,
           null::jsonb as result, group_id, schedule_id, planned_at, stands_for, keys, requires
    from sereno.jobs
    union all
    select id, task, queue, state, priority, tenant, tags, trace, args, unique_key,
           attempt, failures, crashes, snoozes, releases, run_at, created_at,
           started_at, finished_at, expires_at,
           false, session_id, reason, error_type, error_message,
           result, group_id, schedule_id, planned_at, stands_for, keys, requires
    from sereno.history
) as every
left join lateral (
    select max(reason) as reason, max(error_type) as error_type, max(error_message) as error_message
    from (select reason, error_type, error_message from sereno.attempts
          where every.finished_at is null and attempts.job_id = every.id
            -- No attempt is older than its job, so earlier partitions are not read. One day of tolerance for a clock set back.
            and attempts.partition_at >= every.created_at - interval '1 day'
          order by number desc limit 1) as newest
) as last on true
left join sereno.sessions on sessions.id = every.session_id
left join sereno.schedules on schedules.id = every.schedule_id;

create or replace view sereno.events_v1 as
select id, type, nullif(tenant, '') as tenant, subject, key, category, payload::jsonb as payload, channels, audience, critical, opt_in,
       due_at, expires_at, created_at, matched_at, note,
       case when trace ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then substr(trace, 4, 32) else trace end as trace
from sereno.events;
