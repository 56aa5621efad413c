-- What several queries share: a line "-- use: NAME" in a query stands for the lines of the part.

-- part: live_filter
-- A JobFilter, as conditions on sereno.jobs; what is null does not filter. The terms of a search that have no condition
-- of their own are tests of a field against patterns, or of the arguments against pieces of JSON; no test may fail.
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
                       when 'tag' then tags when 'trace' then array[trace] when 'key' then array[unique_key]
                       when 'id' then array[id::text]
                       when 'by' then array[(select 'schedule:' || made_by.key from sereno.schedules made_by
                                             where made_by.id = schedule_id)]
                       else array[trace, unique_key, task, queue, tenant] || tags
                   end) as has
                   where has like any(patterns))
           end))
  and (%(error)s::text is null
       or exists (select from sereno.attempts tried
                  where tried.job_id = jobs.id and tried.kept_from >= jobs.created_at - interval '1 day'
                    and strpos(lower(concat_ws(' ', tried.reason, tried.error_type, tried.error_message)),
                               lower(%(error)s)) > 0
                    and (not %(masked)s
                         or strpos(lower(sereno.masked(concat_ws(' ', tried.reason, tried.error_type, tried.error_message))),
                                   lower(%(error)s)) > 0)))
  and (%(fingerprint)s::text is null
       or id = any(array(select failed.job_id from sereno.attempts failed where failed.fingerprint = %(fingerprint)s)))

-- part: finished_filter
-- The same on sereno.history.
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
                       when 'tag' then tags when 'trace' then array[trace] when 'key' then array[unique_key]
                       when 'id' then array[id::text]
                       when 'by' then array[(select 'schedule:' || made_by.key from sereno.schedules made_by
                                             where made_by.id = schedule_id)]
                       else array[trace, unique_key, task, queue, tenant] || tags
                   end) as has
                   where has like any(patterns))
           end))
  and (%(error)s::text is null
       or (strpos(lower(concat_ws(' ', reason, error_type, error_message)), lower(%(error)s)) > 0
           and (not %(masked)s
                or strpos(lower(sereno.masked(concat_ws(' ', reason, error_type, error_message))), lower(%(error)s)) > 0)))
  and (%(fingerprint)s::text is null or (state = 'dead' and fingerprint = %(fingerprint)s))

-- part: terms_begin
-- The terms of a search are tests of a row, of which none may fail. A list uses this, has a `when` for each of its fields,
-- and uses terms_end. A test has patterns, or pieces of JSON, or numbers from `low` on and below `high`; of a moment, these
-- are seconds. What is null is not so. `hides`: for somebody who sees errors masked; then they are found by what is seen.
  and (%(terms)s::text is null
       or not exists (
           select from jsonb_to_recordset(%(terms)s::text::jsonb)
                       as term (field text, negated boolean, patterns text[], pieces jsonb,
                                low double precision, high double precision, hides boolean)
           where negated = coalesce(case field

-- part: terms_end
-- See above.
           end, false)))

-- part: delivery_terms
-- Of deliveries. A word without a field is a part of what a delivery is known by.
-- use: terms_begin
               when 'state' then state like any(patterns)
               when 'channel' then channel like any(patterns)
               when 'account' then nullif(account, '') like any(patterns)
               when 'tenant' then nullif(tenant, '') like any(patterns)
               when 'reason' then sereno.said_like(reason, patterns, hides)
               when 'error' then sereno.said_like(nullif(concat_ws(': ', error_code, error_message), ''), patterns, hides)
               when 'provider' then provider_id like any(patterns)
               when 'id' then id::text like any(patterns)
               when 'event_id' then event_id::text like any(patterns)
               when 'job' then job_id::text like any(patterns)
               when 'attempts' then attempts >= low and attempts < high
               when 'created' then date_part('epoch', created_at) >= low and date_part('epoch', created_at) < high
               when 'age' then date_part('epoch', created_at) >= low and date_part('epoch', created_at) < high
               when 'due' then date_part('epoch', due_at) >= low and date_part('epoch', due_at) < high
               when 'sent' then date_part('epoch', sent_at) >= low and date_part('epoch', sent_at) < high
               when 'changed' then date_part('epoch', changed_at) >= low and date_part('epoch', changed_at) < high
               when 'event' then (select of_it.type from sereno.events of_it where of_it.id = event_id) like any(patterns)
               when 'subject' then (select of_it.subject from sereno.events of_it where of_it.id = event_id) like any(patterns)
               when 'recipient' then (select told.key from sereno.recipients told where told.id = recipient_id) like any(patterns)
               else channel ilike any(patterns) or tenant ilike any(patterns) or provider_id ilike any(patterns)
                    or exists (select from sereno.events of_it where of_it.id = event_id
                               and (of_it.type ilike any(patterns) or of_it.subject ilike any(patterns)))
                    or exists (select from sereno.recipients told where told.id = recipient_id and told.key ilike any(patterns))
