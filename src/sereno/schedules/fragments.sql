-- Fragments that several queries share: a line "-- use: schedules.NAME" is replaced by the lines of the fragment.

-- fragment: schedule_filter
-- A ScheduleFilter as conditions on sereno.schedules; a null parameter does not filter. A schedule paused until a
-- moment counts as paused. A search word without a field matches a part of the key or of the task.
  and (%(keys)s::text[] is null or key = any(%(keys)s))
  and (%(pattern)s::text is null or key like %(pattern)s)
  and (%(task)s::text is null or task = %(task)s)
  and (%(tasks)s::text[] is null or task = any(%(tasks)s))
  and (%(tenant)s::text is null or tenant = %(tenant)s)
  and (%(states)s::text[] is null
       or case when state = 'enabled' and paused_until > (select sereno.now()) then 'paused' else state end = any(%(states)s))
  and (%(declared_by)s::text is null or declared_by = %(declared_by)s)
-- use: search.terms_begin
               when 'state' then case when state = 'enabled' and paused_until > (select sereno.now()) then 'paused'
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
               when 'error' then sereno.message_matches(last_error, patterns, hides)
               when 'failed' then failed_in_row >= low and failed_in_row < high
               when 'next' then state = 'enabled' and planned and date_part('epoch', next_run_at) >= low
                                and date_part('epoch', next_run_at) < high
               when 'fired' then date_part('epoch', last_fired_at) >= low and date_part('epoch', last_fired_at) < high
               when 'created' then date_part('epoch', created_at) >= low and date_part('epoch', created_at) < high
               when 'changed' then date_part('epoch', changed_at) >= low and date_part('epoch', changed_at) < high
               when 'args' then exists (select from jsonb_array_elements(pieces) as piece where args @> piece)
               else key ilike any(patterns) or task ilike any(patterns)
-- use: search.terms_end

-- fragment: schedule_columns
-- A schedule as one JSON object for clients. An infinite date becomes null.
json_build_object(
    'id', id, 'key', key, 'state', state, 'rule', sereno.shown(rule), 'shift', shift,
    'next_run_at', case when isfinite(next_run_at) then next_run_at end, 'planned', planned,
    'task', task, 'queue', queue, 'priority', priority, 'tenant', tenant, 'trace', trace, 'tags', tags,
    'args', sereno.shown(args, %(most)s),
    'unique_key', unique_key, 'unique_for', sereno.finite(unique_for), 'unique_forever', unique_forever,
    'requires', requires, 'on_conflict', on_conflict, 'expires_after', sereno.finite(expires_after),
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
