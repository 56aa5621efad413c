-- Reads of the central log.

-- name: list
-- Lines that match a filter, newest first. Candidates come from one index: that of the first condition that is set, in the
-- order job, trace, tenant, event. The newest candidates, at most one window, are checked against the other conditions. With
-- `at_before`, the scan starts there: a line is written at most ten minutes after it was logged, so every line logged before
-- `at_before` has a smaller id than the first line that is 15 minutes later. Conditions compare pairs of columns, because
-- only the wanted index has that order; otherwise a planner that expects many lines of a tenant would scan all lines.
with begin as materialized (
    select coalesce(least(%(before)s::bigint,
                          (select id from sereno.logs
                           where at >= %(at_before)s::timestamptz + interval '15 minutes' order by at limit 1)),
                    9223372036854775807) as id
),
candidates as (
    (select id from sereno.logs
     where %(along)s::text = 'job' and job_id is not null
       and (job_id, id) < (%(job_id)s::bigint, (select begin.id from begin))
       and (job_id, id) > (%(job_id)s::bigint, %(after)s::bigint)
     order by job_id desc, id desc limit %(window)s)
    union all
    (select id from sereno.logs
     where %(along)s::text = 'trace' and trace_id is not null
       and (trace_id, id) < (%(trace_id)s::text, (select begin.id from begin))
       and (trace_id, id) > (%(trace_id)s::text, %(after)s::bigint)
     order by trace_id desc, id desc limit %(window)s)
    union all
    (select id from sereno.logs
     where %(along)s::text = 'tenant' and tenant is not null
       and (tenant, id) < (%(tenant)s::text, (select begin.id from begin))
       and (tenant, id) > (%(tenant)s::text, %(after)s::bigint)
     order by tenant desc, id desc limit %(window)s)
    union all
    (select id from sereno.logs
     where %(along)s::text = 'event'
       and (event, id) < (%(event)s::text, (select begin.id from begin))
       and (event, id) > (%(event)s::text, %(after)s::bigint)
     order by event desc, id desc limit %(window)s)
    union all
    (select id from sereno.logs
     where %(along)s::text = 'id' and id < (select begin.id from begin) and id > %(after)s::bigint
     order by id desc limit %(window)s)
)
select line.id, at, level, event, message, tenant, job_id, task, queue, trace_id, session, context
from candidates
cross join lateral (select * from sereno.logs where logs.id = candidates.id offset 0) as line
where (%(job_id)s::bigint is null or job_id = %(job_id)s)
  and (%(trace_id)s::text is null or trace_id = %(trace_id)s)
  and (%(tenant)s::text is null or tenant = %(tenant)s)
  and (%(event)s::text is null or event = %(event)s)
  and (%(at_after)s::timestamptz is null or at >= %(at_after)s)
  and (%(at_before)s::timestamptz is null or at < %(at_before)s)
  and (%(terms)s::text is null
       or not exists (
           select from jsonb_to_recordset(%(terms)s::text::jsonb) as term (field text, negated boolean, patterns text[])
           where negated = coalesce(case field
               when '' then message ilike any(patterns) when 'level' then level like any(patterns)
               when 'event' then event like any(patterns) when 'tenant' then tenant like any(patterns)
               when 'task' then task like any(patterns) when 'queue' then queue like any(patterns)
               when 'trace' then trace_id like any(patterns) when 'job' then job_id::text like any(patterns)
               when 'session' then session::text like any(patterns)
           end, false)))
order by candidates.id desc
limit %(limit)s;

-- name: find_line
-- One line with its traceback.
select id, at, level, event, message, tenant, job_id, task, queue, trace_id, session, context, traceback
from sereno.logs where id = %(id)s;
