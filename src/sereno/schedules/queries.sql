-- Queries on schedules: pages, search, counts, fires, rules, and the scheduler.

-- name: list
-- A page of schedules by key.
select coalesce(json_agg(shown order by key), '[]')::text
from (
    select key,
-- use: schedules.schedule_columns
        as shown
    from (select * from sereno.schedules
          where key > %(after)s
-- use: schedules.schedule_filter
          order by key limit %(limit)s) as page
) as shown_page;

-- name: search
-- A page of search results by key, from a bounded scan of the keys after the last page, or of those of a tenant.
select coalesce(json_agg(shown order by key), '[]')::text
from (
    select key,
-- use: schedules.schedule_columns
        as shown
    from (select * from (
              (select * from sereno.schedules
               where %(tenant)s::text is null and key > %(after)s and key >= %(start)s
               order by key limit %(window)s)
              union all
              (select * from sereno.schedules
               where tenant = %(tenant)s and key > %(after)s and key >= %(start)s
               order by key limit %(window)s)
          ) as stretch
          where true
-- use: schedules.schedule_filter
          order by key limit %(limit)s) as page
) as shown_page;

-- name: search_soonest
-- The same by due time: scans those that are due first, or those of a tenant.
select coalesce(json_agg(shown order by next_run_at), '[]')::text
from (
    select next_run_at,
-- use: schedules.schedule_columns
        as shown
    from (select * from (
              (select * from sereno.schedules where %(tenant)s::text is null and next_run_at is not null
               order by next_run_at limit %(window)s)
              union all
              (select * from sereno.schedules where tenant = %(tenant)s order by key limit %(window)s)
          ) as stretch
          where next_run_at is not null
-- use: schedules.schedule_filter
          order by next_run_at limit %(limit)s) as page
) as shown_page;

-- name: examined
-- The key at which such a scan stopped; no row if it reached the end.
select key from (
    (select key from sereno.schedules
     where %(tenant)s::text is null and key > %(after)s and key >= %(start)s
     order by key offset %(window)s - 1 limit 1)
    union all
    (select key from sereno.schedules
     where tenant = %(tenant)s and key > %(after)s and key >= %(start)s
     order by key offset %(window)s - 1 limit 1)
) as last;

-- name: soonest
-- A page of schedules by due time.
select coalesce(json_agg(shown order by next_run_at), '[]')::text
from (
    select next_run_at,
-- use: schedules.schedule_columns
        as shown
    from (select * from sereno.schedules
          where next_run_at is not null
-- use: schedules.schedule_filter
          order by next_run_at limit %(limit)s) as page
) as shown_page;

-- name: count
-- Number of matching schedules by state, up to the bound.
select state, count(*)
from (select case when state = 'enabled' and paused_until > (select sereno.now()) then 'paused' else state end as state
      from sereno.schedules
      where true
-- use: schedules.schedule_filter
      limit %(bound)s) as found
group by state order by state;

-- name: fires
-- The newest fires of a schedule from the jobs' history and the skips: what it made, what it skipped, and why. A search
-- scans a bounded number of the newest. The counts are the number fields of a result of at most 64 KiB, read after the
-- limit: a result may be long.
with runs as materialized (
    select planned_at, created_at as fired_at, id as job_id, stands_for, null::text as reason, state, started_at,
           finished_at, attempt, coalesce(error_type || ': ' || error_message, history.reason) as error, result
    from sereno.history where schedule_id = %(id)s
    order by finished_at desc limit %(window)s
),
live as materialized (
    select planned_at, created_at as fired_at, id as job_id, stands_for, null::text as reason, state, claimed_at as started_at,
           null::timestamptz as finished_at, attempt, null::text as error, null::jsonb as result
    from sereno.jobs where schedule_id = %(id)s
    order by id desc limit %(window)s
),
skips as materialized (
    select planned_at, fired_at, job_id, stands_for, reason, 'skipped' as state, null::timestamptz as started_at,
           null::timestamptz as finished_at, 0 as attempt, null::text as error, null::jsonb as result
    from sereno.fires where schedule_id = %(id)s and reason is not null
    order by planned_at desc limit %(window)s
)
select planned_at, fired_at, job_id, stands_for, reason, state, started_at, finished_at, attempt, error,
       extract(epoch from finished_at - started_at)::double precision as duration,
       (select jsonb_object_agg(key, value)
        from (select key, value
              from jsonb_each(case when pg_column_size(result) <= 65536 and jsonb_typeof(result) = 'object' then result end)
              where case when jsonb_typeof(value) = 'number' then abs(value::numeric) <= 1e18 end
              order by key limit %(fields)s) as numbers) as counts
from (
select *
from (select * from runs union all select * from live union all select * from skips) as every
where true
-- use: search.terms_begin
               when 'state' then state like any(patterns)
               when 'reason' then reason like any(patterns)
               when 'error' then sereno.message_matches(error, patterns, hides)
               when 'job' then job_id::text like any(patterns)
               when 'attempts' then attempt >= low and attempt < high
               when 'planned' then date_part('epoch', planned_at) >= low and date_part('epoch', planned_at) < high
               when 'fired' then date_part('epoch', fired_at) >= low and date_part('epoch', fired_at) < high
               when 'finished' then date_part('epoch', finished_at) >= low and date_part('epoch', finished_at) < high
               else state ilike any(patterns) or reason ilike any(patterns)
                    or sereno.message_matches(error, patterns, hides)
-- use: search.terms_end
order by planned_at desc nulls last
limit %(limit)s
) as page
order by planned_at desc nulls last;

-- name: fired_instants
-- Which of these instants of a schedule were fired or skipped before.
select coalesce(json_agg(sereno.micros(planned_at)), '[]')::text
from sereno.fires
where schedule_id = %(id)s and planned_at = any(array(select sereno.instant(at) from unnest(%(instants)s::bigint[]) as at))
  and planned_at between sereno.instant(%(first)s) and sereno.instant(%(last)s)
  and (job_id is not null or reason is null);

-- name: rules
-- Number of schedules per rule: a million schedules share a few hundred rules.
-- Counts those that are due until then, and those that wait for a run to end.
select rule::text, count(*) from sereno.schedules
where state = 'enabled' and (next_run_at is null or next_run_at <= %(until)s)
-- use: schedules.schedule_filter
group by rule
order by count(*) desc
limit %(limit)s;

-- name: key
-- The key of a schedule.
select key from sereno.schedules where id = %(id)s;

-- name: scheduler
-- Which scheduler leads, since when, until when, and its last tick.
select holder, fence, since, until, until > sereno.now() as alive, wakes_at, ticked_at, tick_seconds, tick_fires,
       error, error_at, zones,
       (select extract(epoch from sereno.now() - greatest(next_run_at, timestamptz 'epoch'))::double precision
        from sereno.schedules where next_run_at <= sereno.now() order by next_run_at limit 1) as lag
from sereno.leases where name = 'scheduler';
