-- The seed's procedures for claiming and reporting, for a worker in another language: each is one call of sereno's own functions
-- (docs/extend/worker-in-another-language.md). They run with the rights of their owner, so the worker's login needs these four, the
-- procedures on the list, and nothing else.

create table if not exists triggers.allowed_procedures (
    schema_name     text not null,
    procedure_name  text not null,
    primary key (schema_name, procedure_name)
);

-- Opens a session for the procedures that are on the list and exist, on the queue triggers-sql.
create or replace function triggers.open_worker(worker text, lease interval default '30 seconds') returns bigint
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select sereno.open_session(
        array['triggers-sql'],
        array(select schema_name || '.' || procedure_name from triggers.allowed_procedures
              where exists (select from pg_proc where proname = procedure_name
                            and pronamespace = to_regnamespace(quote_ident(schema_name)))),
        host => worker, lease => open_worker.lease)
$$;

-- usp_ClaimDueTriggers. The clock is the database's, so there is no @NowUtc.
create or replace function triggers.claim_due_triggers(session bigint, max_to_claim integer default 1)
returns table (run_id bigint, attempt integer, procedure_schema text, procedure_name text, params jsonb, planned_at timestamptz)
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select id, attempt, split_part(task, '.', 1), split_part(task, '.', 2), args, planned_at
    from sereno.claim_jobs(session, most => max_to_claim)
$$;

-- The heartbeat: every third of the lease. `stop`: runs that were cancelled, or that are no longer this worker's.
create or replace function triggers.renew_lease(session bigint, running bigint[])
returns table (alive boolean, stop bigint[])
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select alive, cancel || lost from sereno.heartbeat(session, running)
$$;

-- usp_ReportTriggerRunResult. An error if the run is no longer this worker's: in one transaction with the procedure, both are undone.
create or replace function triggers.report_trigger_run_result(
    session bigint, run_id bigint, attempt integer, success boolean, error text default null, max_retries integer default 5
) returns text
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select state from sereno.settle_jobs(session, jsonb_build_array(jsonb_build_object(
        'id', run_id, 'attempt', attempt, 'outcome', case when success then 'succeeded' else 'retry' end,
        'error_message', error, 'retries', max_retries)), strict => true)
$$;

revoke execute on all routines in schema triggers from public;
