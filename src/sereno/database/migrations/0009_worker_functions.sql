-- Workers in other languages: sessions, heartbeats, claims and settlements as functions, for every client that speaks
-- SQL.
-- Public are open_session, heartbeat, claim_jobs, settle_jobs, close_session and emit (docs/reference/sql.md). Their
-- signatures are stable: arguments are only added at the end, with defaults, and result columns are only added; an
-- incompatible change gets a new name. They run with the rights of the schema's owner, for roles that are granted
-- them. The worker in Python has statements of its own for the same; tests check the same guarantees on both.

-- Return the version of these functions, for clients.
create function sereno.functions_version() returns integer language sql immutable as 'select 1';

-- Return the session if the caller's role opened it; null if there is none. The id alone gives no access: workers in
-- Python, and other roles, have sessions too.
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
            using errcode = 'insufficient_privilege', hint = 'Use the id that sereno.open_session returned to this role.';
    end if;
    return own;
end $$;

-- Open a session for one run of one worker; return its id. `slots`: how many jobs it runs at once, for display.
-- `listens`: whether it listens for new jobs on the channel sereno.ready. `release`: of its program, for display.
-- `task_versions` and `keys`: what it has for jobs with requirements (see sereno.meets): {"export": 2}; ids of keys.
create function sereno.open_session(
    queues text[],
    tasks text[],
    host text default null,
    pid integer default null,
    slots integer default 1,
    version text default 'sql',
    lease interval default '30 seconds',
    listens boolean default false,
    release text default null,
    task_versions jsonb default null,
    keys text[] default null
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
    elsif length(release) not between 1 and 200 then
        wrong := 'a release has 1 to 200 characters';
    elsif task_versions is not null and (
        jsonb_typeof(task_versions) <> 'object'
        or exists (select from jsonb_each_text(task_versions) as given
                   where given.key <> all(tasks) or not coalesce(given.value ~ '^[1-9][0-9]{0,8}$', false))) then
        wrong := 'task_versions must be positive integers by task, and only of tasks of the session';
    elsif cardinality(keys) > 100 or array_position(keys, null) is not null then
        wrong := 'a session has at most 100 keys, none of them null';
    end if;
    if wrong is not null then
        raise exception '%', wrong using errcode = 'invalid_parameter_value',
            hint = 'Such as: select sereno.open_session(array[''default''], array[''resize''])';
    end if;
    perform sereno.check_text('queue', name) from unnest(queues) as name;
    perform sereno.check_text('task', name) from unnest(tasks) as name;
    perform sereno.check_text('host', host), sereno.check_text('version', version);
    perform sereno.check_text('key', name) from unnest(keys) as name;
    insert into sereno.sessions (host, pid, version, queues, tasks, idle, lease, lease_until, opened_by, started_at, seen_at,
                                 release, capabilities)
    values (coalesce(open_session.host, pg_catalog.host(inet_client_addr()), 'localhost'), coalesce(open_session.pid, 0),
            coalesce(open_session.version, 'sql'),
            (select jsonb_object_agg(name, open_session.slots) from unnest(open_session.queues) as name), open_session.tasks,
            coalesce(listens, false), seconds, sereno.now() + make_interval(secs => seconds), session_user,
            sereno.now(), sereno.now(), open_session.release,
            case when task_versions is not null or keys is not null then jsonb_build_object(
                'versions', coalesce(task_versions, '{}'), 'keys', to_jsonb(coalesce(open_session.keys, '{}')),
                'encrypting', '[]'::jsonb) end)
    returning id into made;
    return made;
end $$;

-- Renew the lease. `held`: the jobs that the worker knows it has; other jobs that it claimed a while ago are
-- released, because the reply to that claim was lost. Return whether the session is alive, which of the held jobs are
-- to be cancelled (`cancel`), and which no longer belong to it (`lost`). It also promotes due jobs, rescues jobs of
-- dead sessions and adds up statistics, so that an installation without a worker in Python works; if that fails, the
-- lease is renewed all the same. SKIP LOCKED: a job that is being settled is not released.
create function sereno.heartbeat(
    session bigint, held bigint[] default null,
    out alive boolean, out lease_until timestamptz, out cancel bigint[], out lost bigint[]
)
    language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s'
    set jit = off set enable_sort = off set enable_bitmapscan = off set enable_seqscan = off set enable_nestloop = off
    set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    own       sereno.sessions := sereno.own_session(session);
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
        perform sereno.promote_due(3e9), sereno.release_lost_jobs(), sereno.add_figures();
    exception when others then
        raise warning 'the lease of session % was renewed, but the maintenance of this heartbeat failed: %', session, sqlerrm;
    end;
end $$;

-- Close a session and release its jobs, without counting a failure; return their number.
create function sereno.close_session(session bigint) returns integer
    language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    own    sereno.sessions := sereno.own_session(session);
    given  integer;
begin
    update sereno.sessions set state = 'closed', idle = false, ended_at = sereno.now() where id = own.id and state = 'alive';
    select count(*) filter (where owner = session) into given from sereno.release_lost_jobs() as owner;
    perform sereno.add_figures();
    return given;
end $$;

-- Limiters stay locked until the transaction ends, and a client that idles inside it would block all claims: limit
-- that to 10 s.
create function sereno.keep_moving() returns void
    language plpgsql as $$
begin
    if extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval) not between 0.001 and 10 then
        perform set_config('idle_in_transaction_session_timeout', '10s', true);
    end if;
end $$;

-- Return the limiters, other than rates, that jobs of a queue with these keys pass: their slots are free when such a
-- job ends.
create function sereno.limiters_of(queue text, keys jsonb) returns setof bigint
    language sql stable as $$
    select sereno.limiter_of(item ->> 0, item ->> 1) from jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item
    where item ->> 0 in (select name from sereno.limits where kind = 'slots')
    union
    select sereno.order_of(limiters_of.queue, keys) where keys ? 'order'
    union
    select sereno.limiter_of(name, '') from sereno.limits where limits.queue = limiters_of.queue and kind = 'slots'
    $$;

-- Mark limiters whose slots came free as due, for the next claim. SKIP LOCKED and 10 tries of 10 ms: a limiter that a
-- claim has locked is not waited for; if all tries fail, the limiter's `check_at` makes a later claim check it. From
-- here on, the transaction must not idle (see keep_moving).
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
        due as (update sereno.limiters set check_at = sereno.now() where id = any(array(select id from free)) returning id)
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

-- Make due scheduled jobs ready: at most a thousand, of the last `look_back` seconds; return their number. SKIP
-- LOCKED: another session is promoting the rest.
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
    perform sereno.notify_ready(name, 0) from (select distinct name from unnest(queues) as name) as filled;
    return coalesce(cardinality(queues), 0);
end $$;

