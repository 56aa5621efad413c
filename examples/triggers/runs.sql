-- The seed's history of runs, as a view: every attempt of every trigger, those that crashed, and the instants that were skipped.

create or replace view triggers.event_trigger_runs as
select s.key as trigger, run.*
from (
    select schedule_id, planned_at, job_id, number as attempt, a.started_at, a.finished_at, outcome as status,
           coalesce(a.error_message, a.reason) as error
    from sereno.attempts a
    join (select id, schedule_id, planned_at from sereno.jobs
          union all
          select id, schedule_id, planned_at from sereno.history) as job on job.id = a.job_id
    union all
    select schedule_id, planned_at, id, attempt, started_at, finished_at, state, coalesce(error_message, reason)
    from sereno.history
    union all
    select schedule_id, planned_at, id, attempt, claimed_at, null, state, null
    from sereno.jobs where state = 'running'
    union all
    select schedule_id, planned_at, null, null, fired_at, fired_at, 'skipped', reason
    from sereno.fires where reason is not null
) as run
join sereno.schedules s on s.id = run.schedule_id;
