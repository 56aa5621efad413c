-- The tables of the original design as views, under their old names: `set search_path to reconciliation, public`, and the
-- queries of its runbooks work. They read the tables of this program, and sereno's read contract (views with a version
-- in their names). A run is a job, so `run_id`, `file_id` and the job's id are one number.

create or replace view reconciliation.ifood_jobs as
select id,
       case task when 'reconciliation.reconcile' then 'conciliation' else 'sales_sync' end as job_type,
       tenant as account_id,
       args ->> 'merchant' as merchant_id,
       args ->> 'competence' as competence,
       args ->> 'day' as job_day,
       created_at as scheduled_for,
       -- `error`: failed, and will be tried again.
       case when state = 'running' then 'running'
            when state = 'succeeded' then 'success'
            when finished_at is not null then 'failed'
            when failures > 0 then 'error'
            else 'pending' end as status,
       failures + (state = 'succeeded')::int as attempts,
       case when state = 'scheduled' then run_at end as next_retry_at,
       case when state <> 'succeeded' then coalesce(error_message, reason) end as last_error,
       id as run_id,
       trace as trace_id,
       started_at as locked_at,
       case when started_at is not null and finished_at is null then host || ':' || pid end as locked_by,
       args ->> 'source' as trigger_source,
       created_at,
       coalesce(finished_at, started_at, created_at) as updated_at,
       finished_at,
       result
from sereno.jobs_v1
where task in ('reconciliation.reconcile', 'reconciliation.sales_sync');

create or replace view reconciliation.ifood_conciliation_runs as
select jobs.id, jobs.account_id, jobs.merchant_id, jobs.competence, jobs.status, jobs.trigger_source, jobs.trace_id,
       files.id as file_id, files.path as storage_path, jobs.last_error as error_message,
       jobs.created_at, jobs.updated_at, jobs.finished_at, files.processed_at
from reconciliation.ifood_jobs as jobs left join reconciliation.files on files.id = jobs.id
where jobs.job_type = 'conciliation';

create or replace view reconciliation.ifood_sales_sync_status as
select jobs.id, jobs.account_id, jobs.merchant_id, jobs.job_day, jobs.status, jobs.trigger_source, jobs.trace_id,
       (jobs.result ->> 'sales')::integer as sales, jobs.last_error as error_message, jobs.created_at, jobs.finished_at
from reconciliation.ifood_jobs as jobs
where jobs.job_type = 'sales_sync';

create or replace view reconciliation.received_files as
select id, account as account_id, merchant as merchant_id, competence, path as storage_path, sha256,
       case when replaced_at is not null then 'replaced' when processed_at is not null then 'processed' else 'received'
       end as status,
       lines, orders, lines_announced, orders_announced, received_at as created_at, processed_at
from reconciliation.files;

-- The last run of each account and job type that has ended. Jobs are kept for a month; successes are known longer.
create or replace view reconciliation.last_runs as
select distinct on (account_id, job_type) account_id, job_type, finished_at, status, last_error
from (
    select account_id, job_type, finished_at, status, last_error
    from reconciliation.ifood_jobs where finished_at is not null
    union all
    select account, 'conciliation', received_at, 'success', null from reconciliation.files
    union all
    select account, 'sales_sync', synchronised_at, 'success', null from reconciliation.sales_days
) as ended
order by account_id, job_type, finished_at desc;

create or replace view reconciliation.ifood_schedules as
select accounts.id as account_id, accounts.merchant as merchant_id, accounts.enabled, accounts.zone as timezone,
       accounts.hour::time as preferred_hour,
       'reconcile' = any(accounts.runs) as run_conciliation,
       'sales_sync' = any(accounts.runs) as run_sales_sync,
       conciliation.finished_at as last_conciliation_run_at, conciliation.status as last_conciliation_status,
       sales.finished_at as last_sales_sync_run_at, sales.status as last_sales_sync_status,
       accounts.created_at, accounts.updated_at,
       conciliation.last_error as last_conciliation_error, sales.last_error as last_sales_sync_error
from reconciliation.accounts
left join reconciliation.last_runs as conciliation
       on (conciliation.account_id, conciliation.job_type) = (accounts.id, 'conciliation')
left join reconciliation.last_runs as sales on (sales.account_id, sales.job_type) = (accounts.id, 'sales_sync');

-- The central log, with what it has in columns in `context` too. Lines of sereno itself about a run get its feature, so
-- that a run whose worker was killed is found like one that logged its error.
create or replace view reconciliation.logs as
select id, at as created_at, level, event, message, tenant as account_id, context ->> 'file_id' as file_id, trace_id,
       jsonb_strip_nulls(jsonb_build_object(
           'feature', case task when 'reconciliation.reconcile' then 'ifood_conciliation'
                                when 'reconciliation.process' then 'ifood_conciliation'
                                when 'reconciliation.sales_sync' then 'ifood_sales_sync' end,
           'account_id', tenant, 'trace_id', trace_id, 'job_id', job_id, 'event', event)) || context as context,
       traceback
from sereno.logs;