-- Return the part that a job had in the end of its session, which decides what the end means for the job.
--   'left'    The session closed itself: no crash.
--   'advanced'  Its attempt had advanced the cursor of an iteration: no crash. If an item is what kills the process, the next
--             attempt begins near it and does not advance.
--   'alone'   A suspect that ran alone, as the session had announced before it began: one more crash, up to the limit.
--             A worker in another language announces nothing; there it is a suspect that was the session's only job.
--   'waited'  Claimed ahead, and not begun at the session's last report: released without a crash, once. A job that
--             goes through this twice may have begun after the report both times, and is treated as if it had.
--   'began'   Begun, or possibly: it is a suspect from now on, and runs alone. Further deaths of sessions where it was
--             one of many add no crash.
create function sereno.part_in_death(job_id bigint, tried integer, crashes integer, owner bigint) returns text
    language sql stable as $$
    select case
        when state = 'closed' then 'left'
        when exists (select from sereno.steps
                     where steps.job_id = part_in_death.job_id and steps.attempt = tried and is_cursor) then 'advanced'
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

-- Return the reason that the attempts of the job show for it.
create function sereno.words_for_death(part text, owner bigint) returns text
    language sql immutable as $$
    select case part when 'left' then 'left behind at shutdown' else 'its worker session ' || owner || ' died' || case part
        when 'alone' then ' while it ran alone' when 'waited' then ' before it began'
        when 'advanced' then '; its iteration had advanced, and continues' else '' end end
    $$;

-- Mark sessions whose lease ran out as dead, and make jobs of ended sessions ready again, a thousand at most, as the
-- worker's statements `expire` and `rescue` do; mark limiters whose slots come free. Return the sessions of these
-- jobs. SKIP LOCKED: another session is rescuing the rest.
create function sereno.release_lost_jobs() returns setof bigint
    language plpgsql as $$
declare
    owners    bigint[];
    limiters  bigint[];
    queues    text[];
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
            releases = releases + (part in ('left', 'waited', 'advanced'))::integer
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
    perform sereno.notify_ready(name, 0) from (select distinct name from unnest(queues) as name) as filled;
    perform sereno.hand_over(limiters);
    return query select * from unnest(owners);
end $$;

-- Return the most rows of ready jobs that a claim by SQL reads: of a queue and priority above its floor, below it
-- ('back'), and of lanes.
create function sereno.most_read(part text) returns integer
    language sql immutable as $$ select case part when 'back' then 50000 else 10000 end $$;

-- Assign jobs, which the caller has locked, to a session and count an attempt; return them.
create function sereno.mark_claimed(for_session bigint, ids bigint[], moment timestamptz default sereno.now()) returns setof sereno.jobs
    language sql as $$
    update sereno.jobs set state = 'running', attempt = attempt + 1, session_id = for_session, claimed_at = moment
    where id = any(ids)
    returning *
    $$;

-- Store the floors of a session's claims, by queue and priority. Most claims are fast, start at zero, and write
-- nothing. A slow one has met the dead index entries that a long transaction retains (worker/claiming/floor.py): it
-- stores where the next claims may start, and when to look back, so that looking back takes a twentieth of the time.
-- `claimed`: the plain jobs of the claim. SKIP LOCKED: a claim does not wait for a heartbeat that has locked the
-- session; a later claim stores its floors.
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

-- A range of the index of ready jobs: ready_seq from `low` up to, but not including, `high`, of which at most `most`
-- rows are read. `is_back`: below the floor.
-- A claim reads a bounded number of rows, however many it has to pass over: ready jobs of paused tenants and tasks,
-- and of tasks that the worker does not know. What was passed over is stored, so that the next claim continues behind
-- it. worker/claiming/claim_ranges.py does the same for the worker in Python.
create type sereno.ready_range as (
    queue text, priority smallint, low bigint, high bigint, most integer, is_back boolean);

-- Return the ranges that a claim reads: the most urgent first, queues of one priority in random order, older jobs
-- before newer ones. `turned`: the least urgent first. Ranges below the floor are read only after jobs were passed
-- over; otherwise all jobs are above the floor.
create function sereno.ready_ranges(queues text[], floors jsonb, passed_over jsonb, looks_back boolean, turned boolean)
    returns sereno.ready_range[]
    language sql as $$
    select array_agg(row(name, level, low, high, most, is_back)::sereno.ready_range order by place, chance, is_back desc)
    from (select name, random() as chance from unnest(queues) as served(name) offset 0) as open_queue
    cross join (select level::smallint, case when turned then -level else level end as place
                from generate_series(0, 9) as level) as step
    cross join lateral (
        select coalesce((floors ->> (name || ':' || level))::bigint, 0) as floor,
               coalesce((passed_over -> 'from' ->> (name || ':' || level))::bigint, 0) as walked) as known
    cross join lateral (
        select floor as low, 9223372036854775807 as high, sereno.most_read('floor') as most, false as is_back
        union all
        select walked, floor, sereno.most_read('back'), true where looks_back and passed_over is not null and walked < floor) as part
    $$;

-- Pick and lock jobs of these ranges, other than those in `but`. Rows are read without a lock first, because a LIMIT
-- below a lock would count locked rows, not read ones. `reached`: how many ranges were read, to their end or to their
-- limit. SKIP LOCKED: a row that another claim has locked belongs to that claim.
create function sereno.pick_ranges(
    ranges sereno.ready_range[], known_tasks text[], wanted integer, but bigint[], capabilities jsonb, out ids bigint[],
    out reached integer
)
    language plpgsql as $$
begin
    with paused as materialized (select kind, name from sereno.pauses where kind <> 'queue')
    select array_agg(picked.id), case when count(*) < wanted then cardinality(ranges) else max(picked.number)::integer - 1 end
    into ids, reached
    from (select candidate.id, range.number
          from unnest(ranges) with ordinality as range(queue, priority, low, high, most, is_back, number)
          cross join lateral (
              select locked.id
              from (select jobs.ctid as place, jobs.task, jobs.tenant, jobs.requires from sereno.jobs
                    where jobs.state = 'ready' and jobs.lane is null and jobs.queue = range.queue
                      and jobs.priority = range.priority and jobs.ready_seq >= range.low and jobs.ready_seq < range.high
                    order by jobs.ready_seq limit range.most) as near
              cross join lateral (
                  select jobs.id from sereno.jobs
                  where jobs.ctid = near.place and jobs.state = 'ready' and jobs.lane is null and jobs.queue = range.queue
                    and jobs.id <> all(but)
                  for update skip locked) as locked
              where near.task = any(known_tasks)
                and near.task <> all(array(select name from paused where kind = 'task'))
                and (near.tenant is null or near.tenant <> all(array(select name from paused where kind = 'tenant')))
                and (near.requires is null or sereno.meets(near.requires, near.task, capabilities))
          ) as candidate
          limit wanted) as picked;
end $$;

