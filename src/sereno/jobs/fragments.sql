-- Shared by several queries: a line "-- use: jobs.NAME" in a query is replaced by the lines of the fragment.

-- fragment: live_filter
-- A JobFilter as conditions on sereno.jobs; null parameters do not filter. Search terms without a condition of their own
-- test a field against patterns, or the arguments against pieces of JSON; every test must hold.
  and (%(ids)s::bigint[] is null or id = any(%(ids)s))
  and (%(states)s::text[] is null or state = any(%(states)s))
  and (%(queue)s::text is null or queue = %(queue)s)
  and (%(task)s::text is null or task = %(task)s)
  and (%(tasks)s::text[] is null or task = any(%(tasks)s))
  and (%(tenant)s::text is null or tenant = %(tenant)s)
  and (%(tag)s::text is null or tags @> array[%(tag)s::text])
  and (%(unique_key)s::text is null or unique_key = %(unique_key)s)
  and (%(created_after)s::timestamptz is null or created_at >= %(created_after)s)
  and (%(created_before)s::timestamptz is null or created_at < %(created_before)s)
  and (%(schedules)s::text[] is null
       or schedule_id = any(array(select made_by.id from sereno.schedules made_by
                                  where made_by.key = any(%(schedules)s))))
  and (%(group)s::bigint is null or group_id = %(group)s)
  and (%(waits_for)s::bigint is null or links -> 'after' @> to_jsonb(%(waits_for)s::bigint))
  and (%(attempts_from)s::integer is null or attempt >= %(attempts_from)s)
  and (%(attempts_to)s::integer is null or attempt <= %(attempts_to)s)
  and (%(terms)s::text is null
       or not exists (
           select from jsonb_to_recordset(%(terms)s::text::jsonb)
                       as term (field text, negated boolean, patterns text[], pieces jsonb)
           where negated = case
               when field = 'args'
               then exists (select from jsonb_array_elements(pieces) as piece where args @> piece)
               else exists (
                   select from unnest(case field
                       when 'queue' then array[queue] when 'task' then array[task] when 'tenant' then array[tenant]
                       when 'tag' then tags when 'trace' then array[sereno.trace_id(trace)] when 'key' then array[unique_key]
                       when 'id' then array[id::text]
                       when 'by' then array[(select 'schedule:' || made_by.key from sereno.schedules made_by
                                             where made_by.id = schedule_id)]
                       else array[sereno.trace_id(trace), unique_key, task, queue, tenant] || tags
                   end) as has
                   where has like any(patterns))
           end))
  and (%(error)s::text is null
       or exists (select from sereno.attempts tried
                  where tried.job_id = jobs.id and tried.partition_at >= jobs.created_at - interval '1 day'
                    and strpos(lower(concat_ws(' ', tried.reason, tried.error_type, tried.error_message)),
                               lower(%(error)s)) > 0
                    and (not %(masked)s
                         or strpos(lower(sereno.masked(concat_ws(' ', tried.reason, tried.error_type, tried.error_message))),
                                   lower(%(error)s)) > 0)))
  and (%(fingerprint)s::text is null
       or id = any(array(select failed.job_id from sereno.attempts failed where failed.fingerprint = %(fingerprint)s)))

-- fragment: finished_filter
-- A JobFilter as conditions on sereno.history.
  and (%(ids)s::bigint[] is null or id = any(%(ids)s))
  and (%(states)s::text[] is null or state = any(%(states)s))
  and (%(queue)s::text is null or queue = %(queue)s)
  and (%(task)s::text is null or task = %(task)s)
  and (%(tasks)s::text[] is null or task = any(%(tasks)s))
  and (%(tenant)s::text is null or tenant = %(tenant)s)
  and (%(tag)s::text is null or tags @> array[%(tag)s::text])
  and (%(unique_key)s::text is null or unique_key = %(unique_key)s)
  and (%(created_after)s::timestamptz is null or created_at >= %(created_after)s)
  and (%(created_before)s::timestamptz is null or created_at < %(created_before)s)
  and (%(schedules)s::text[] is null
       or schedule_id = any(array(select made_by.id from sereno.schedules made_by
                                  where made_by.key = any(%(schedules)s))))
  and (%(group)s::bigint is null or group_id = %(group)s)
  and (%(waits_for)s::bigint is null or links -> 'after' @> to_jsonb(%(waits_for)s::bigint))
  and (%(attempts_from)s::integer is null or attempt >= %(attempts_from)s)
  and (%(attempts_to)s::integer is null or attempt <= %(attempts_to)s)
  and (%(finished_after)s::timestamptz is null or finished_at >= %(finished_after)s)
  and (%(finished_before)s::timestamptz is null or finished_at < %(finished_before)s)
  and (%(terms)s::text is null
       or not exists (
           select from jsonb_to_recordset(%(terms)s::text::jsonb)
                       as term (field text, negated boolean, patterns text[], pieces jsonb)
           where negated = case
               when field = 'args'
               then exists (select from jsonb_array_elements(pieces) as piece where args @> piece)
               else exists (
                   select from unnest(case field
                       when 'queue' then array[queue] when 'task' then array[task] when 'tenant' then array[tenant]
                       when 'tag' then tags when 'trace' then array[sereno.trace_id(trace)] when 'key' then array[unique_key]
                       when 'id' then array[id::text]
                       when 'by' then array[(select 'schedule:' || made_by.key from sereno.schedules made_by
                                             where made_by.id = schedule_id)]
                       else array[sereno.trace_id(trace), unique_key, task, queue, tenant] || tags
                   end) as has
                   where has like any(patterns))
           end))
  and (%(error)s::text is null
       or (strpos(lower(concat_ws(' ', reason, error_type, error_message)), lower(%(error)s)) > 0
           and (not %(masked)s
                or strpos(lower(sereno.masked(concat_ws(' ', reason, error_type, error_message))), lower(%(error)s)) > 0)))
  and (%(fingerprint)s::text is null or (state = 'dead' and fingerprint = %(fingerprint)s))

