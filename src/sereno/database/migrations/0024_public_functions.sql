-- Workers in other languages: sessions, heartbeats and claims as functions, for whatever speaks SQL; settlements and claims under
-- limits follow in the next files. Public are open_session, heartbeat, claim_jobs, settle_jobs and close_session
-- (docs/reference/sql.md). They keep their shape: arguments are only added at the end, with defaults, and columns of answers only
-- added; what must break gets a name of its own. They run with the rights of the schema's owner, for roles that are granted them.
-- The worker in Python has statements of its own for the same; tests hold both to the same promises.

create function sereno.functions_version() returns integer language sql immutable as 'select 1';

-- `opened_by`: the role that opened it by SQL; null: a worker in Python. `lease`: its seconds. `look_back_at`: until then, claims
-- start at the floors (see learn_floors). `passed_over`: where claims go on behind jobs that they cannot take (see pass_over);
-- null: nothing was passed over.
alter table sereno.sessions
    add column opened_by text,
    add column lease double precision,
    add column look_back_at timestamptz,
    add column passed_over jsonb;

-- How many rows of ready jobs a claim by SQL reads at most: of a queue and priority, above its floor and below, and of lanes.
create function sereno.most_read(part text) returns integer
    language sql immutable as $$ select case part when 'back' then 50000 else 10000 end $$;

-- The jobs that these ids mean become the session's, and an attempt more. They are locked already.
create function sereno.mark_claimed(for_session bigint, ids bigint[], moment timestamptz default sereno.now()) returns setof sereno.jobs
    language sql as $$
    update sereno.jobs set state = 'running', attempt = attempt + 1, session_id = for_session, claimed_at = moment
    where id = any(ids)
    returning *
    $$;

-- Floors of a claim by SQL, by queue and priority. Most claims are quick, start at zero, and write nothing. One that is not has
-- met the dead entries that a long transaction keeps (see engine/floor.py): it writes down where the next ones may start, and
-- when it is time to look back, so that looking back takes a twentieth of the time. `claimed`: plain jobs that it got.
create function sereno.learn_floors(
    for_session bigint, claimed bigint[], looked_back boolean, is_full boolean, took interval
) returns void
    language sql as $$
    update sereno.sessions
    set look_back_at = case when looked_back then sereno.now() + least(interval '30 seconds', 20 * took) else look_back_at end,
        floors = floors
            || case when looked_back then jsonb_build_object('wakes', coalesce(
                   (select min(id) from sereno.lane_wakes),
                   pg_sequence_last_value(pg_get_serial_sequence('sereno.lane_wakes', 'id')), 0)) else '{}' end
            || coalesce((
                select jsonb_object_agg(pair, coalesce(above, case when is_full and sessions.passed_over is null then lowest else known end))
                from (select pair, known, min(ready_seq) as lowest, min(ready_seq) filter (where ready_seq >= known) as above
                      from sereno.jobs cross join lateral (select jobs.queue || ':' || priority) as p(pair)
                      cross join lateral (select coalesce((sessions.floors ->> pair)::bigint, 0)) as k(known)
                      where jobs.id = any(claimed) and lane is null
                      group by pair, known) as learnt), '{}')
    where id = any(array(select own.id from sereno.sessions own where own.id = for_session for update skip locked))
    $$;

-- Jobs without limits, of queues without limits (see pick_plain). `floors`: where to start. `turned`: from the other end.
create function sereno.claim_plain(
    for_session bigint, wanted text[], known_tasks text[], most integer, floors jsonb, turned boolean,
    looks_back boolean default false
) returns setof sereno.jobs
    language plpgsql as $$
declare
    open_queues  text[] := array(
        select served.name from unnest(wanted) as served(name)
        where served.name <> all(array(select pauses.name from sereno.pauses where kind = 'queue'))
          and served.name <> all(array(select queue from sereno.limits where queue is not null)));
begin
    return query select * from sereno.mark_claimed(
        for_session, sereno.pick_plain(for_session, open_queues, known_tasks, most, floors, looks_back, turned));