-- Return what is paused, in the form in which sessions store it.
create function sereno.paused_now() returns jsonb
    language sql stable as $$ select coalesce(jsonb_agg(kind || ':' || name), '[]') from sereno.pauses where kind <> 'queue' $$;

-- Store where the next claim continues in ranges that this claim did not read to their end. The part above the floor
-- is not read to its end first: the floor rises to the newest jobs at once, and the scan below it continues from
-- claim to claim, and starts again when it has reached the floor. It also finds jobs whose transactions took long to
-- commit; for their sake the floor rises to a value that is two seconds old. Of the stored state, `from` is the
-- position of the scan for each queue and priority, `head` the value of the sequence at `head_at`, and `paused` what
-- was paused. `is_short`: a floor has risen. SKIP LOCKED: if a heartbeat has locked the session, the claim does not
-- wait, and the state is stored by a later claim.
create function sereno.pass_over(
    for_session bigint, ranges sereno.ready_range[], inout floors jsonb, inout passed_over jsonb, out is_short boolean
)
    language plpgsql as $$
declare
    moment     timestamptz := sereno.now();
    head       bigint := coalesce(pg_sequence_last_value('sereno.ready_seq'), 0);
    is_stale   boolean := coalesce((passed_over ->> 'head_at')::timestamptz <= moment - interval '2 seconds', true);
    rise_to    bigint := case when passed_over is null then head when is_stale then (passed_over ->> 'head')::bigint else 0 end;
    risen      jsonb;
    begun      jsonb;
    walked     jsonb;
begin
    select jsonb_object_agg(pair, greatest(stop, rise_to)) filter (where not is_back and stop is not null),
           jsonb_object_agg(pair, stop) filter (where not is_back and stop is not null),
           jsonb_object_agg(pair, coalesce(stop, 0)) filter (where is_back)
    into risen, begun, walked
    from (select range.queue || ':' || range.priority as pair, is_back,
                 (select ready_seq from sereno.jobs
                  where jobs.state = 'ready' and jobs.lane is null and jobs.queue = range.queue
                    and jobs.priority = range.priority and jobs.ready_seq >= range.low and jobs.ready_seq < range.high
                  order by ready_seq offset range.most limit 1) as stop
          from unnest(ranges) as range offset 0) as read;
    is_short := risen is not null;
    if risen is null and walked is null then
        return;
    end if;
    floors := floors || coalesce(risen, '{}');
    passed_over := jsonb_build_object(
        'from', coalesce(begun, '{}') || coalesce(passed_over -> 'from', '{}') || coalesce(walked, '{}'),
        'head', case when is_stale then to_jsonb(head) else passed_over -> 'head' end,
        'head_at', case when is_stale then to_jsonb(moment) else passed_over -> 'head_at' end,
        'paused', sereno.paused_now());
    update sereno.sessions as own set floors = own.floors || coalesce(risen, '{}'), passed_over = pass_over.passed_over
    where own.id = any(array(select id from sereno.sessions where id = for_session for update skip locked));
end $$;

-- Pick and lock ready jobs without limits of these queues. After a floor has risen, the part below it is read at
-- once.
create function sereno.pick_plain(
    for_session bigint, queues text[], known_tasks text[], wanted integer, floors jsonb, looks_back boolean, turned boolean
) returns bigint[]
    language plpgsql as $$
declare
    ids          bigint[] := '{}';
    passed_over  jsonb;
    known        jsonb := floors;
    ranges       sereno.ready_range[];
    picked       record;
    noted        record;
    abilities    jsonb;
begin
    select own.passed_over, case when own.passed_over is null then pick_plain.floors else own.floors end, own.capabilities
    into passed_over, known, abilities
    from sereno.sessions own where id = for_session;
    for round in 1..2 loop
        ranges := sereno.ready_ranges(queues, coalesce(known, floors), passed_over, looks_back or round = 2, turned);
        exit when ranges is null;
        picked := sereno.pick_ranges(ranges, known_tasks, wanted - cardinality(ids), ids, abilities);
        ids := ids || coalesce(picked.ids, '{}');
        noted := sereno.pass_over(for_session, ranges[:picked.reached], coalesce(known, floors), passed_over);
        exit when not noted.is_short or cardinality(ids) >= wanted;
        known := noted.floors;
        passed_over := noted.passed_over;
    end loop;
    return ids;
end $$;

-- Reset the floors of a session after a pause has ended: jobs that it passed over may be claimable now. SKIP LOCKED
-- as in learn_floors.
create function sereno.start_over(for_session bigint) returns void
    language sql as $$
    update sereno.sessions set passed_over = null, floors = '{}', look_back_at = null
    where id = any(array(select id from sereno.sessions where id = for_session for update skip locked))
    $$;

-- Return whether a pause that was in force when jobs were passed over has ended.
create function sereno.has_resumed(passed_over jsonb) returns boolean
    language sql stable as $$ select not (passed_over -> 'paused') <@ sereno.paused_now() $$;

-- Claim jobs without limits, of queues without limits (see pick_plain). `floors`: where to start. `turned`: the least
-- urgent first.
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

-- A lane during a claim; the first fields as sereno.take_lanes returns them. `is_open`: may be given more jobs;
-- `gives`: how many jobs it may give; `waits`: the limiter that refused it.
-- Claims under limits by SQL take and write lanes by the functions that the worker in Python calls; the decision
-- between them, which jobs/limits/lane_decision.py makes for it, is made here.
create type sereno.taken_lane as (
    id bigint, queue text, limiters bigint[], units integer[], order_id bigint, turn double precision, floor_priority smallint,
    floor_seq bigint, behind bigint, band smallint, has_head boolean, fair text, weight double precision,
    clock double precision, is_open boolean, gives integer, waits bigint);

-- A limiter during a claim. `capacity`: slots or tokens left; `need`: what the first lane that it refused needs;
-- `is_touched`: to be written.
create type sereno.taken_limiter as (
    id bigint, kind text, slots integer, per_second double precision, burst double precision, tokens double precision,
    closed double precision, held bigint[], checks integer, capacity double precision, need double precision, is_touched boolean);

