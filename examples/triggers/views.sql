-- The tables of the original design, as views in its own words, for the reports and runbooks that read them. Names are not quoted:
-- `select TriggerId from triggers.event_triggers where IsEnabled = 1` works as it is written. All times are timestamptz.

-- The defaults of a trigger that does not say otherwise: those of the task `triggers.call` (a test compares them).
create or replace view triggers.trigger_defaults as select 5 as MaxRetries, 60.0 as BackoffSeconds;

-- The words of the original design for the outcome of a run. A run that will be retried has failed, and is shown so.
create or replace view triggers.status_words (outcome, word) as
values ('running', 'Running'), ('succeeded', 'Success'), ('retry', 'Failed'), ('dead', 'Failed'), ('cancelled', 'Cancelled'),
       ('crash', 'Crashed'), ('release', 'Released'), ('snooze', 'Postponed');

-- AllowedProcedures: the allow-list of sereno. `sereno procedure allow` writes it.
create or replace view triggers.allowed_procedures as
select p.schema as SchemaName, p.name as ProcedureName, p.target as TargetName, p.given as FilledIn, p.timeout as TimeoutSeconds,
       p.note as Note, p.allowed_by as AllowedBy, p.allowed_at as AllowedAtUtc
from sereno.procedures_v1 p;

-- EventTriggers: one row for each trigger.
create or replace view triggers.event_triggers as
select s.id as TriggerId,
       s.key as TriggerName,
       s.args ->> 'schema' as ProcedureSchema,
       s.args ->> 'procedure' as ProcedureName,
       coalesce(s.args ->> 'target', 'here') as TargetName,
       coalesce(s.args -> 'params', '{}') as ParamsJson,
       exists (select from triggers.allowed_procedures a
               where (a.TargetName, a.SchemaName, a.ProcedureName)
                   = (coalesce(s.args ->> 'target', 'here'), s.args ->> 'schema', s.args ->> 'procedure'))::integer as IsAllowed,
       (s.state = 'enabled')::integer as IsEnabled,
       -- 1 once, 2 interval, 3 cron.
       case s.rule ->> 'kind' when 'once' then 1 when 'every' then 2 else 3 end as ScheduleType,
       case when s.rule ->> 'kind' = 'once' then (s.rule ->> 'at')::timestamptz end as RunAtUtc,
       (s.rule ->> 'interval')::numeric as IntervalSeconds,
       (s.rule ->> 'count_from' is not distinct from 'clock')::integer as AlignToClock,
       -- What an interval is counted from: the end of the last run, or the instant before, without drift.
       case when s.rule ->> 'kind' = 'every'
            then case s.rule ->> 'count_from' when 'end' then 'LastRunAtUtc' else 'NextRunAtUtc' end end as IntervalBase,
       case s.rule ->> 'kind'
            when 'cron' then s.rule ->> 'expression'
            when 'daily' then extract(minute from (s.rule ->> 'at')::time) || ' ' || extract(hour from (s.rule ->> 'at')::time) || ' * * *'
       end as CronExpression,
       case when s.rule ->> 'kind' in ('cron', 'daily') then coalesce(s.rule ->> 'tz', 'UTC') end as TimeZoneId,
       s.next_run_at as NextRunAtUtc,
       s.last_fired_at as LastRunAtUtc,
       case when run.state = 'running' then 'Running'
            when run.failures > 0 then 'Failed'
            else (select word from triggers.status_words where outcome = s.last_state) end as LastStatus,
       coalesce(run.failures, 0) as CurrentRetryCount,
       case when run.failures > 0 and run.state = 'scheduled' then run.run_at end as NextRetryAtUtc,
       coalesce((s.args ->> 'max_retries')::integer, d.MaxRetries) as MaxRetries,
       coalesce((s.args ->> 'backoff_seconds')::numeric, d.BackoffSeconds) as BackoffSeconds,
       (s.args ->> 'timeout_seconds')::numeric as TimeoutSeconds,
       nullif(s.args ->> 'concurrency_key', '{key}') as ConcurrencyKey,
       worker.lease_until as LockedUntilUtc,
       worker.host || ' ' || worker.pid as LockedBy,
       coalesce(s.note, s.last_error) as Note,
       s.created_at as CreatedAtUtc,
       s.changed_at as UpdatedAtUtc
from sereno.schedules_v1 s
cross join triggers.trigger_defaults d
left join lateral (
    select j.state, j.failures, j.run_at, j.session_id from sereno.jobs_v1 j
    where j.schedule_id = s.id and j.state in ('scheduled', 'ready', 'running')
    order by j.state = 'running' desc, j.id desc limit 1
) as run on true
left join sereno.sessions_v1 worker on worker.id = run.session_id and run.state = 'running'
where s.task = 'triggers.call';

-- EventTriggerRuns: every attempt, those that crashed too, and the instants that were skipped, with the reason.
create or replace view triggers.event_trigger_runs as
select j.id as RunId, j.schedule_id as TriggerId, j.schedule as TriggerName,
       j.args ->> 'schema' as ProcedureSchema, j.args ->> 'procedure' as ProcedureName,
       j.planned_at as PlannedAtUtc, a.number as Attempt, a.started_at as StartedAtUtc, a.finished_at as FinishedAtUtc,
       (select word from triggers.status_words w where w.outcome = a.outcome) as Status, coalesce(a.error_message, a.reason) as ErrorMessage,
       worker.host || ' ' || worker.pid as WorkerId
from sereno.jobs_v1 j
join sereno.attempts_v1 a on a.job_id = j.id
left join sereno.sessions_v1 worker on worker.id = a.session_id
where j.task = 'triggers.call'
union all
select null, f.schedule_id, f.schedule, s.args ->> 'schema', s.args ->> 'procedure',
       f.planned_at, null, null, f.fired_at, 'Skipped', f.reason, null
from sereno.fires_v1 f
join sereno.schedules_v1 s on s.id = f.schedule_id
where f.reason is not null and s.task = 'triggers.call';