end $$;

-- The limiters that jobs of a queue with these keys pass, but for rates: where a slot is free when such a job ends.
create function sereno.limiters_of(queue text, keys jsonb) returns setof bigint
    language sql stable as $$
    select sereno.limiter_of(item ->> 0, item ->> 1) from jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item
    where item ->> 0 in (select name from sereno.limits where kind = 'slots')
    union
    select sereno.order_of(limiters_of.queue, keys) where keys ? 'order'
    union
    select sereno.limiter_of(name, '') from sereno.limits where limits.queue = limiters_of.queue and kind = 'slots'
    $$;

-- Slots of these limiters came free: whoever looks next finds them due. A limiter that a claim holds is tried again for a moment, never
-- waited for; then the date on the limiter brings somebody to look. From here on, the transaction may not stand still.
create function sereno.hand_over(limiter_ids bigint[]) returns void
    language plpgsql as $$
declare
    left_over bigint[] := array(
        select distinct limiter from unnest(limiter_ids) as limiter
        where (select true from sereno.lanes where has_work and waits_for = limiter limit 1));
    noted bigint[];
begin
    for attempt in 1..10 loop
        exit when cardinality(left_over) = 0;
        perform sereno.keep_moving();
        with free as materialized (
            select id from sereno.limiters where id = any(left_over) order by id for update skip locked
        ),
        due as (update sereno.limiters set look_at = sereno.now() where id = any(array(select id from free)) returning id)
        select array_agg(id) into noted from due;
        if noted is not null and exists (select from sereno.sessions where idle) then
            perform pg_notify('sereno.ready', '');
        end if;
        left_over := array(select id from sereno.limiters where id = any(left_over) and id <> all(coalesce(noted, '{}')));
        if cardinality(left_over) > 0 then
            perform pg_sleep(0.01);
        end if;
    end loop;
end $$;

-- Limiters are locked until the transaction ends: whoever stands still with them holds up everybody, so the server ends that.
create function sereno.keep_moving() returns void
    language plpgsql as $$
begin
    if extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval) not between 0.001 and 10 then
        perform set_config('idle_in_transaction_session_timeout', '10s', true);
    end if;
end $$;

-- Future jobs that are due become ready: of the last so many seconds, at most a thousand. Answers how many.
create function sereno.promote_due(look_back double precision) returns integer
    language plpgsql as $$
declare
    moment  timestamptz := sereno.now();
    queues  text[];
begin
    with moved as (
        update sereno.jobs set state = 'ready', ready_seq = nextval('sereno.ready_seq')
        where id = any(array(
            select id from sereno.jobs
            where state = 'scheduled' and run_at <= moment and run_at >= moment - make_interval(secs => look_back)
            order by run_at limit 1000 for update skip locked))
        returning queue
    )
    select array_agg(queue) into queues from moved;
    perform sereno.tell(name, 0) from (select distinct name from unnest(queues) as name) as filled;
    return coalesce(cardinality(queues), 0);
end $$;

-- Sessions whose lease ran out are dead, and jobs of sessions that are not alive go back to ready, a thousand at most. As the
-- statements `expire` and `rescue` of the worker say it; slots that come free this way are handed over. Answers whose they were.
create function sereno.bring_back() returns setof bigint
    language plpgsql as $$
declare
    owners  bigint[];
    limiters   bigint[];
    queues  text[];