-- Return the locked limiters, each with those of its jobs that still run and pass it. Queried while they are locked,
-- so that no other claim changes them. Jobs behind a negative number -n share n slots, as long as there are more than
-- n of them (see jobs/limits/slot_sharing.py).
create function sereno.read_limiters(taken_json json) returns sereno.taken_limiter[]
    language sql as $$
    select array_agg(row(id, kind, slots, per_second, burst, tokens, closed, inside.held, checks,
                         case when closed > 0 then 0 when kind = 'rate' then tokens
                              when kind = 'unknown' then 0 else slots - inside.taken end,
                         null, is_due)::sereno.taken_limiter)
    from (select (each ->> 0)::bigint as id, each ->> 1 as kind, (each ->> 2)::integer as slots,
                 (each ->> 3)::double precision as per_second, (each ->> 4)::double precision as burst,
                 (each ->> 5)::double precision as tokens, coalesce((each ->> 6)::double precision, 0) as closed,
                 each -> 7 as list, (each ->> 8)::integer as checks,
                 exists (select from json_array_elements(taken_json -> 4) as free
                         where free ->> 0 = each ->> 0 and (free ->> 1)::boolean) as is_due
          from json_array_elements(taken_json -> 3) as each offset 0) as limiter
    cross join lateral (
        select coalesce(array_agg(number order by slot_group * (not is_alone)::integer, place), '{}') as held,
               coalesce(sum(case when is_alone then 1 when number < 0 then -number else 0 end), 0) as taken
        from (select *, count(*) filter (where number > 0) over (partition by slot_group)
                        <= coalesce(-min(number) filter (where number < 0) over (partition by slot_group), 1e9) as is_alone
              from (select number, place, count(*) filter (where number < 0) over (order by place) as slot_group
                    from (select value::bigint as number, place
                          from json_array_elements_text(list) with ordinality as e(value, place)) as listed) as numbered
              where number < 0 or exists (
                  select from sereno.jobs
                  where jobs.id = number and state = 'running'
                    and (attempt = 1 or kind = 'rate' or limiter.id in (select sereno.limiters_of(jobs.queue, jobs.keys))))) as live
        where number > 0 or not is_alone) as inside
    $$;

-- Return the lanes all of whose limiters were locked, and, for each queue with a limit of its own, its plain jobs as
-- a lane without an id. A fair lane that waited for a limiter gets no extra turns for it: its turn is that of the lanes
-- that are next.
create function sereno.read_lanes(taken_json json, locked bigint[]) returns sereno.taken_lane[]
    language sql as $$
    with own as materialized (
        select key as queue, array(select json_array_elements_text(value -> 0)::bigint) as limiters,
               (value ->> 1)::boolean as has_plain
        from json_each(taken_json -> 5)
    ),
    lane as materialized (
        select (each ->> 0)::bigint as id, each ->> 1 as queue, array(select json_array_elements_text(each -> 2)::bigint) as limiters,
               array(select json_array_elements_text(each -> 3)::integer) as units, (each ->> 4)::bigint as order_id,
               (each ->> 5)::double precision as turn, (each ->> 6)::smallint as floor_priority, (each ->> 7)::bigint as floor_seq,
               (each ->> 8)::bigint as behind, (each ->> 9)::smallint as band, (each ->> 10)::boolean as has_head,
               each ->> 11 as fair, (each ->> 12)::double precision as weight, (each ->> 13)::double precision as clock
        from json_array_elements(taken_json -> 2) as each
    ),
    every as (
        select id, queue, limiters || extra as limiters, units || array_fill(1, array[cardinality(extra)]) as units, order_id,
               case when fair is null or behind is null then turn
                    else greatest(turn, min(turn) filter (where fair is not null and behind is null) over (partition by queue))
                    end as turn,
               floor_priority, floor_seq, behind, band, has_head, fair, weight, clock
        from lane cross join lateral (
            select array(select limiter from own, unnest(own.limiters) as limiter
                         where own.queue = lane.queue and limiter <> all(lane.limiters))) as e(extra)
        union all
        select null, queue, limiters, array_fill(1, array[cardinality(limiters)]), null,
               coalesce((select min(turn) from lane where lane.queue = own.queue), 0), 0, 0, null, 5, null, null, null, null
        from own where has_plain
    )
    select array_agg(row(every.*, true, 0, null)::sereno.taken_lane) from every where limiters <@ locked
    $$;

-- Assign one job at a time to the lane that is next, until the free slots are used up or every lane must wait: bands
-- in order, in rounds within a band, fair lanes by jobs divided by weight. A rate that refuses a lane refuses all
-- later ones.
create function sereno.give_turns(
    inout lanes sereno.taken_lane[], inout limiters sereno.taken_limiter[], in slots_left integer, in turned boolean
)
    language plpgsql as $$
declare
    known    bigint[] := array(select id from unnest(limiters));
    most     integer := greatest(4, 4 * slots_left / greatest(1, cardinality(lanes)));
    number   integer;
    refused  integer;
    limiter  integer;
    cost     double precision;
begin
    while slots_left > 0 loop
        select ordinality into number from unnest(lanes) with ordinality as lane
        where is_open
        order by case when turned then -band else band end,
                 case when fair is null then gives else turn + gives / coalesce(weight, 1) end, turn
        limit 1;
        exit when number is null;
        refused := null;
        for place in 1..cardinality(lanes[number].limiters) loop
            limiter := array_position(known, lanes[number].limiters[place]);
            cost := least(lanes[number].units[place], coalesce(limiters[limiter].burst, 1));
            if limiters[limiter].capacity < cost or (limiters[limiter].kind = 'rate' and limiters[limiter].need is not null)
               or (limiters[limiter].id = lanes[number].order_id and lanes[number].has_head is not true) then
                refused := limiter;
                exit;
            end if;
        end loop;
        if refused is not null then
            limiters[refused].need := coalesce(limiters[refused].need, cost);
            limiters[refused].is_touched := true;
            lanes[number].waits := limiters[refused].id;
            lanes[number].is_open := false;
            continue;
        end if;
        for place in 1..cardinality(lanes[number].limiters) loop
            limiter := array_position(known, lanes[number].limiters[place]);
            limiters[limiter].is_touched := true;
            -- In full: a job that costs more than a burst leaves a debt.
            cost := case when limiters[limiter].kind = 'rate' then lanes[number].units[place] else 1 end;
            limiters[limiter].capacity := limiters[limiter].capacity - cost;
            if limiters[limiter].kind = 'order' then
                -- The next job of the order has to wait from now on.
                limiters[limiter].need := 1;
            end if;
        end loop;
        lanes[number].gives := lanes[number].gives + 1;
        lanes[number].is_open := lanes[number].gives < most;
        slots_left := slots_left - 1;
    end loop;
end $$;

