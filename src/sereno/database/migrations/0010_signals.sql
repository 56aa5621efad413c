-- Signals: values that are sent to jobs by name, and the jobs that wait for them.

-- A signal is not consumed: every job that waits for its name gets it, until its retention is over. `is_checked`: since
-- the signal was committed, a worker has searched for jobs that wait for it.
create table sereno.signals (
    id          bigint generated always as identity primary key,
    name        text not null,
    tenant      text,
    value       sereno.bounded_json not null default 'null',
    sent_at     timestamptz not null default sereno.now(),
    is_checked  boolean not null default false,
    constraint signals_name_length check (length(name) between 1 and 200),
    constraint signals_tenant_length check (length(tenant) between 1 and 500)
);

create index signals_name on sereno.signals (name, coalesce(tenant, ''), id);
create index signals_unchecked on sereno.signals (id) where not is_checked;
create index signals_sent_at on sereno.signals (sent_at);

-- A job that waits for a signal; it ends with the answer, or with the job. `since`: signals sent earlier do not count.
-- `until`: when the wait times out. `attempt`: the attempt that was settled as waiting; null while the job runs. A job
-- that failed since then has the same row and another attempt, so that a signal never shortens a retry.
-- `is_checked`: since the settlement was committed, a worker has searched for stored signals.
create table sereno.signal_waits (
    job_id      bigint not null,
    name        text not null,
    tenant      text,
    since       timestamptz not null,
    until       timestamptz not null,
    attempt     integer,
    is_checked  boolean not null default true,
    primary key (job_id, name)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

create index signal_waits_name on sereno.signal_waits (name, coalesce(tenant, ''), job_id) where attempt is not null;
create index signal_waits_unchecked on sereno.signal_waits (job_id) where not is_checked;

-- Send a signal to the jobs that wait for its name, now or later, in the transaction of the caller; return its id.
--   select sereno.signal('paid:42', '{"amount": 7}', tenant => 'r42');
-- Waiting jobs become ready with the commit. A job that is locked is skipped, and so is one that is still running: the
-- caller's transaction may stay open, and the worker of that job would wait for it with everything that it settles in the
-- same batch. Workers find those jobs after the commit (see jobs/signals.sql). In a transaction above READ COMMITTED,
-- locking a job that changed since its snapshot would raise an error, so there only workers wake the jobs.
create function sereno.signal(name text, value jsonb default 'null', tenant text default null) returns bigint
    language plpgsql as $$
declare
    moment  timestamptz := sereno.clock_now();
    made    bigint;
    woken   record;
begin
    if coalesce(length(signal.name), 0) not between 1 and 200 or length(signal.tenant) not between 1 and 500 then
        raise exception 'signal "%": a name has 1 to 200 characters, and a tenant 1 to 500', left(signal.name, 60)
            using errcode = 'invalid_parameter_value', hint = 'Put longer texts into the value.';
    end if;
    insert into sereno.signals (name, tenant, value, sent_at)
    values (signal.name, signal.tenant, coalesce(signal.value, 'null'), moment)
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
