-- The procedures of the original design for claiming and reporting, for a worker in another language. They call sereno's own functions
-- (docs/extend/worker-in-another-language.md) with the rights of their owner, so the worker's login needs these four, the procedures
-- on the allow-list, and nothing else. The list is that of sereno, and is read at each claim.

-- Opens a session for the triggers in the queue triggers-sql.
create or replace function triggers.open_worker(worker text, lease interval default '30 seconds') returns bigint
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select sereno.open_session(array['triggers-sql'], array['triggers.call'], host => worker, lease => open_worker.lease)
$$;

-- Returns why a procedure must not be called; null for one that is on the list and exists, and that the caller may execute.
create or replace function triggers.refusal(target text, procedure_schema text, procedure_name text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case
        when target <> 'here' then 'is on ' || target || ', and a worker in another language calls procedures here only'
        when not exists (select from triggers.allowed_procedures
                         where (targetname, schemaname, procedurename) = ('here', refusal.procedure_schema, refusal.procedure_name))
            then 'is not allowed on here: sereno procedure allow'
        when not exists (select from pg_proc p join pg_namespace n on n.oid = p.pronamespace
                         where (n.nspname, p.proname) = (refusal.procedure_schema, refusal.procedure_name)
                           and has_function_privilege(session_user, p.oid, 'execute'))
            then 'does not exist, or ' || quote_ident(session_user) || ' may not execute it' end
$$;

-- usp_ClaimDueTriggers. The clock is the database's, so there is no @NowUtc. A run whose procedure must not be called is not returned:
-- it is dead, with the reason. `params` has what the list fills in from the run, and no trigger can set: `job`, `planned_at` …
create or replace function triggers.claim_due_triggers(session bigint, max_to_claim integer default 1)
returns table (run_id bigint, attempt integer, procedure_schema text, procedure_name text, params jsonb, planned_at timestamptz,
               timeout_seconds double precision)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    run      record;
    allowed  record;
    reason   text;
begin
    for run in
        select * from sereno.claim_jobs(session, most => max_to_claim)
    loop
        procedure_schema := run.args ->> 'schema';
        procedure_name := run.args ->> 'procedure';
        reason := triggers.refusal(coalesce(run.args ->> 'target', 'here'), procedure_schema, procedure_name);
        if reason is not null then
            perform sereno.settle_jobs(session, jsonb_build_array(jsonb_build_object(
                'id', run.id, 'attempt', run.attempt, 'outcome', 'dead',
                'reason', concat_ws(' ', procedure_schema || '.' || procedure_name, reason))));
            continue;
        end if;
        select filledin, timeoutseconds into allowed from triggers.allowed_procedures a
        where (a.targetname, a.schemaname, a.procedurename)
            = ('here', claim_due_triggers.procedure_schema, claim_due_triggers.procedure_name);
        run_id := run.id;
        attempt := run.attempt;
        planned_at := run.planned_at;
        timeout_seconds := least(allowed.timeoutseconds, (run.args ->> 'timeout_seconds')::double precision);
        params := coalesce(run.args -> 'params', '{}') || (
            select coalesce(jsonb_object_agg(given.key, jsonb_build_object(
                'job', run.id, 'attempt', run.attempt, 'tenant', run.tenant, 'trace', run.trace, 'planned_at', run.planned_at
            ) -> given.value), '{}')
            from jsonb_each_text(allowed.filledin) as given);
        return next;
    end loop;
end $$;

-- The heartbeat: every third of the lease. `stop`: runs that were cancelled, or that are no longer this worker's.
create or replace function triggers.renew_lease(session bigint, running bigint[])
returns table (alive boolean, stop bigint[])
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select alive, cancel || lost from sereno.heartbeat(session, running)
$$;

-- usp_ReportTriggerRunResult, with the retries and the backoff of the trigger. An error if the run is no longer this worker's: in one
-- transaction with the procedure, both are undone.
create or replace function triggers.report_trigger_run_result(
    session bigint, run_id bigint, attempt integer, success boolean, error text default null
) returns text
language sql security definer set search_path = pg_catalog, pg_temp as $$
    with run as (
        select coalesce((j.args ->> 'max_retries')::integer, d.maxretries) as retries,
               coalesce((j.args ->> 'backoff_seconds')::double precision, d.backoffseconds) * 2 ^ least(j.failures, 30) as delay
        from triggers.trigger_defaults d left join sereno.jobs_v1 j on j.id = run_id
    )
    select settled.state
    from run cross join lateral sereno.settle_jobs(session, jsonb_build_array(jsonb_build_object(
        'id', run_id, 'attempt', attempt, 'outcome', case when success then 'succeeded' else 'retry' end, 'error_message', error,
        'retries', run.retries, 'delay', least(3600, run.delay) * (1 + random() / 10))), strict => true) as settled
$$;

revoke execute on all routines in schema triggers from public;