-- Pick and lock jobs of each lane by index; return their ids, and the number of the lane of each. `stops`: lanes of
-- which no more rows may be read in one claim, by number, and where the next claim continues. `passing`: numbers of
-- lanes that gave jobs from behind others. SKIP LOCKED: a row that another claim has locked belongs to that claim.
-- The choice must agree with the query `pick` of jobs/limits/lane_claim.sql, which the worker in Python runs. They
-- are two statements, because `pick` also bounds isolated tasks and suspects by free processes, picks the plain jobs
-- of limited queues and claims, in one round trip and with plans of its own; a shared function would change these
-- plans. tests/jobs/public_sql/test_limits.py runs both against the same model of limits and orders.
create function sereno.pick_limited(
    lanes sereno.taken_lane[], known_tasks text[], capabilities jsonb, out ids bigint[], out numbers bigint[],
    out stops jsonb, out passing bigint[]
)
    language sql as $$
    with paused as materialized (select kind, name from sereno.pauses where kind <> 'queue'),
    wanted as materialized (
        select *, greatest(100, 2 * gives, sereno.most_read('lanes') / count(*) over ()) as most
        from unnest(lanes) with ordinality where gives > 0 and id is not null),
    picked as materialized (
        select job.id, wanted.ordinality, job.seen
        from wanted cross join lateral (
            select locked.id, seen
            from (select *, row_number() over () as seen from (
                  select jobs.ctid as place, task, tenant, requires from sereno.jobs
                  where state = 'ready' and jobs.lane is not null and jobs.queue = wanted.queue and jobs.lane = wanted.id
                    and (priority, ready_seq) >= (wanted.floor_priority, wanted.floor_seq)
                  order by priority, ready_seq limit wanted.most) as rows_read) as near
            cross join lateral (
                select jobs.id from sereno.jobs
                where jobs.ctid = near.place and state = 'ready' and jobs.queue = wanted.queue and jobs.lane = wanted.id
                for update skip locked) as locked
            where task = any(known_tasks) and task <> all(array(select name from paused where kind = 'task'))
              and (tenant is null or tenant <> all(array(select name from paused where kind = 'tenant')))
              and (requires is null or sereno.meets(requires, task, capabilities))
            limit wanted.gives) as job
        where wanted.order_id is null
        union all
        select job.id, wanted.ordinality, null
        from wanted cross join lateral (
            select jobs.id, jobs.keys from sereno.jobs where jobs.order_id = wanted.order_id order by jobs.id limit 1) as head
        cross join lateral (
            select jobs.id from sereno.jobs
            where jobs.id = head.id and state = 'ready' and jobs.lane = wanted.id
              and task = any(known_tasks) and task <> all(array(select name from paused where kind = 'task'))
              and (tenant is null or tenant <> all(array(select name from paused where kind = 'tenant')))
              and (requires is null or sereno.meets(requires, task, capabilities))
            for update skip locked) as job
        where wanted.order_id is not null
          and (select true from sereno.history_dead dead
               where dead.keys ? 'blocks' and dead.queue = wanted.queue and dead.keys ->> 'order' = head.keys ->> 'order'
               limit 1) is null
    ),
    short as materialized (
        select wanted.* from wanted
        where order_id is null and gives > (select count(*) from picked where picked.ordinality = wanted.ordinality)
    )
    select array_agg(id), array_agg(ordinality),
           (select jsonb_object_agg(short.ordinality, jsonb_build_array(next.priority, next.ready_seq))
            from short cross join lateral (
                select priority, ready_seq from sereno.jobs
                where state = 'ready' and jobs.lane is not null and jobs.queue = short.queue and jobs.lane = short.id
                  and (priority, ready_seq) >= (short.floor_priority, short.floor_seq)
                order by priority, ready_seq offset short.most limit 1) as next),
           (select array_agg(ordinality) from (
                select ordinality from picked group by ordinality having max(seen) > count(*)) as behind_others)
    from picked
    $$;

-- Write the decision and the picked jobs to lanes and limiters (see jobs/limits/lane_claim.py). A lane that gave jobs
-- moves to the end of its band, because claims by SQL store no position. A limiter that a lane starts to wait for is
-- due at once, so that the next claim checks it: it may have come free during this claim.
create function sereno.write_limited(
    moment timestamptz, lanes sereno.taken_lane[], limiters sereno.taken_limiter[], ids bigint[], numbers bigint[], stops jsonb
) returns void
    language sql as $$
    with given as materialized (
        select lane.*, got.ids, coalesce(cardinality(got.ids), 0) as count, last.priority, last.ready_seq,
               coalesce(cardinality(got.ids), 0) < lane.gives as is_short
        from unnest(lanes) with ordinality as lane
        cross join lateral (
            select array_agg(picked.id order by place) as ids
            from unnest(ids, numbers) with ordinality as picked(id, number, place) where number = lane.ordinality) as got
        left join sereno.jobs last on last.id = got.ids[cardinality(got.ids)]
        where lane.gives > 0 or lane.waits is not null
    ),
    share as materialized (
        select queue, fair, max(greatest(coalesce(clock, 0), turn))
                            + sum((count - is_short::integer) / coalesce(weight, 1)) as clock
        from given where fair is not null and count > 0 group by queue, fair
    ),
    moved as (
        select given.id,
               case when gives = 0 then waits when is_short then null else coalesce(given.order_id, waits) end as waits,
               case when given.fair is null then coalesce(given.priority, band) else band end as band,
               case when given.fair is null then sereno.micros(moment) + given.ordinality
                    when gives > 0 and is_short then greatest(coalesce(share.clock, turn), turn + gives / coalesce(weight, 1))
                    else coalesce(share.clock, turn) end as turn,
               case when gives = 0 then floor_priority
                    when is_short then coalesce((stops -> given.ordinality::text ->> 0)::integer, 0) else given.priority end as priority,
               case when gives = 0 then floor_seq
                    when is_short then coalesce((stops -> given.ordinality::text ->> 1)::bigint, 0) else given.ready_seq end as seq,
               floor_priority, floor_seq
        from given left join share on share.queue = given.queue and share.fair = given.fair
        where given.id is not null
    ),
    passed as (
        select limiter, sum(gives - count) as unused, sum(g.units * count) as spent,
               bool_or(given.id is not null and waits = limiter and behind is distinct from limiter) as is_new
        from given cross join lateral unnest(given.limiters, given.units) as g(limiter, units)
        group by limiter
    ),
    written as (
        select limiter.*, coalesce(passed.spent, 0) as spent, entered,
               case when need is null then null
                    when kind = 'rate' then
                        least(60, greatest(0, closed, (need - (tokens - coalesce(spent, 0))) / coalesce(per_second, 1)))
                    when is_new then 0
                    when closed > 0 then least(60, closed)
                    when kind = 'slots' and capacity + coalesce(unused, 0) > 0 then 0
                    else least(60, 5 * 2 ^ checks) end as next_check,
               case when entered <> '{}' then 0 when is_new and kind <> 'rate' then checks else least(10, checks + 1) end as new_checks
        from unnest(limiters) as limiter left join passed on passed.limiter = limiter.id
        cross join lateral (select array(select job from given g, unnest(g.ids) as job where limiter.id = any(g.limiters))) as e(entered)
        where is_touched
    )
    select sereno.write_lanes(
        moment, '{}', '{}', '{}', '{}', '{}', m.ids, m.waits, m.bands, m.turns, m.priorities, m.seqs, m.seen, m.seen_seqs,
        w.ids, w.held, w.tokens, w.checks, w.exact, w.counts, s.queues, s.keys, s.clocks)
    from (select array_agg(id) as ids, array_agg(waits) as waits, array_agg(band::smallint) as bands, array_agg(turn) as turns,
                 array_agg(priority::smallint) as priorities, array_agg(seq) as seqs,
                 array_agg(floor_priority) as seen, array_agg(floor_seq) as seen_seqs from moved) as m,
         (select array_agg(id) as ids, array_agg(case when kind = 'rate' then '{}' else (entered || held)::text end) as held,
                 array_agg(tokens - spent) as tokens, array_agg(next_check::double precision) as checks,
                 array_agg(kind = 'rate' or coalesce(next_check, 1) = 0) as exact, array_agg(new_checks::integer) as counts
          from written) as w,
         (select array_agg(queue) as queues, array_agg(fair) as keys, array_agg(clock) as clocks from share) as s
    $$;