begin
    update sereno.sessions set state = 'dead', idle = false, ended_at = sereno.now()
    where id = any(array(select id from sereno.sessions where state = 'alive' and lease_until < sereno.now()
                         order by id for update skip locked));
    with suspect as materialized (
        select id, session_id from sereno.jobs
        where state = 'running'
          and session_id = any(array(select id from sereno.sessions
                                     where state <> 'alive' and ended_at > sereno.now() - interval '1 hour'))
        limit 1000
    ),
    orphan as materialized (
        select id, attempt, session_id, claimed_at, queue, keys, crashes
        from sereno.jobs
        where id = any(array(select id from suspect)) and session_id = any(array(select session_id from suspect))
          and state = 'running'
        order by id for update skip locked
    ),
    judged as materialized (
        select *, sereno.part_in_death(id, attempt, crashes, session_id) as part from orphan
    ),
    moved as (
        update sereno.jobs
        set state = 'ready', ready_seq = nextval('sereno.ready_seq'), session_id = null,
            crashes = case part when 'alone' then jobs.crashes + 1 when 'began' then greatest(jobs.crashes, 1) else jobs.crashes end,
            releases = releases + (part in ('left', 'waited'))::integer
        from judged
        where jobs.id = any(array(select id from suspect)) and jobs.id = judged.id
    ),
    tried as (
        insert into sereno.attempts (job_id, number, session_id, started_at, finished_at, outcome, reason)
        select id, attempt, session_id, claimed_at, sereno.now(),
               case when part in ('alone', 'began') then 'crash' else 'release' end, sereno.words_for_death(part, session_id)
        from judged
    )
    select array_agg(session_id), array_agg(queue),
           (select array_agg(limiter) from orphan cross join lateral sereno.limiters_of(orphan.queue, orphan.keys) as limiter)
    into owners, queues, limiters from orphan;
    perform sereno.tell(name, 0) from (select distinct name from unnest(queues) as name) as filled;
    perform sereno.hand_over(limiters);
    return query select * from unnest(owners);
end $$;

-- The session, if it is the caller's; nothing if there is none. Its number alone opens no door: workers in Python, and other
-- roles, have sessions too.
create function sereno.own_session(session bigint) returns sereno.sessions
    language plpgsql as $$
declare
    own  sereno.sessions;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'this transaction is %, and workers need read committed', current_setting('transaction_isolation')
            using errcode = 'invalid_transaction_state', hint = 'Call it by itself, outside of a transaction.';
    end if;
    select * into own from sereno.sessions where id = session;
    if found and own.opened_by is distinct from session_user then
        raise exception 'session % was not opened by the role %', session, session_user
            using errcode = 'insufficient_privilege', hint = 'Use the number that sereno.open_session answered to this role.';
    end if;
    return own;
end $$;

-- One life of one worker; answers its number. `slots`: how many jobs it runs at once, for people who look. `listens`: whether it
-- is told of new jobs, on the channel sereno.ready.
create function sereno.open_session(
    queues text[],
    tasks text[],
    host text default null,
    pid integer default null,
    slots integer default 1,
    version text default 'sql',
    lease interval default '30 seconds',
    listens boolean default false
) returns bigint
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    made     bigint;
    seconds  double precision := extract(epoch from open_session.lease);
    wrong    text;
begin
    if coalesce(cardinality(queues), 0) not between 1 and 1000 or coalesce(cardinality(tasks), 0) not between 1 and 10000
       or array_position(queues || tasks, null) is not null then
        wrong := 'a session has 1 to 1000 queues and 1 to 10000 tasks, none of them null';
    elsif exists (select from unnest(tasks) as name where starts_with(name, 'sereno' || '.')) then
        wrong := 'tasks of sereno itself are for workers in Python';
    elsif coalesce(slots, 0) not between 1 and 100000 then
        wrong := 'slots must be 1 to 100000';
    elsif coalesce(seconds, 0) not between 1 and 3600 then
        wrong := 'lease must be 1 second to 1 hour';
    end if;
    if wrong is not null then
        raise exception '%', wrong using errcode = 'invalid_parameter_value',
            hint = 'Such as: select sereno.open_session(array[''default''], array[''resize''])';
    end if;
    perform sereno.check_text('queue', name) from unnest(queues) as name;
    perform sereno.check_text('task', name) from unnest(tasks) as name;
    perform sereno.check_text('host', host), sereno.check_text('version', version);
    insert into sereno.sessions (host, pid, version, queues, tasks, idle, lease, lease_until, opened_by, started_at, seen_at)
    values (coalesce(open_session.host, pg_catalog.host(inet_client_addr()), 'localhost'), coalesce(open_session.pid, 0),
            coalesce(open_session.version, 'sql'),
            (select jsonb_object_agg(name, open_session.slots) from unnest(open_session.queues) as name), open_session.tasks,
            coalesce(listens, false), seconds, sereno.now() + make_interval(secs => seconds), session_user,
            sereno.now(), sereno.now())
    returning id into made;
    return made;
