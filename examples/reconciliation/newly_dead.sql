-- Records the dead letters that have not been reported yet, and returns them. Those of the last two seconds wait for the
-- next pass: the log line with their stage is written within a second.
with dead as (
    select id, attempt, task, tenant, args, trace, coalesce(error_message, reason) as error
    from sereno.jobs_v1
    where state = 'dead' and task like 'reconciliation.%%' and task <> 'reconciliation.report_failures'
      and finished_at between %(now)s - interval '7 days' and %(now)s - interval '2 seconds'
),
newly as (
    insert into reconciliation.reported (job_id, attempt) select id, attempt from dead
    on conflict do nothing
    returning job_id, attempt
)
select id as run, task, tenant as account, args ->> 'merchant' as merchant,
       coalesce(args ->> 'competence', args ->> 'day', args ->> 'night') as period,
       (select context ->> 'stage' from sereno.logs
        where logs.job_id = dead.id and level = 'error' and context ? 'stage' order by logs.id desc limit 1) as stage,
       error, trace
from dead join newly on (id, dead.attempt) = (job_id, newly.attempt)
order by id