-- use: terms_end

-- part: schedule_filter
-- A ScheduleFilter, as conditions on sereno.schedules; what is null does not filter. Paused until a moment is paused. A word
-- without a field is a part of the key or of the task.
  and (%(keys)s::text[] is null or key = any(%(keys)s))
  and (%(pattern)s::text is null or key like %(pattern)s)
  and (%(task)s::text is null or task = %(task)s)
  and (%(tasks)s::text[] is null or task = any(%(tasks)s))
  and (%(tenant)s::text is null or tenant = %(tenant)s)
  and (%(states)s::text[] is null
       or case when state = 'enabled' and paused_until > sereno.now() then 'paused' else state end = any(%(states)s))
  and (%(declared_by)s::text is null or declared_by = %(declared_by)s)
-- use: terms_begin
               when 'state' then case when state = 'enabled' and paused_until > sereno.now() then 'paused'
                                      else state end like any(patterns)
               when 'key' then key like any(patterns)
               when 'task' then task like any(patterns)
               when 'queue' then queue like any(patterns)
               when 'tenant' then tenant like any(patterns)
               when 'tag' then exists (select from unnest(tags) as has where has like any(patterns))
               when 'kind' then rule ->> 'kind' like any(patterns)
               when 'zone' then coalesce(rule ->> 'tz', 'UTC') like any(patterns)
               when 'declared' then declared_by like any(patterns)
               when 'by' then changed_by like any(patterns)
               when 'note' then note ilike any(patterns)
               when 'last' then last_state like any(patterns)
               when 'error' then sereno.said_like(last_error, patterns, hides)
               when 'failed' then failed_in_row >= low and failed_in_row < high
               when 'next' then state = 'enabled' and planned and date_part('epoch', next_run_at) >= low
                                and date_part('epoch', next_run_at) < high
               when 'fired' then date_part('epoch', last_fired_at) >= low and date_part('epoch', last_fired_at) < high
               when 'created' then date_part('epoch', created_at) >= low and date_part('epoch', created_at) < high
               when 'changed' then date_part('epoch', changed_at) >= low and date_part('epoch', changed_at) < high
               when 'args' then exists (select from jsonb_array_elements(pieces) as piece where args @> piece)
               else key ilike any(patterns) or task ilike any(patterns)
-- use: terms_end

-- part: schedule_columns
-- A schedule as people see it, as one JSON object. SQL knows infinity; what never comes is not shown.
json_build_object(
    'id', id, 'key', key, 'state', state, 'rule', sereno.shown(rule), 'shift', shift,
    'next_run_at', case when isfinite(next_run_at) then next_run_at end, 'planned', planned,
    'task', task, 'queue', queue, 'priority', priority, 'tenant', tenant, 'trace', trace, 'tags', tags,
    'args', sereno.shown(args, %(most)s),
    'unique_key', unique_key, 'unique_for', sereno.finite(unique_for), 'unique_forever', unique_forever,
    'on_conflict', on_conflict, 'expires_after', sereno.finite(expires_after),
    'missed', missed, 'missed_limit', missed_limit, 'missed_window', coalesce(sereno.finite(missed_window), 0),
    'max_lateness', sereno.finite(max_lateness), 'overlap', overlap, 'disable_after', disable_after,
    'starts_at', case when isfinite(starts_at) then starts_at end,
    'ends_at', case when isfinite(ends_at) then ends_at end, 'max_fires', max_fires,
    'paused_until', case when isfinite(paused_until) then paused_until end, 'note', note, 'changed_by', changed_by,
    'declared_by', declared_by, 'created_at', created_at, 'changed_at', changed_at,
    'last_planned_at', last_planned_at, 'last_base_at', last_base_at, 'last_fired_at', last_fired_at, 'last_job_id', last_job_id,
    'last_finished_at', last_finished_at, 'last_state', last_state, 'last_error', last_error, 'held_at', case when isfinite(held_at) then held_at end,
    'fired', fired, 'missed_count', missed_count, 'succeeded', succeeded, 'failed', failed,
    'failed_in_row', failed_in_row, 'skipped', skipped, 'lateness', to_json(lateness))