-- Claim jobs with limits, and jobs of queues with limits: wake lanes, take them with their limiters, decide, pick,
-- write. Repeated while it yields jobs, because a lane is given only its share at a time. `floors`: where to start.
create function sereno.claim_limited(
    for_session bigint, wanted text[], known_tasks text[], most integer, floors jsonb, turned boolean,
    looks_back boolean default false
) returns setof sereno.jobs
    language plpgsql as $$
declare
    opened      json := sereno.open_lanes(coalesce((floors ->> 'wakes')::bigint, 0));
    made        boolean := false;
    taken_json  json;
    limiters    sereno.taken_limiter[];
    lanes       sereno.taken_lane[];
    ids         bigint[];
    numbers     bigint[];
    stops       jsonb;
    passing     bigint[];
    walks       integer := 0;
    plain       bigint[];
    which       integer;
begin
    perform sereno.keep_moving();
    while most > 0 loop
        taken_json := sereno.take_lanes((
            select jsonb_agg(jsonb_build_object(
                'queue', queue, 'now', most, 'slots', most, 'lanes', most,
                'floors', (select jsonb_agg(jsonb_build_object(
                               'priority', level, 'floor', coalesce((floors ->> (queue || ':' || level))::bigint, 0)))
                           from generate_series(0, 9) as level),
                'bands', (select jsonb_agg(jsonb_build_object('band', level, 'after', 0) order by place)
                          from (select level, case when turned then -level else level end as place
                                from generate_series(0, 9) as level) as step)))
            from unnest(wanted) as queue), '[]');
        limiters := sereno.read_limiters(taken_json);
        lanes := sereno.read_lanes(taken_json, coalesce((select array_agg(id) from unnest(limiters)), '{}'));
        select given.lanes, given.limiters into lanes, limiters from sereno.give_turns(lanes, limiters, most, turned) as given;
        select picked.ids, picked.numbers, picked.stops, picked.passing into ids, numbers, stops, passing
        from sereno.pick_limited(
            lanes, known_tasks, (select capabilities from sereno.sessions where id = for_session)) as picked;
        -- The jobs without keys of a queue with a limit of its own.
        for which in select ordinality from unnest(lanes) with ordinality where id is null and gives > 0 loop
            plain := sereno.pick_plain(
                for_session, array[lanes[which].queue], known_tasks, lanes[which].gives, floors, looks_back, turned);
            ids := ids || plain;
            numbers := numbers || array_fill(which::bigint, array[cardinality(plain)]);
        end loop;
        perform sereno.write_limited((taken_json ->> 0)::timestamptz, lanes, limiters, ids, numbers, stops);
        if stops is not null or passing is not null then
            perform sereno.mark_passed_over(
                array(select lane.id from unnest(lanes) with ordinality as lane
                      where stops ? ordinality::text or ordinality = any(passing)));
        end if;
        return query select * from sereno.mark_claimed(for_session, ids, (taken_json ->> 0)::timestamptz);
        if (taken_json ->> 8)::boolean and not made then
            -- Limiters are missing: of new limits, or deleted while unused.
            perform sereno.make_limiters(array(select (each ->> 0)::bigint from json_array_elements(taken_json -> 2) as each), wanted);
            made := true;
        elsif coalesce(cardinality(ids), 0) = 0 then
            -- There may be more jobs behind those that were passed over.
            walks := walks + 1;
            exit when stops is null or walks = 5;
        end if;
        most := most - coalesce(cardinality(ids), 0);
    end loop;
end $$;

-- A job as claim_jobs returns it.
create type sereno.claimed_job as (
    id bigint, attempt integer, task text, args jsonb, queue text, tenant text, priority smallint, failures integer,
    crashes integer, trace text, run_at timestamptz, claimed_at timestamptz, planned_at timestamptz);

-- Claim at most `most` ready jobs of the session's tasks, from these queues or from all queues of the session. Jobs
-- with limits and without take random turns in who is first; one claim in ten starts with the least urgent. A job
-- that has expired, or has reached the limit of crashes, becomes dead and is not returned.
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
        -- Jobs that have just become due are promoted here, not at the next heartbeat of a session.
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

-- An outcome of an attempt as a worker reports it.
create type sereno.outcome as (
    id bigint, attempt integer, outcome text, delay double precision, until timestamptz, retries integer, seconds double precision,
    reason text, error_type text, error_message text, traceback text, frame text, history boolean, result sereno.bounded_json);

-- Return the outcomes with texts cut to their stored length, or raise an error that names the job and the problem.
create function sereno.read_outcomes(outcomes jsonb) returns setof sereno.outcome
    language plpgsql stable as $$
declare
    item   jsonb;
    given   sereno.outcome;
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
                   when key = 'result' then octet_length(value::text) > 1048576
                   else key not in ('outcome', 'until', 'reason', 'error_type', 'error_message', 'traceback', 'frame')
                        or jsonb_typeof(value) not in ('string', 'null') end;
        exit when wrong is not null;
        given := jsonb_populate_record(null::sereno.outcome, item);
        wrong := 'job ' || coalesce(given.id::text, '(null)') || ': ' || case
            when given.id is null or given.attempt is null then 'the id and the attempt must be as sereno.claim_jobs gave them'
            when given.id = any(seen) then 'it is listed twice'
            when coalesce(given.outcome, '') not in ('succeeded', 'retry', 'snooze', 'release', 'crash', 'dead', 'cancelled')
                then 'it cannot end as ' || coalesce('"' || left(given.outcome, 30) || '"', 'null')
            when given.outcome = 'snooze' and given.delay is null and given.until is null then 'a snooze needs a delay, or until'
            when given.delay not between 0 and 3e9 or given.seconds not between 0 and 3e9 or given.retries < 0
                then 'delay, seconds and retries are not negative, and not more than a hundred years'
            when given.until not between '1900-01-02 00:00Z' and '9999-12-30 00:00Z' then 'until is out of range: 1900 to 9999' end;
        exit when wrong is not null;
        seen := seen || given.id;
        given.reason := nullif(left(given.reason, 4000), '');
        given.error_type := nullif(left(given.error_type, 200), '');
        given.error_message := left(given.error_message, 4000);
        given.traceback := right(given.traceback, 16000);
        given.frame := left(given.frame, 200);
        return next given;
    end loop;
    if wrong is not null then
        raise exception 'outcomes: %', wrong using errcode = 'invalid_parameter_value',
            hint = 'A list of objects, such as [{"id": 7, "attempt": 1, "outcome": "succeeded"}]; nothing was changed.';
    end if;