end $$;

-- Keeps the lease. `held`: the jobs that the worker knows it has; others that it was given a while ago go back, for the reply to
-- a claim was lost. Answers whether the session is alive, which of the held jobs somebody wants to stop (`cancel`), and which
-- are no longer its own (`lost`). Does also what time brings, so that a house without a worker in Python goes on; should that
-- fail, the lease is kept all the same.
create function sereno.heartbeat(
    session bigint, held bigint[] default null,
    out alive boolean, out lease_until timestamptz, out cancel bigint[], out lost bigint[]
)
    language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s'
    set jit = off set enable_sort = off set enable_bitmapscan = off set enable_seqscan = off set enable_nestloop = off
    set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    own    sereno.sessions := sereno.own_session(session);
    limiters  bigint[];
begin
    update sereno.sessions set lease_until = sereno.now() + make_interval(secs => own.lease), seen_at = sereno.now()
    where sessions.id = own.id and state = 'alive'
    returning sessions.lease_until into heartbeat.lease_until;
    alive := found;
    cancel := array(select jobs.id from sereno.jobs where jobs.id = any(held) and session_id = session and cancel_requested);
    lost := array(select distinct mine from unnest(held) as mine
                  where mine is not null
                    and (not alive or not exists (select from sereno.jobs where jobs.id = mine and session_id = session)));
    if not alive then
        return;
    end if;
    begin
        if held is not null then
            with unknown as materialized (
                select jobs.id from sereno.jobs
                where state = 'running' and session_id = session and jobs.id <> all(held)
                  and claimed_at <= sereno.now() - make_interval(secs => own.lease / 3)
            ),
            locked as materialized (
                select jobs.id from sereno.jobs
                where jobs.id = any(array(select unknown.id from unknown)) and state = 'running' and session_id = session
                order by jobs.id for update skip locked
            ),
            moved as (
                update sereno.jobs
                set state = 'ready', ready_seq = nextval('sereno.ready_seq'), session_id = null, releases = releases + 1
                where jobs.id = any(array(select locked.id from locked))
                returning jobs.queue, jobs.keys
            )
            select array_agg(limiter) into limiters from moved cross join lateral sereno.limiters_of(moved.queue, moved.keys) as limiter;
            perform sereno.hand_over(limiters);
        end if;
        perform sereno.promote_due(3e9), sereno.bring_back(), sereno.add_figures();
    exception when others then
        raise warning 'session % is kept; what else a heartbeat does failed: %', session, sqlerrm;
    end;
end $$;

-- The session is over: what it still has goes back, without charge. Answers how many jobs that were.
create function sereno.close_session(session bigint) returns integer
    language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    own    sereno.sessions := sereno.own_session(session);
    given  integer;
begin
    update sereno.sessions set state = 'closed', idle = false, ended_at = sereno.now() where id = own.id and state = 'alive';
    select count(*) filter (where owner = session) into given from sereno.bring_back() as owner;
    perform sereno.add_figures();
    return given;
end $$;

create type sereno.claimed_job as (
    id bigint, attempt integer, task text, args jsonb, queue text, tenant text, priority smallint, failures integer,
    crashes integer, trace text, run_at timestamptz, claimed_at timestamptz, planned_at timestamptz);

