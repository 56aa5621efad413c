-- The lock and the state of the job runner under the names of the original design, so that the SELECTs of its runbook work.
-- They read sereno's tables (docs/reference/sql.md). Where sereno has another schema, replace its name here.

-- Who leads: one row, or none while no worker is alive. The leader renews its lease; updated_at is its last tick.
create or replace view separate_worker.job_runner_lock as
select 'singleton'::text as id, holder as locked_by, since as locked_at, until as expires_at,
       since as created_at, greatest(since, ticked_at) as updated_at
from sereno.leases
where name = 'scheduler' and until > sereno.now();

-- Without it, PostgreSQL would pass a DELETE on to the lease of a live worker.
create or replace function separate_worker.refuse_change() returns trigger language plpgsql as $$
begin
    raise exception 'job_runner_lock cannot be changed: the lock of a dead worker expires by itself'
        using hint = 'sereno worker list shows the live workers, and sereno doctor what hinders them.';
end $$;

create or replace trigger refuse_change instead of insert or update or delete on separate_worker.job_runner_lock
    for each row execute function separate_worker.refuse_change();

-- Every run of the cycle that has ended.
create or replace view separate_worker.cycles as
select id as job_id, coalesce(planned_at, started_at) as planned_at, started_at, finished_at, state, result,
       coalesce(error_type || ': ' || error_message, case when state <> 'succeeded' then reason end) as error
from sereno.jobs_v1
where schedule_id = (select id from sereno.schedules_v1 where key = 'separate_worker.follow_ups')
  and started_at is not null and finished_at is not null;

-- The last run of the cycle; no row before the first one. created_at is when a worker declared the cycle.
create or replace view separate_worker.job_runner_state as
select 'singleton'::text as id, last.started_at as last_run_at,
       (extract(epoch from last.finished_at - last.started_at) * 1000)::integer as last_run_duration_ms,
       coalesce((last.result ->> 'job_count')::integer, 0) as last_run_job_count, last.error as last_run_error,
       schedules.created_at, last.finished_at as updated_at
from sereno.schedules_v1 as schedules
cross join lateral (select * from separate_worker.cycles order by finished_at desc limit 1) as last
where schedules.key = 'separate_worker.follow_ups';

-- Cycles that were due after the last run that ended and that the scheduler skipped, such as during a run that takes long.
create or replace view separate_worker.skipped_cycles as
select planned_at, reason, stands_for
from sereno.fires_v1
where schedule_id = (select id from sereno.schedules_v1 where key = 'separate_worker.follow_ups') and reason is not null
  and planned_at > (select planned_at from separate_worker.cycles order by finished_at desc limit 1);

-- Of the jobs that are not counted yet, those that have succeeded, died or were cancelled.
create or replace view separate_worker.ended_jobs as
select job_id
from separate_worker.uncounted_jobs
where not exists (select from sereno.jobs where jobs.id = job_id);