end $$;

-- The result of settling one attempt. `why`: the reason if it was not written, or was written before.
create type sereno.settled_job as (id bigint, attempt integer, settled boolean, state text, run_at timestamptz, why text);

-- Settle attempts of the session; return for each whether it was written. A session that lost its lease, or the job,
-- changes nothing. A call repeated after a lost reply returns the same result. `strict`: raise an error if one was
-- not written, which rolls back the whole transaction. Writes what the statements of jobs/settlement.sql write. The
-- jobs are locked in the order of their ids, so that two calls never deadlock.
create function sereno.settle_jobs(session bigint, outcomes jsonb, strict boolean default false)
    returns setof sereno.settled_job
    language plpgsql security definer set search_path = pg_catalog, pg_temp
    set jit = off set enable_sort = off set enable_bitmapscan = off set enable_seqscan = off set enable_nestloop = off
    set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    own       sereno.sessions := sereno.own_session(session);
    moment    timestamptz := sereno.clock_now();
    items     sereno.outcome[] := array(select given from sereno.read_outcomes(outcomes) as given);
    ids       bigint[] := array(select id from unnest(items));
    is_alive  boolean := coalesce(own.state = 'alive' and own.lease_until > moment, false);
    done      sereno.settled_job[];
    limiters  bigint[];
    linked_ids     bigint[];
    linked_groups  bigint[];
    linked_states  text[];
    results   sereno.settled_job[];
begin
    with held as materialized (
        select * from sereno.jobs where id = any(ids) and session_id = session and is_alive order by id for update
    ),
    mine as materialized (
        select held.*, given.outcome as given, given.reason, given.error_type, given.error_message, given.traceback, given.frame,
               given.history, given.result, decided, decided in ('retry', 'snooze', 'release', 'crash') as continues,
               case when given.seconds is null then held.claimed_at
                    else greatest(held.claimed_at, moment - make_interval(secs => given.seconds)) end as started_at,
               case when given.outcome = 'release' then held.run_at
                    else greatest(given.until, moment + make_interval(secs => coalesce(given.delay, case
                        when given.until is not null then 0
                        when given.outcome = 'retry' then least(3600, 60 * 2 ^ least(held.failures, 10)) * (1 + random() / 10)
                        else 60 * (1 + random() / 10) end))) end as due,
               case when decided in ('retry', 'crash', 'dead') then sereno.fingerprint_of(
                   held.task, coalesce(given.error_type, initcap(given.outcome)), coalesce(given.error_message, given.reason, ''),
                   coalesce(given.frame, '')) end as fingerprint
        from held join unnest(items) as given on given.id = held.id and given.attempt = held.attempt
        cross join lateral (select case
            when given.outcome = 'retry' and held.failures >= coalesce(given.retries, 10) then 'dead'
            when given.outcome = 'crash' and held.crashes >= 2 then 'dead'
            when held.cancel_requested and given.outcome not in ('succeeded', 'dead', 'cancelled') then 'stopped'
            else given.outcome end) as d(decided)
    ),
    moved as (
        update sereno.jobs
        set run_at = due, state = case when due <= moment then 'ready' else 'scheduled' end,
            ready_seq = case when due <= moment then nextval('sereno.ready_seq') end, session_id = null,
            failures = mine.failures + (given = 'retry')::integer, crashes = mine.crashes + (given = 'crash')::integer,
            snoozes = mine.snoozes + (given = 'snooze')::integer, releases = mine.releases + (given = 'release')::integer
        from mine where jobs.id = any(ids) and jobs.id = mine.id and continues
    ),
    tried as (
        insert into sereno.attempts (job_id, number, session_id, started_at, finished_at, outcome, reason, error_type,
                                     error_message, traceback, fingerprint)
        select id, attempt, session_id, started_at, moment, given, reason, error_type, error_message, traceback, fingerprint
        from mine where continues
    ),
    ending as materialized (
        select *, case when decided = 'stopped' then 'cancelled' else decided end as final, case
                   when decided = 'dead' and given = 'retry' then 'failed ' || failures + 1 || ' times'
                   when decided = 'dead' and given = 'crash'
                       then 'crash loop: ' || coalesce(reason || ', ', '') || crashes + 1 || ' times'
                   when decided = 'dead' then coalesce(reason, 'permanent error: ' || error_type, 'reported by the worker')
                   when decided = 'cancelled' then coalesce(reason, 'reported by the worker')
                   when decided = 'stopped' then coalesce(reason, 'cancelled while running') end as cause
        from mine where not continues
    ),
    gone as (delete from sereno.jobs where id = any(array(select id from ending))),
    stored as (
        insert into sereno.history (
            id, session_id, finished_at, started_at, run_at, created_at, expires_at, attempt, failures, crashes, snoozes,
            releases, priority, state, queue, task, tenant, unique_key, trace, tags, args, schedule_id, planned_at, stands_for,
            keys, requires, group_id, links, reason, error_type, error_message, traceback, fingerprint, result)
        select id, session_id, moment, started_at, run_at, created_at, expires_at, attempt,
               failures + (given in ('retry', 'dead'))::integer, crashes + (given = 'crash')::integer,
               snoozes + (given = 'snooze')::integer, releases + (given = 'release')::integer, priority, final, queue, task, tenant,
               unique_key, trace, tags, args, schedule_id, planned_at, stands_for, keys, requires, group_id, links, cause, error_type,
               error_message, traceback, fingerprint, case when final = 'succeeded' then nullif(result, 'null') end
        from ending where final <> 'succeeded' or history is not false
    ),
    ended as (
        insert into sereno.schedule_ends (schedule_id, job_id, state, finished_at, error)
        select schedule_id, id, final, moment,
               case when decided in ('dead', 'cancelled') then coalesce(error_type || ': ' || error_message, cause) end
        from ending where schedule_id is not null
    ),
    steps as (delete from sereno.steps where job_id = any(array(select id from ending))),
    waits as (delete from sereno.signal_waits where job_id = any(array(select id from ending))),
    progress as (delete from sereno.progress where job_id = any(array(select id from ending))),
    counted as (
        insert into sereno.ended_attempts (at, queue, task, tenant, outcome, waited, ran, failures, job_id, fingerprint, error_type,
                                           message, frame)
        select moment, queue, task, tenant, case when decided = 'stopped' then given else decided end,
               extract(epoch from claimed_at - run_at), extract(epoch from greatest(moment - started_at, interval '0')),
               failures, id, fingerprint, coalesce(error_type, initcap(given)), coalesce(error_message, reason, ''),
               coalesce(frame, '')
        from mine
    )
    select array_agg(row(id, attempt, true, coalesce(final, case when due <= moment then 'ready' else 'scheduled' end),
                         case when continues then due end, null)::sereno.settled_job),
           (select array_agg(limiter) from mine cross join lateral sereno.limiters_of(mine.queue, mine.keys) as limiter),
           (select array_agg(id order by id) from ending where group_id is not null or has_successors),
           (select array_agg(coalesce(group_id, 0) order by id) from ending where group_id is not null or has_successors),
           (select array_agg(final order by id) from ending where group_id is not null or has_successors)
    into done, limiters, linked_ids, linked_groups, linked_states
    from mine left join (select id as ended_id, final from ending) as e on ended_id = id;
    -- A separate statement, and only if needed: it opens every partition of the attempts.
    if exists (select from unnest(items) where history is false and attempt > 1) then
        delete from sereno.attempts
        where job_id = any(array(select d.id from unnest(done) as d join unnest(items) as given on given.id = d.id
                                 where d.state = 'succeeded' and given.history is false and given.attempt > 1));
    end if;
    perform sereno.end_links(linked_ids, linked_groups, linked_states) where linked_ids is not null;
    perform sereno.hand_over(limiters);
    perform sereno.notify_finished(array(select d.id from unnest(done) as d where d.run_at is null))
    where exists (select from sereno.waiters);
    perform sereno.notify_ready(queue, min(extract(epoch from run_at - moment))::double precision)
    from sereno.jobs where id = any(ids) and id in (select d.id from unnest(done) as d where d.run_at is not null) group by queue;

    -- A separate statement, for attempts that were not written now: was it written before, and the reply was lost? A
    -- rescue records the attempt too, with another reason.
    select array_agg(coalesce(did, row(given.id, given.attempt, past.state is not null, past.state, null, case
               when past.state is not null then 'it was written before'
               when is_alive then 'the session does not have this attempt of it'
               else 'the session has no lease' end)::sereno.settled_job) order by given.ordinality)
    into results
    from unnest(items) with ordinality as given
    left join unnest(done) as did on did.id = given.id
    left join lateral (
        select state from sereno.history
        where history.id = given.id and history.attempt = given.attempt and session_id = session and did.id is null
        union all
        select coalesce((select jobs.state from sereno.jobs where jobs.id = given.id), 'ended') from sereno.attempts
        where job_id = given.id and number = given.attempt and session_id = session and outcome = given.outcome
          and reason is not distinct from given.reason and did.id is null
        limit 1) as past on true;
    if strict and exists (select from unnest(results) where not settled) then
        raise exception 'job % could not be settled: %', (select id from unnest(results) where not settled limit 1),
            (select why from unnest(results) where not settled limit 1)
            using errcode = 'SR002', hint = 'Another session has the job, or will get it: roll back this transaction.';
    end if;
    return query select * from unnest(results);