-- Ready jobs of the session's tasks become the session's: at most so many, of these queues, or of all of the session's. Those
-- with limits and those without take turns in who is first; now and then the least urgent are. One that has expired, or has
-- killed its workers as often as it may, is dead, and not handed out.
create function sereno.claim_jobs(session bigint, queues text[] default null, most integer default 1)
    returns setof sereno.claimed_job
    language plpgsql security definer set search_path = pg_catalog, pg_temp
    set jit = off set enable_sort = off set enable_bitmapscan = off set enable_seqscan = off set enable_nestloop = off
    set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    own         sereno.sessions := sereno.own_session(session);
    moment      timestamptz := sereno.now();
    began       timestamptz := clock_timestamp();
    wanted      text[] := array(select distinct unnest(coalesce(queues, array(select jsonb_object_keys(own.queues)))));
    looks_back  boolean := coalesce(own.look_back_at <= moment, true);
    floors      jsonb := case when coalesce(own.look_back_at <= moment, true) then '{}' else own.floors end;
    turned      boolean := random() < 0.1;
    plain_first boolean := random() < 0.5;
    got         sereno.jobs[] := '{}';
begin
    if own.id is null or own.state <> 'alive' or own.lease_until <= moment then
        raise exception 'session % has no lease: %', session,
            coalesce('it is ' || nullif(own.state, 'alive'), 'it ran out at ' || own.lease_until, 'there is no such session')
            using errcode = 'SR001', hint = 'Stop what it still runs, and open a new one with sereno.open_session.';
    elsif coalesce(most, 0) not between 1 and 1000 or not own.queues ?& wanted or array_position(wanted, null) is not null then
        raise exception 'session % cannot claim % jobs of %', session, most, left(wanted::text, 200)
            using errcode = 'invalid_parameter_value', hint = '1 to 1000, of queues that were named when the session was opened.';
    end if;
    if sereno.has_resumed(own.passed_over) then
        perform sereno.start_over(session);
        floors := '{}';
    end if;
    for round in 1..2 loop
        for step in 1..2 loop
            exit when cardinality(got) = most;
            if (step = 1) = plain_first then
                got := got || array(select job from sereno.claim_plain(
                    session, wanted, own.tasks, most - cardinality(got), floors, turned, looks_back) as job);
            elsif exists (select from sereno.lane_wakes where id >= coalesce((floors ->> 'wakes')::bigint, 0))
               or exists (select from sereno.lane_queues where queue = any(wanted)
                            and (select true from sereno.lanes where has_work and waits_for is null
                                 and lanes.queue = lane_queues.queue limit 1))
               or exists (select from sereno.limits where queue = any(wanted))
               or exists (select from sereno.due_limiters(wanted, moment)) then
                got := got || array(select job from sereno.claim_limited(
                    session, wanted, own.tasks, most - cardinality(got), floors, turned, looks_back) as job);
            end if;
        end loop;
        -- What has just become due is not left to the next heartbeat of whoever.
        exit when cardinality(got) = most or round = 2 or sereno.promote_due(case when looks_back then 3e9 else 60 end) = 0;
    end loop;
    if clock_timestamp() - began > interval '5 milliseconds' then
        perform sereno.learn_floors(session, array(select id from unnest(got)), looks_back, cardinality(got) = most,
                                    clock_timestamp() - began);
    end if;
    perform sereno.settle_jobs(session, jsonb_agg(jsonb_build_object(
        'id', id, 'attempt', attempt, 'outcome', 'dead', 'reason', case
            when crashes >= 3 then 'crash loop: its worker died while it ran alone, ' || crashes || ' times'
            else 'expired before it could run' end)))
    from unnest(got) where expires_at <= claimed_at or crashes >= 3 having count(*) > 0;
    return query
    select id, attempt, task, args::jsonb, queue, tenant, priority, failures, crashes, trace, run_at, claimed_at, planned_at
    from unnest(got) where (expires_at is null or expires_at > claimed_at) and crashes < 3 order by priority, ready_seq;
end $$;

revoke execute on function sereno.open_session(text[], text[], text, integer, integer, text, interval, boolean),
    sereno.heartbeat(bigint, bigint[]), sereno.claim_jobs(bigint, text[], integer), sereno.close_session(bigint) from public;
