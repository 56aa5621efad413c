-- The newest instants of many schedules at once, for a page that shows them in a row.

-- name: newest
-- The newest runs and skips of each of these schedules, each part by its own index and no longer than the page shows.
-- At most 500 live runs are scanned per schedule: a backfill may have made more.
select wanted.id, every.planned_at, every.fired_at, every.job_id, every.stands_for, every.reason, every.state,
       every.started_at, every.finished_at, every.attempt, every.error,
       extract(epoch from every.finished_at - every.started_at)::double precision as duration
from unnest(%(ids)s::bigint[]) as wanted(id)
cross join lateral (
    select *
    from (
        (select planned_at, created_at as fired_at, id as job_id, stands_for, null::text as reason, state, started_at,
                finished_at, attempt, coalesce(error_type || ': ' || left(error_message, 200), history.reason) as error
         from sereno.history where schedule_id = wanted.id
         order by finished_at desc limit %(limit)s)
        union all
        (select planned_at, created_at, id, stands_for, null, state, claimed_at, null, attempt, null
         from (select * from sereno.jobs where schedule_id = wanted.id limit 500) as live
         order by id desc limit %(limit)s)
        union all
        (select planned_at, fired_at, job_id, stands_for, reason, 'skipped', null, null, 0, null
         from sereno.fires where schedule_id = wanted.id and reason is not null
         order by planned_at desc limit %(limit)s)
    ) as parts
    order by planned_at desc nulls last
    limit %(limit)s
) as every;

-- name: tally
-- Number of matching schedules by state, and how many of them need attention: parked, disabled after failures, or last
-- run dead. Counts up to the bound.
select state, count(*),
       count(*) filter (where state = 'parked' or (state = 'enabled' and failed_in_row > 0)
                        or (state = 'disabled' and starts_with(note, 'disabled after ')))
from (select case when state = 'enabled' and paused_until > (select sereno.now()) then 'paused' else state end as state,
             failed_in_row, note
      from sereno.schedules
      where true
-- use: schedules.schedule_filter
      limit %(bound)s) as found
group by state order by state;
