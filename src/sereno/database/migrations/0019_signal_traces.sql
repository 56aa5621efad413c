-- A signal has the trace of its sender, so that the attempt that receives it can be linked to that.
alter table sereno.signals add column trace text;

-- As before, and it stores the trace. The two signatures must not exist together: a call with three arguments would fit
-- both.
drop function sereno.signal(text, jsonb, text);

-- Send a signal to the jobs that wait for its name, now or later, in the transaction of the caller; return its id.
--   select sereno.signal('paid:42', '{"amount": 7}', tenant => 'r42');
-- Waiting jobs become ready with the commit. A job that is locked is skipped, and so is one that is still running: the
-- caller's transaction may stay open, and the worker of that job would wait for it with everything that it settles in the
-- same batch. Workers find those jobs after the commit (see jobs/signals.sql). In a transaction above READ COMMITTED,
-- locking a job that changed since its snapshot would raise an error, so there only workers wake the jobs.
create function sereno.signal(name text, value jsonb default 'null', tenant text default null, trace text default null)
    returns bigint
    language plpgsql as $$
declare
    moment  timestamptz := sereno.clock_now();
    made    bigint;
    woken   record;
begin
    if coalesce(length(signal.name), 0) not between 1 and 200 or length(signal.tenant) not between 1 and 500
       or length(signal.trace) not between 1 and 500 then
        raise exception 'signal "%": a name has 1 to 200 characters, and a tenant 1 to 500, as a trace', left(signal.name, 60)
            using errcode = 'invalid_parameter_value', hint = 'Put longer texts into the value.';
    end if;
    insert into sereno.signals (name, tenant, value, trace, sent_at)
    values (signal.name, signal.tenant, coalesce(signal.value, 'null'), signal.trace, moment)
    returning id into made;
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        if coalesce(current_setting('sereno.notify', true), '') <> 'off' and exists (select from sereno.sessions where idle) then
            perform pg_notify('sereno.due', '0 ');
        end if;
        return made;
    end if;
    for woken in
        with waiting as materialized (
            select waits.job_id, waits.attempt
            from sereno.signal_waits waits
            join sereno.jobs on jobs.id = waits.job_id and jobs.attempt = waits.attempt and jobs.state = 'scheduled'
            where waits.name = signal.name and coalesce(waits.tenant, '') = coalesce(signal.tenant, '')
              and waits.attempt is not null
            order by waits.job_id limit 1000
        ),
        locked as materialized (
            select id from sereno.jobs
            where id = any(array(select job_id from waiting)) and state = 'scheduled'
              and (id, attempt) in (select job_id, waiting.attempt from waiting)
            order by id
            for update skip locked
        ),
        moved as (
            update sereno.jobs set state = 'ready', run_at = moment, ready_seq = nextval('sereno.ready_seq')
            where id = any(array(select id from locked))
            returning id, queue
        ),
        -- A worker may be checking the wait at this moment; then the row stays, and its attempt ends with the next claim.
        unlocked as materialized (
            select waits.job_id, waits.name from sereno.signal_waits waits
            where waits.job_id = any(array(select id from locked)) and waits.attempt is not null
            for update skip locked
        ),
        disarmed as (
            update sereno.signal_waits waits set attempt = null, is_checked = true
            from unlocked where waits.job_id = unlocked.job_id and waits.name = unlocked.name
        )
        select queue from moved group by queue
    loop
        perform sereno.notify_ready(woken.queue, 0);
    end loop;
    return made;
end $$;

-- Comments of public functions; a function without one is internal. docs/reference/sql-functions.md is made of them.
comment on function sereno.signal is
    'Send a signal in the current transaction to the jobs that wait for its name, now or later, and return its '
    'id.';
