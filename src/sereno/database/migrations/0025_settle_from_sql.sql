-- How attempts end, said by SQL (see 0024_public_functions.sql), and the figures of them.

-- What a job was to a session that is no longer alive; it decides what the death means for the job.
--   'left'    the session closed itself: no crash.
--   'alone'   a suspect that ran alone, as the session had announced before it began: one crash more, and the limit is the end.
--             A worker in another language announces nothing; there it is a suspect that was the session's only job.
--   'waited'  claimed ahead, and not begun when the session last said so: it goes back without charge, once. One that goes
--             through this twice may have begun since, both times, and is treated as if it had.
--   'began'   or may have: it is a suspect from now on, and runs alone. Deaths as one of many charge it no further.
create function sereno.part_in_death(job_id bigint, tried integer, crashes integer, owner bigint) returns text
    language sql stable as $$
    select case
        when state = 'closed' then 'left'
        when (suspects ->> job_id::text)::integer = tried then 'alone'
        when opened_by is not null and crashes > 0
             and 1 = (select count(*) from sereno.jobs other where other.state = 'running' and other.session_id = owner) then 'alone'
        when job_id = any(waiting)
             and not exists (select from sereno.attempts before
                             where before.job_id = part_in_death.job_id and before.outcome = 'release'
                               and before.session_id = any(array(select id from sereno.sessions where state = 'dead'))) then 'waited'
        else 'began' end
    from (values (owner)) as wanted(id) left join sereno.sessions using (id)
    $$;

-- The words for it in the attempts of a job.
create function sereno.words_for_death(part text, owner bigint) returns text
    language sql immutable as $$
    select case part when 'left' then 'left behind at shutdown' else 'its worker session ' || owner || ' died' || case part
        when 'alone' then ' while it ran alone' when 'waited' then ' before it began' else '' end end
    $$;