end $$;

-- Attempts that ended by SQL, until a heartbeat has added them to the statistics. Append-only, so that settling never
-- waits here.
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

-- Return a histogram of one duration, by the buckets of sereno.telemetry.metrics, and one beyond.
create function sereno.bucket(seconds double precision) returns integer[]
    language sql immutable as $$
    select array_agg((place = 1 + (select count(*) from unnest(edges) as edge where edge < seconds))::integer order by place)
    from (values ('{0.001,0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,300,1800}'::double precision[])) as e(edges),
         generate_series(1, 17) as place
    $$;

-- Return the fingerprint that groups failures. Simpler than jobs/fingerprint.py, and never equal to a fingerprint of
-- a worker in Python: the frame is what the caller reports, and quoted values, addresses and words with digits are
-- left out of the message.
create function sereno.fingerprint_of(task text, error_type text, message text, frame text) returns text
    language sql immutable as $$
    select left(encode(sha256(convert_to(concat_ws(e'\x01', task, error_type, left(words, 200), frame), 'UTF8')), 'hex'), 12)
    from regexp_replace(regexp_replace(left(message, 1000), '"[^"]*"|''[^'']*''|`[^`]*`|\S+@\S+', '<text>', 'g'),
                        '\w*\d[\w.,:-]*', '<id>', 'g') as words
    $$;

-- Return ended attempts summed up by steps of time, as rows of sereno.minutes.
create function sereno.figures_of(lines sereno.ended_attempts[], step interval) returns setof sereno.minutes
    language sql stable as $$
    select date_bin(step, at, 'epoch'), queue, task, count(*) filter (where outcome = 'succeeded'),
           count(*) filter (where outcome in ('retry', 'crash')), count(*) filter (where outcome = 'dead'),
           count(*) filter (where outcome = 'cancelled'), count(*) filter (where outcome in ('snooze', 'release')),
           sereno.sum_of(sereno.bucket(waited)), sereno.sum_of(sereno.bucket(ran)), sum(ran)
    from unnest(lines) group by 1, 2, 3 order by 1, 2, 3
    $$;

-- Add ended attempts to the statistics, in the same order of tables and rows as jobs/queries/minute_stats.py and
-- jobs/queries/error_groups.py, so that two writers never deadlock. SKIP LOCKED: another session is adding the rest.
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
    -- Beyond a hundred tenants of an hour, new ones are counted under an empty name.
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

-- Security definer functions are for roles that are granted them (sereno migrate --roles).
revoke execute on function sereno.open_session(
        text[], text[], text, integer, integer, text, interval, boolean, text, jsonb, text[]),
    sereno.heartbeat(bigint, bigint[]), sereno.claim_jobs(bigint, text[], integer), sereno.close_session(bigint) from public;

revoke execute on function sereno.settle_jobs(bigint, jsonb, boolean) from public;

-- Comments of public functions; a function without one is internal. docs/reference/sql-functions.md is made of them.
comment on function sereno.functions_version is
    'Return the version of the functions for workers in another language.';
comment on function sereno.open_session is
    'Open a session of a worker, and return its id. It belongs to the role that opened it. slots: how many jobs '
    'it runs at once; shown, not enforced. listens: new jobs are notified on the channel sereno.ready. '
    'task_versions: versions of its tasks, such as {"resize": 2}. keys: ids of the keys that it has for encrypted '
    'arguments.';
comment on function sereno.heartbeat is
    'Renew the lease of a session. held: all jobs that the worker holds; others that were claimed longer than a '
    'third of the lease ago are released. Returns whether the session is alive, the end of its lease, and of the '
    'held jobs those to cancel and those that it has lost.';
comment on function sereno.close_session is
    'Close a session: jobs that it holds are released. Returns their number.';
comment on function sereno.claim_jobs is
    'Claim up to "most" ready jobs of these queues, or of all queues of the session. One row for each job. Raises '
    'SR001 when the session has no lease.';
comment on function sereno.settle_jobs is
    'Report the outcomes of up to 1000 attempts. One row for each, in their order: whether it was settled, the '
    'new state of the job, and why not. strict: raise SR002 when one of them is not settled.';