-- part: claimed_jobs
-- Picked jobs become a session's. The array keeps the update on the primary key: joined, a large limit is planned as a
-- scan of the whole table. Asking for the state again, which the lock has settled, would let a plan that was made on an
-- empty table read every ready row. A dead session claims nothing.
claimed as (
    update sereno.jobs
    set state = 'running', attempt = attempt + 1, session_id = %(session)s, claimed_at = (select now from clock)
    where id = any(array(select id from picked))
      and exists (select from sereno.sessions
                  where id = %(session)s and state = 'alive' and lease_until > (select now from clock))
    returning id, attempt, task, queue, priority, ready_seq, tenant, failures, crashes, trace, args, schedule_id,
              planned_at, stands_for,
              date_part('epoch', claimed_at) as claimed_at,
              date_part('epoch', claimed_at - run_at) as waited,
              expires_at <= claimed_at as expired
)

-- part: figures_added
-- Lines of what has ended, added to what is there. In the order of the key, so that two workers never wait for each other
-- in a ring.
from jsonb_to_recordset(%(lines)s::text::jsonb) as s(
    queue text, task text, succeeded integer, retried integer, dead integer, cancelled integer, other integer,
    waits integer[], runs integer[], run_seconds double precision)
order by queue, task
on conflict (minute, queue, task) do update
set succeeded = m.succeeded + excluded.succeeded, retried = m.retried + excluded.retried, dead = m.dead + excluded.dead,
    cancelled = m.cancelled + excluded.cancelled, other = m.other + excluded.other,
    waits = sereno.added(m.waits, excluded.waits), runs = sereno.added(m.runs, excluded.runs),
    run_seconds = m.run_seconds + excluded.run_seconds

-- part: figures_summed
-- By steps of so many seconds. Each bucket is summed by name: an aggregate of our own over arrays takes ten times as long.
select row_to_json(line)::text
from (select to_timestamp(floor(extract(epoch from minute) / %(step)s) * %(step)s) as at,
             sum(succeeded)::bigint as succeeded, sum(retried)::bigint as retried, sum(dead)::bigint as dead,
             sum(cancelled)::bigint as cancelled, sum(other)::bigint as other, sum(run_seconds) as run_seconds,
             array[sum(waits[1]), sum(waits[2]), sum(waits[3]), sum(waits[4]), sum(waits[5]), sum(waits[6]),
                   sum(waits[7]), sum(waits[8]), sum(waits[9]), sum(waits[10]), sum(waits[11]),
                   sum(waits[12]), sum(waits[13]), sum(waits[14]), sum(waits[15]), sum(waits[16]),
                   sum(waits[17])] as waits,
             array[sum(runs[1]), sum(runs[2]), sum(runs[3]), sum(runs[4]), sum(runs[5]), sum(runs[6]),
                   sum(runs[7]), sum(runs[8]), sum(runs[9]), sum(runs[10]), sum(runs[11]), sum(runs[12]),
                   sum(runs[13]), sum(runs[14]), sum(runs[15]), sum(runs[16]), sum(runs[17])] as runs

-- part: figures_since
-- Of one queue or task, or of all.
      where minute >= sereno.now() - make_interval(secs => %(since)s)
        and (%(queue)s::text is null or queue = %(queue)s) and (%(task)s::text is null or task = %(task)s)
      group by 1) as line
order by at

-- part: locked_deliveries
-- The deliveries of `wanted` and those that were gathered into them, locked in the order of their ids.
locked as materialized (
    select d.id from sereno.deliveries d
    where d.id = any(array(
        select wanted.id from wanted
        union all
        select gathered.id
        from wanted join sereno.deliveries carrier on carrier.id = wanted.id and carrier.digest is not null
        join sereno.deliveries gathered
          on gathered.recipient_id = carrier.recipient_id and gathered.digest = carrier.digest
         and gathered.digest_of = carrier.id and gathered.state = 'skipped'))
    order by d.id for update
),