-- Attempts that ended by SQL, until a heartbeat has added them to the figures. Only ever added to, so that nobody waits here.
create table sereno.ended_attempts (
    id           bigint generated always as identity primary key,
    at           timestamptz not null,
    queue        text not null,
    task         text not null,
    tenant       text,
    outcome      text not null,
    waited       double precision not null,
    ran          double precision not null,
    failures     integer not null,
    job_id       bigint not null,
    fingerprint  text,
    error_type   text,
    message      text,
    frame        text
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- A histogram of one duration, by the buckets of sereno.telemetry.metrics, and beyond.
create function sereno.bucket(seconds double precision) returns integer[]
    language sql immutable as $$
    select array_agg((place = 1 + (select count(*) from unnest(edges) as edge where edge < seconds))::integer order by place)
    from (values ('{0.001,0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,300,1800}'::double precision[])) as e(edges),
         generate_series(1, 17) as place
    $$;

-- Which failures are the same one. Simpler than domain/fingerprint.py, and never equal to what a worker in Python gives: where it
-- was raised is what the caller says, and of the message, quoted values, addresses and words with digits are left out.
create function sereno.fingerprint_of(task text, error_type text, message text, frame text) returns text
    language sql immutable as $$
    select left(encode(sha256(convert_to(concat_ws(e'\x01', task, error_type, left(words, 200), frame), 'UTF8')), 'hex'), 12)
    from regexp_replace(regexp_replace(left(message, 1000), '"[^"]*"|''[^'']*''|`[^`]*`|\S+@\S+', '<text>', 'g'),
                        '\w*\d[\w.,:-]*', '<id>', 'g') as words
    $$;

-- What ended, by steps of time, as sereno.minutes has it.
create function sereno.figures_of(lines sereno.ended_attempts[], step interval) returns setof sereno.minutes
    language sql stable as $$
    select date_bin(step, at, 'epoch'), queue, task, count(*) filter (where outcome = 'succeeded'),
           count(*) filter (where outcome in ('retry', 'crash')), count(*) filter (where outcome = 'dead'),
           count(*) filter (where outcome = 'cancelled'), count(*) filter (where outcome in ('snooze', 'release')),
           sereno.sum_of(sereno.bucket(waited)), sereno.sum_of(sereno.bucket(ran)), sum(ran)
    from unnest(lines) group by 1, 2, 3 order by 1, 2, 3
    $$;

-- What ended goes into the figures, table by table as in store/minutes.py and store/error_groups.py: nobody waits in a ring.
create function sereno.add_figures() returns void
    language plpgsql as $$
declare
    lines  sereno.ended_attempts[];
begin
    with gone as (
        delete from sereno.ended_attempts
        where id = any(array(select id from sereno.ended_attempts order by id limit 10000 for update skip locked))
        returning *
    )
    select array_agg(gone) into lines from gone;
    if lines is null then
        return;
    end if;
    perform sereno.keep_moving();
    insert into sereno.minutes as m select * from sereno.figures_of(lines, '1 minute')
    on conflict (minute, queue, task) do update
    set succeeded = m.succeeded + excluded.succeeded, retried = m.retried + excluded.retried, dead = m.dead + excluded.dead,
        cancelled = m.cancelled + excluded.cancelled, other = m.other + excluded.other,
        waits = sereno.added(m.waits, excluded.waits), runs = sereno.added(m.runs, excluded.runs),
        run_seconds = m.run_seconds + excluded.run_seconds;
    insert into sereno.ten_minutes as m select * from sereno.figures_of(lines, '10 minutes')
    on conflict (minute, queue, task) do update
    set succeeded = m.succeeded + excluded.succeeded, retried = m.retried + excluded.retried, dead = m.dead + excluded.dead,
        cancelled = m.cancelled + excluded.cancelled, other = m.other + excluded.other,
        waits = sereno.added(m.waits, excluded.waits), runs = sereno.added(m.runs, excluded.runs),
        run_seconds = m.run_seconds + excluded.run_seconds;
    insert into sereno.tenant_hours as h (hour, tenant, ended, failed, seconds)
    select date_trunc('hour', at, 'UTC'), tenant, count(*), count(*) filter (where outcome <> 'succeeded'), sum(ran)
    from unnest(lines) where tenant is not null group by 1, 2 order by 1, 2
    on conflict (hour, tenant) do update
    set ended = h.ended + excluded.ended, failed = h.failed + excluded.failed, seconds = h.seconds + excluded.seconds;
    insert into sereno.error_groups as g (fingerprint, task, error_type, message, frame, first_at, last_at, count, last_job_id)
    select fingerprint, min(task), min(error_type), (array_agg(left(message, 500) order by id desc))[1], min(frame),
           min(at), max(at), count(*), max(job_id)
    from unnest(lines) as line
    where fingerprint is not null
      and (exists (select from sereno.error_groups known where known.fingerprint = line.fingerprint)
           or (select count(*) from sereno.error_groups) < 10000)
    group by fingerprint order by fingerprint
    on conflict (fingerprint) do update
    set message = excluded.message, last_at = greatest(g.last_at, excluded.last_at), count = g.count + excluded.count,
        last_job_id = excluded.last_job_id;
    -- Beyond a hundred tenants, who is new is counted without a name.
    insert into sereno.error_hours as h (fingerprint, hour, tenant, count)
    select fingerprint, hour, case when is_known or tenants + place <= 100 then tenant else '' end, sum(count)
    from (select line.*, so_far.*, row_number() over (partition by fingerprint, hour, is_known order by tenant) as place
          from (select fingerprint, date_trunc('hour', at, 'UTC') as hour, coalesce(tenant, '') as tenant, count(*) as count
                from unnest(lines) where fingerprint in (select known.fingerprint from sereno.error_groups known)
                group by 1, 2, 3) as line
          cross join lateral (
              select count(*) as tenants, coalesce(bool_or(seen.tenant = line.tenant), false) as is_known
              from sereno.error_hours seen
              where seen.fingerprint = line.fingerprint and seen.hour = line.hour) as so_far) as ranked
    group by 1, 2, 3 order by 1, 2, 3
    on conflict (fingerprint, hour, tenant) do update set count = h.count + excluded.count;
    insert into sereno.tries as t (hour, task, tries)
    select date_trunc('hour', at, 'UTC'), task,
           sereno.sum_of(array(select (least(failures, 10) = place)::integer from generate_series(0, 10) as place order by place))
    from unnest(lines) where outcome = 'succeeded' group by 1, 2 order by 1, 2
    on conflict (hour, task) do update set tries = sereno.added(t.tries, excluded.tries);
end $$;

-- What a worker says of an attempt.
create type sereno.outcome as (
    id bigint, attempt integer, outcome text, delay double precision, until timestamptz, retries integer, seconds double precision,
    reason text, error_type text, error_message text, traceback text, frame text, history boolean);

-- As it can be stored, or an error that says what is wrong with which.
create function sereno.read_outcomes(outcomes jsonb) returns setof sereno.outcome
    language plpgsql stable as $$
declare
    item   jsonb;
    said   sereno.outcome;
    wrong  text := case when coalesce(jsonb_typeof(outcomes), 'null') <> 'array' then 'they are not a list'
                        when jsonb_array_length(outcomes) > 1000 then 'there are more than 1000' end;
    seen   bigint[] := '{}';
begin
    for item in select * from jsonb_array_elements(case when wrong is null then outcomes else '[]' end) loop
        if jsonb_typeof(item) <> 'object' then
            wrong := 'this is not an object: ' || left(item::text, 60);
            exit;
        end if;
        select 'job ' || left(item ->> 'id', 30) || ': "' || left(key, 30) || '" cannot be ' || left(value::text, 60) into wrong
        from jsonb_each(item)
        where case when key in ('id', 'attempt', 'delay', 'retries', 'seconds') then jsonb_typeof(value) not in ('number', 'null')
                   when key = 'history' then jsonb_typeof(value) not in ('boolean', 'null')
                   else key not in ('outcome', 'until', 'reason', 'error_type', 'error_message', 'traceback', 'frame')
                        or jsonb_typeof(value) not in ('string', 'null') end;
        exit when wrong is not null;
        said := jsonb_populate_record(null::sereno.outcome, item);
        wrong := 'job ' || coalesce(said.id::text, '(null)') || ': ' || case
            when said.id is null or said.attempt is null then 'the id and the attempt must be as sereno.claim_jobs gave them'
            when said.id = any(seen) then 'it is there twice'
            when coalesce(said.outcome, '') not in ('succeeded', 'retry', 'snooze', 'release', 'crash', 'dead', 'cancelled')
                then 'it cannot end as ' || coalesce('"' || left(said.outcome, 30) || '"', 'null')
            when said.outcome = 'snooze' and said.delay is null and said.until is null then 'a snooze needs a delay, or until'
            when said.delay not between 0 and 3e9 or said.seconds not between 0 and 3e9 or said.retries < 0
                then 'delay, seconds and retries are not negative, and not more than a hundred years'
            when said.until not between '1900-01-02 00:00Z' and '9999-12-30 00:00Z' then 'until is out of range: 1900 to 9999' end;
        exit when wrong is not null;
        seen := seen || said.id;
        said.reason := nullif(left(said.reason, 4000), '');
        said.error_type := nullif(left(said.error_type, 200), '');
        said.error_message := left(said.error_message, 4000);
        said.traceback := right(said.traceback, 16000);
        said.frame := left(said.frame, 200);
        return next said;
    end loop;
    if wrong is not null then
        raise exception 'outcomes: %', wrong using errcode = 'invalid_parameter_value',
            hint = 'A list of objects, such as [{"id": 7, "attempt": 1, "outcome": "succeeded"}]; nothing was changed.';
    end if;
end $$;

create type sereno.settled_job as (id bigint, attempt integer, settled boolean, state text, run_at timestamptz, why text);

-- How attempts ended, for those of them that are the session's; answers for each whether it was written. A session that lost its
-- lease, or the job, changes nothing. Said again after a lost reply, it is answered as before. `strict`: an error if one of them
-- was not written, which takes the whole transaction back. Writes what the statements of jobs/settlement.sql write.
create function sereno.settle_jobs(session bigint, outcomes jsonb, strict boolean default false)
    returns setof sereno.settled_job
    language plpgsql security definer set search_path = pg_catalog, pg_temp
    set jit = off set enable_sort = off set enable_bitmapscan = off set enable_seqscan = off set enable_nestloop = off
    set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    own       sereno.sessions := sereno.own_session(session);
    moment    timestamptz := sereno.clock_now();
    items     sereno.outcome[] := array(select said from sereno.read_outcomes(outcomes) as said);
    ids       bigint[] := array(select id from unnest(items));
    is_alive  boolean := coalesce(own.state = 'alive' and own.lease_until > moment, false);
    done      sereno.settled_job[];
    limiters     bigint[];
    answer    sereno.settled_job[];
begin
    with held as materialized (
        select * from sereno.jobs where id = any(ids) and session_id = session and is_alive order by id for update
    ),
    mine as materialized (
        select held.*, said.outcome as said, said.reason, said.error_type, said.error_message, said.traceback, said.frame,
               said.history, decided, decided in ('retry', 'snooze', 'release', 'crash') as goes_on,
               case when said.seconds is null then held.claimed_at
                    else greatest(held.claimed_at, moment - make_interval(secs => said.seconds)) end as started_at,
               case when said.outcome = 'release' then held.run_at
                    else greatest(said.until, moment + make_interval(secs => coalesce(said.delay, case
                        when said.until is not null then 0
                        when said.outcome = 'retry' then least(3600, 60 * 2 ^ least(held.failures, 10)) * (1 + random() / 10)
                        else 60 * (1 + random() / 10) end))) end as due,
               case when decided in ('retry', 'crash', 'dead') then sereno.fingerprint_of(
                   held.task, coalesce(said.error_type, initcap(said.outcome)), coalesce(said.error_message, said.reason, ''),
                   coalesce(said.frame, '')) end as fingerprint
        from held join unnest(items) as said on said.id = held.id and said.attempt = held.attempt
        cross join lateral (select case
            when said.outcome = 'retry' and held.failures >= coalesce(said.retries, 10) then 'dead'
            when said.outcome = 'crash' and held.crashes >= 2 then 'dead'
            when held.cancel_requested and said.outcome not in ('succeeded', 'dead', 'cancelled') then 'stopped'
            else said.outcome end) as d(decided)
    ),
    moved as (
        update sereno.jobs
        set run_at = due, state = case when due <= moment then 'ready' else 'scheduled' end,
            ready_seq = case when due <= moment then nextval('sereno.ready_seq') end, session_id = null,
            failures = mine.failures + (said = 'retry')::integer, crashes = mine.crashes + (said = 'crash')::integer,
            snoozes = mine.snoozes + (said = 'snooze')::integer, releases = mine.releases + (said = 'release')::integer
        from mine where jobs.id = any(ids) and jobs.id = mine.id and goes_on
    ),
    tried as (
        insert into sereno.attempts (job_id, number, session_id, started_at, finished_at, outcome, reason, error_type,
                                     error_message, traceback, fingerprint)
        select id, attempt, session_id, started_at, moment, said, reason, error_type, error_message, traceback, fingerprint
        from mine where goes_on
    ),
    ending as materialized (
        select *, case when decided = 'stopped' then 'cancelled' else decided end as final, case
                   when decided = 'dead' and said = 'retry' then 'failed ' || failures + 1 || ' times'
                   when decided = 'dead' and said = 'crash'
                       then 'crash loop: ' || coalesce(reason || ', ', '') || crashes + 1 || ' times'
                   when decided = 'dead' then coalesce(reason, 'permanent error: ' || error_type, 'the worker said so')
                   when decided = 'cancelled' then coalesce(reason, 'the worker said so')
                   when decided = 'stopped' then coalesce(reason, 'cancelled while running') end as cause
        from mine where not goes_on
    ),
    gone as (delete from sereno.jobs where id = any(array(select id from ending))),
    kept as (
        insert into sereno.history (
            id, session_id, finished_at, started_at, run_at, created_at, expires_at, attempt, failures, crashes, snoozes,
            releases, priority, state, queue, task, tenant, unique_key, trace, tags, args, schedule_id, planned_at, stands_for,
            keys, reason, error_type, error_message, traceback, fingerprint)
        select id, session_id, moment, started_at, run_at, created_at, expires_at, attempt,
               failures + (said in ('retry', 'dead'))::integer, crashes + (said = 'crash')::integer,
               snoozes + (said = 'snooze')::integer, releases + (said = 'release')::integer, priority, final, queue, task, tenant,
               unique_key, trace, tags, args, schedule_id, planned_at, stands_for, keys, cause, error_type, error_message,
               traceback, fingerprint
        from ending where final <> 'succeeded' or history is not false
    ),
    ended as (
        insert into sereno.schedule_ends (schedule_id, job_id, state, finished_at, error)
        select schedule_id, id, final, moment,
               case when decided in ('dead', 'cancelled') then coalesce(error_type || ': ' || error_message, cause) end
        from ending where schedule_id is not null
    ),
    steps as (delete from sereno.steps where job_id = any(array(select id from ending))),
    progress as (delete from sereno.progress where job_id = any(array(select id from ending))),
    counted as (
        insert into sereno.ended_attempts (at, queue, task, tenant, outcome, waited, ran, failures, job_id, fingerprint, error_type,
                                           message, frame)
        select moment, queue, task, tenant, case when decided = 'stopped' then said else decided end,
               extract(epoch from claimed_at - run_at), extract(epoch from greatest(moment - started_at, interval '0')),
               failures, id, fingerprint, coalesce(error_type, initcap(said)), coalesce(error_message, reason, ''),
               coalesce(frame, '')
        from mine
    )
    select array_agg(row(id, attempt, true, coalesce(final, case when due <= moment then 'ready' else 'scheduled' end),
                         case when goes_on then due end, null)::sereno.settled_job),
           (select array_agg(limiter) from mine cross join lateral sereno.limiters_of(mine.queue, mine.keys) as limiter)
    into done, limiters
    from mine left join (select id as ended_id, final from ending) as e on ended_id = id;
    -- In a statement of its own, where there is any: it opens every day of attempts.
    if exists (select from unnest(items) where history is false and attempt > 1) then
        delete from sereno.attempts
        where job_id = any(array(select d.id from unnest(done) as d join unnest(items) as said on said.id = d.id
                                 where d.state = 'succeeded' and said.history is false and said.attempt > 1));
    end if;
    perform sereno.hand_over(limiters);
    perform sereno.tell(queue, min(extract(epoch from run_at - moment))::double precision)
    from sereno.jobs where id = any(ids) and id in (select d.id from unnest(done) as d where d.run_at is not null) group by queue;

    -- In a statement of its own: written before, and the reply was lost? A rescue writes about our attempt as well, in other words.
    select array_agg(coalesce(did, row(said.id, said.attempt, past.state is not null, past.state, null, case
               when past.state is not null then 'it was written before'
               when is_alive then 'the session does not have this attempt of it'
               else 'the session has no lease' end)::sereno.settled_job) order by said.ordinality)
    into answer
    from unnest(items) with ordinality as said
    left join unnest(done) as did on did.id = said.id
    left join lateral (
        select state from sereno.history
        where history.id = said.id and history.attempt = said.attempt and session_id = session and did.id is null
        union all
        select coalesce((select jobs.state from sereno.jobs where jobs.id = said.id), 'ended') from sereno.attempts
        where job_id = said.id and number = said.attempt and session_id = session and outcome = said.outcome
          and reason is not distinct from said.reason and did.id is null
        limit 1) as past on true;
    if strict and exists (select from unnest(answer) where not settled) then
        raise exception 'job % could not be settled: %', (select id from unnest(answer) where not settled limit 1),
            (select why from unnest(answer) where not settled limit 1)
            using errcode = 'SR002', hint = 'Somebody else has it, or will: let this transaction be rolled back.';
    end if;
    return query select * from unnest(answer);
end $$;

revoke execute on function sereno.settle_jobs(bigint, jsonb, boolean) from public;