-- fragment: claimed_jobs
-- Assign the picked jobs to a session. The array keeps the update on the primary key: with a join, a large limit is planned
-- as a scan of the whole table. The state is not tested again, because the rows are locked, and a plan made on an empty
-- table would then read every ready row. A dead session claims nothing.
claimed as (
    update sereno.jobs
    set state = 'running', attempt = attempt + 1, session_id = %(session)s, claimed_at = (select now from clock)
    where id = any(array(select id from picked))
      and exists (select from sereno.sessions
                  where id = %(session)s and state = 'alive' and lease_until > (select now from clock))
    returning id, attempt, task, queue, priority, ready_seq, tenant, failures, crashes, trace, args, schedule_id,
              planned_at, stands_for, case when has_successors or group_id is not null then coalesce(group_id, 0) end as link,
              date_part('epoch', claimed_at) as claimed_at,
              date_part('epoch', claimed_at - run_at) as waited,
              expires_at <= claimed_at as expired
)

-- fragment: claimed_columns
-- The claimed jobs as one JSON value, which `jobs.claim_reply` decodes: a list for each column. Null if there are none.
case when count(*) > 0 then json_build_array(
    json_agg(id), json_agg(attempt), json_agg(task), json_agg(queue), json_agg(priority), json_agg(ready_seq),
    json_agg(tenant), json_agg(args), max(claimed_at), json_agg(waited),
    json_agg(json_build_array(
        id, failures, crashes, trace, coalesce(expired, false),
        case when schedule_id is not null then json_build_array(schedule_id, planned_at, stands_for) end))
    filter (where failures > 0 or crashes > 0 or trace is not null or expired or schedule_id is not null),
    json_agg(id) filter (where link is not null), json_agg(link) filter (where link is not null))::text end,

-- fragment: figures_added
-- Add the figures of ended attempts to the stored ones. In key order, so that two workers cannot deadlock.
from jsonb_to_recordset(%(lines)s::text::jsonb) as s(
    queue text, task text, succeeded integer, retried integer, dead integer, cancelled integer, other integer,
    waits integer[], runs integer[], run_seconds double precision)
order by queue, task
on conflict (minute, queue, task) do update
set succeeded = m.succeeded + excluded.succeeded, retried = m.retried + excluded.retried, dead = m.dead + excluded.dead,
    cancelled = m.cancelled + excluded.cancelled, other = m.other + excluded.other,
    waits = sereno.added(m.waits, excluded.waits), runs = sereno.added(m.runs, excluded.runs),
    run_seconds = m.run_seconds + excluded.run_seconds

-- fragment: figures_summed
-- Sums by step. Each bucket is summed on its own: a custom aggregate over arrays takes ten times as long.
select row_to_json(line)::text
from (select date_bin(make_interval(secs => %(step)s), minute, timestamptz 'epoch') as at,
             sum(succeeded)::bigint as succeeded, sum(retried)::bigint as retried, sum(dead)::bigint as dead,
             sum(cancelled)::bigint as cancelled, sum(other)::bigint as other, sum(run_seconds) as run_seconds,
             array[sum(waits[1]), sum(waits[2]), sum(waits[3]), sum(waits[4]), sum(waits[5]), sum(waits[6]),
                   sum(waits[7]), sum(waits[8]), sum(waits[9]), sum(waits[10]), sum(waits[11]),
                   sum(waits[12]), sum(waits[13]), sum(waits[14]), sum(waits[15]), sum(waits[16]),
                   sum(waits[17])] as waits,
             array[sum(runs[1]), sum(runs[2]), sum(runs[3]), sum(runs[4]), sum(runs[5]), sum(runs[6]),
                   sum(runs[7]), sum(runs[8]), sum(runs[9]), sum(runs[10]), sum(runs[11]), sum(runs[12]),
                   sum(runs[13]), sum(runs[14]), sum(runs[15]), sum(runs[16]), sum(runs[17])] as runs

-- fragment: figures_since
-- Restricts figures to one queue or task; all of them if neither is given.
      where minute >= (select sereno.now()) - make_interval(secs => %(since)s)
        and (%(queue)s::text is null or queue = %(queue)s) and (%(task)s::text is null or task = %(task)s)
      group by 1) as line
order by at
