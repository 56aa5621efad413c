-- Limits: concurrency, rate, order and fair sharing.
--
-- A job without limits is not affected. A job with limits carries its keys and belongs to a lane: all jobs of a queue
-- with the same keys. A lane passes through limiters, one for each limit and key; a limiter stores its tokens and the
-- jobs that it admitted. A claim takes lanes in turn, never their jobs one by one, so exhausted lanes cost nothing:
-- lanes are woken (open_lanes), taken with their limiters (take_lanes), and written after the decision (write_lanes).
-- Jobs of one key that one worker claimed together may share slots (see jobs/limits/slot_sharing.py).

-- Return the id of a lane: a hash of its queue and keys. Two lanes, limiters or orders whose ids collide (1 in 2^64)
-- share a limit and never exceed one.
create function sereno.lane_of(queue text, keys jsonb) returns bigint
    language sql immutable parallel safe as $$ select hashtextextended(jsonb_build_array(queue, keys)::text, 1) $$;

-- Return the id of the limiter of a limit and key.
create function sereno.limiter_of(limit_name text, key text) returns bigint
    language sql immutable parallel safe as $$ select hashtextextended(jsonb_build_array(limit_name, key)::text, 2) $$;

-- Return the id of the order that keys name; null if they name none.
create function sereno.order_of(queue text, keys jsonb) returns bigint
    language sql immutable parallel safe as $$
        select case when keys ? 'order' then hashtextextended(jsonb_build_array(queue, keys ->> 'order')::text, 3) end
    $$;

-- The limits that apply, which operators may change at run time; `declared` stores what the code declares beside
-- them.
create table sereno.limits (
    name         text primary key,
    kind         text not null check (kind in ('slots', 'rate')),
    slots        integer check (slots >= 0),
    units        double precision check (units > 0 and units < 'infinity'),
    period       double precision check (period > 0 and period < 'infinity'),
    burst        double precision check (burst >= 1 and burst < 'infinity'),
    -- For a limit of a whole queue: it applies to all jobs of the queue, also to those without keys.
    queue        text,
    key          text not null default '',
    declared     jsonb,
    declared_by  text,
    overridden   boolean not null default false,
    note         text,
    changed_by   text,
    changed_at   timestamptz not null default sereno.now(),
    constraint limits_numbers check (
        case kind when 'slots' then slots is not null and units is null
                  else units is not null and period is not null and burst is not null and slots is null end)
);

create index limits_queue on sereno.limits (queue) where queue is not null;
-- Every claim of a worker checks whether a limit has changed.
create index limits_changed on sereno.limits (changed_at);

-- One limit for one key. `held`: the jobs that the limiter admitted. Those of them that still run hold its slots, so
-- a slot that was not released is free as soon as its job is no longer running. An order is a limiter with one slot
-- and no limit.
create table sereno.limiters (
    id            bigint primary key,
    limit_name    text,
    key           text not null,
    tokens        double precision,
    used_at       timestamptz not null default sereno.now(),
    closed_until  timestamptz,
    held          bigint[] not null default '{}',
    -- When the lanes that wait for this limiter are next checked: when the next token is due, or in case no release
    -- of a slot was reported. `checks`: checks in a row that admitted no job; each doubles the time to the next, up to
    -- a minute.
    check_at       timestamptz,
    checks         integer not null default 0
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

comment on column sereno.limiters.held is
    'Ids of admitted jobs, each with a slot of its own; those behind a negative number -n share n slots.';

create index limiters_check on sereno.limiters (check_at) where check_at is not null;
create index limiters_limit on sereno.limiters (limit_name);

-- A lane: all jobs of a queue with the same keys. `turn`: position among the lanes of its band. `waits_for`: the
-- limiter that refused its next job; null when it is open. `floor_priority`, `floor_seq`: where a claim starts to
-- read its jobs.
create table sereno.lanes (
    id              bigint primary key,
    queue           text not null,
    keys            jsonb not null,
    limiters        bigint[] not null,
    units           integer[] not null,
    order_id        bigint,
    fair            text,
    -- Priority band, that of the first job of the lane. Lanes with a fair key, which take turns by their clock, have
    -- the band 10.
    band            smallint not null,
    turn            double precision not null,
    has_work        boolean not null default true,
    waits_for       bigint,
    floor_priority  smallint not null default 0,
    floor_seq       bigint not null default 0,
    -- Jobs below the floor were passed over: paused, or unknown to the worker that claimed.
    passed_over     boolean not null default false,
    served_at       timestamptz not null default sereno.now()
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index lanes_open on sereno.lanes (queue, band, turn) where has_work and waits_for is null;
create index lanes_waiting on sereno.lanes (waits_for, turn) where has_work and waits_for is not null;
-- The fair keys that have lanes. Neither column ever changes, so updates of lanes stay heap-only.
create index lanes_fair on sereno.lanes (queue, fair) where fair is not null;
create index lanes_idle on sereno.lanes (served_at) where not has_work;
create index lanes_passed_over on sereno.lanes (id) where passed_over;

-- Queues that have lanes, which a claim of plain jobs checks to see whether it must claim limited jobs too.
create table sereno.lane_queues (queue text primary key);

-- Virtual clock of a fair key in a queue: the jobs that it was given, divided by its weight.
create table sereno.shares (
    queue  text not null,
    key    text not null,
    clock  double precision not null,
    primary key (queue, key)
) with (fillfactor = 50);

create index shares_clock on sereno.shares (queue, clock);

-- Weights of fair keys; a key without a row has weight 1.
create table sereno.weights (
    key         text primary key,
    weight      double precision not null check (weight between 0.001 and 1000000),
    changed_by  text,
    changed_at  timestamptz not null default sereno.now()
);

-- Wake-ups: a job with limits became ready. Append-only and never locked, so that a caller's long transaction delays
-- no lane.
create table sereno.lane_wakes (
    id         bigint generated always as identity primary key,
    lane       bigint not null,
    queue      text not null,
    priority   smallint not null,
    ready_seq  bigint not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Record a wake-up for the lane of a job.
create function sereno.wake_lane() returns trigger
    language plpgsql as $$
begin
    insert into sereno.lane_wakes (lane, queue, priority, ready_seq)
    values (new.lane, new.queue, new.priority, new.ready_seq);
    return null;
end $$;

-- Triggers, so that every statement that makes a job ready wakes its lane: it gives the job a new number. A claim
-- writes none of these columns, so it does not even test the condition.
create trigger wake_lane_of_new after insert on sereno.jobs
    for each row when (new.lane is not null and new.state = 'ready') execute function sereno.wake_lane();

create trigger wake_lane_of_ready after update of ready_seq, queue, priority, lane on sereno.jobs
    for each row when (new.lane is not null and new.state = 'ready') execute function sereno.wake_lane();

-- Wake the head of an order after a job of it, or a dead letter that blocked it, is deleted: the next job may be the
-- head now.
create function sereno.wake_order() returns trigger
    language plpgsql as $$
begin
    insert into sereno.lane_wakes (lane, queue, priority, ready_seq)
    select lane, queue, priority, ready_seq
    from (select * from sereno.jobs where order_id = sereno.order_of(old.queue, old.keys) order by id limit 1) as head
    where state = 'ready';
    return null;
end $$;

create trigger wake_order_of_gone after delete on sereno.jobs
    for each row when (old.order_id is not null) execute function sereno.wake_order();

create trigger wake_order_of_freed after delete on sereno.history_dead
    for each row when (old.keys ? 'blocks') execute function sereno.wake_order();

-- Check again the lanes that wait for these limits, whose numbers have changed. SKIP LOCKED and 20 tries of 10 ms: a
-- limiter that a claim has locked is not waited for, because that claim may be run by the same program, which could
-- then not continue.
create function sereno.recheck(names text[]) returns void
    language plpgsql as $$
declare
    left_over integer;
begin
    for attempt in 1..20 loop
        with waited as materialized (
            select id from sereno.limiters
            where limit_name = any(names) and check_at is not null and (attempt = 1 or check_at > sereno.now())
        ),
        locked as materialized (
            select id from sereno.limiters where id = any(array(select id from waited)) order by id for update skip locked
        ),
        checked as (
            update sereno.limiters set check_at = sereno.now() where id = any(array(select id from locked)) returning id
        )
        select (select count(*) from waited) - (select count(*) from checked) into left_over;
        exit when left_over = 0;
        perform pg_sleep(0.01);
    end loop;
end $$;

-- Rules of the code from which the keys of a task's jobs, or of all jobs of a queue, are made. Used where jobs are
-- enqueued without the code: by SQL and by schedules.
create table sereno.key_rules (
    kind         text not null check (kind in ('task', 'queue')),
    name         text not null,
    rule         jsonb not null,
    declared_by  text not null,
    primary key (kind, name)
);

-- Return a template with {tenant}, {task}, {queue} and arguments by name filled in. Values are not expanded again.
create function sereno.fill_in(template text, task text, queue text, tenant text, args jsonb) returns text
    language sql immutable as $$
    select coalesce(string_agg(
        case part[1]
            when '{tenant}' then coalesce(tenant, '') when '{task}' then task when '{queue}' then queue
            else case when part[1] ~ '^\{[^{}]+\}$' then coalesce(args ->> substr(part[1], 2, length(part[1]) - 2), '')
                      else part[1] end
        end, '' order by number), '')
    from regexp_matches(template, '\{[^{}]+\}|[^{]+|\{', 'g') with ordinality as found(part, number)
    $$;

-- Return the filled template, shortened by a hash if it is too long for an index; the Python client refuses such
-- keys.
create function sereno.fill(template text, task text, queue text, tenant text, args jsonb) returns text
    language sql immutable as $$
    select case when octet_length(filled) > 600 or length(filled) > 500 then left(filled, 100) || md5(filled) else filled end
    from sereno.fill_in(template, task, queue, tenant, args) as filled
    $$;

-- Return the limit, order and fair keys of a job by the rules of its queue and task; a task's rule overrides its
-- queue's.
create function sereno.keys_for(task text, queue text, tenant text, args jsonb) returns jsonb
    language plpgsql as $$
declare
    wanted  record;
    found   jsonb := '{}';
    limits  jsonb;
begin
    for wanted in
        select rule from sereno.key_rules
        where (kind = 'queue' and name = keys_for.queue) or (kind = 'task' and name = keys_for.task) order by kind
    loop
        args := coalesce(wanted.rule -> 'defaults', '{}') || coalesce(keys_for.args, '{}');
        if wanted.rule ? 'fair' then
            found := found || jsonb_build_object('fair', sereno.fill(wanted.rule ->> 'fair', task, queue, tenant, args));
        end if;
        if wanted.rule ? 'order' then
            found := found || jsonb_build_object('order', sereno.fill(wanted.rule ->> 'order', task, queue, tenant, args));
        end if;
        if wanted.rule ? 'blocks' then
            found := found || jsonb_build_object('blocks', true);
        end if;
        select jsonb_agg(jsonb_build_array(
                   item ->> 0, sereno.fill(item ->> 1, task, queue, tenant, args),
                   case when sereno.fill(item ->> 2, task, queue, tenant, args) ~ '^[0-9]{1,7}$'
                        then greatest(1, least(1000000, sereno.fill(item ->> 2, task, queue, tenant, args)::integer))
                        else 1 end))
        into limits
        from jsonb_array_elements(wanted.rule -> 'limits') as item;
        if limits is not null then
            found := found || jsonb_build_object('limits', limits || coalesce((
                select jsonb_agg(item) from jsonb_array_elements(found -> 'limits') as item
                where item ->> 0 not in (select given ->> 0 from jsonb_array_elements(limits) as given)), '[]'));
        end if;
    end loop;
    if found = '{}' then
        return null;
    end if;
    if found ? 'limits' then
        found := found || jsonb_build_object('limits', (
            select jsonb_agg(item order by (item ->> 0) collate "C") from jsonb_array_elements(found -> 'limits') as item));
    end if;
    return found;
end $$;

-- Apply wake-ups to their lanes; a new lane is made from one of its jobs. A lane that a claim has locked is skipped,
-- with its wake-ups, until the next call. An advisory lock lets one transaction at a time do this, and the others
-- continue without it. Return the number of wake-ups, the lowest id, and the number left over. Locked shares are
-- skipped too, so that this never waits for a claim.
create function sereno.open_lanes(from_id bigint) returns json
    language plpgsql as $$
declare
    result json;
begin
    if not pg_try_advisory_xact_lock(hashtext('sereno: lanes are opened'), 'sereno.lane_wakes'::regclass::oid::integer) then
        return json_build_array(0, null, 1);
    end if;
    with woken as materialized (
        select id, lane, queue, priority, ready_seq from sereno.lane_wakes
        where id >= from_id order by id limit 5000
    ),
    wanted as materialized (
        select lane, min(queue) as queue, min(priority) as priority, min(ready_seq) as ready_seq,
               row_number() over () as place
        from woken group by lane
    ),
    known as materialized (select id from sereno.lanes where id = any(array(select lane from wanted))),
    -- The current rows: the update below sees its rows as they were when the statement began, and a claim may have taken
    -- the last job of a lane since then.
    locked as materialized (
        select id, has_work, waits_for, order_id, band, floor_priority, floor_seq from sereno.lanes
        where id = any(array(select id from known)) order by id for update skip locked
    ),
    -- A fair key that joins late starts at the turn of the lane that is next.
    pace as materialized (
        select queue, coalesce(
            (select turn from sereno.lanes
             where has_work and waits_for is null and lanes.queue = served.queue and band = 10 order by turn limit 1),
            (select clock from sereno.shares where shares.queue = served.queue order by clock desc limit 1), 0) as turn
        from (select distinct queue from wanted) as served
    ),
    moved as (
        update sereno.lanes
        set has_work = true,
            waits_for = case when lanes.has_work and lanes.order_id is null then lanes.waits_for end,
            band = case when lanes.fair is not null then lanes.band
                        when lanes.has_work then least(lanes.band, wanted.priority) else wanted.priority end,
            turn = case when lanes.has_work then lanes.turn
                        when lanes.fair is not null then greatest(lanes.turn, pace.turn)
                        else sereno.micros(sereno.now()) + wanted.place end,
            floor_priority = least(lanes.floor_priority, wanted.priority),
            floor_seq = case when lanes.floor_priority < wanted.priority then lanes.floor_seq
                             when lanes.floor_priority = wanted.priority then least(lanes.floor_seq, wanted.ready_seq)
                             else wanted.ready_seq end
        from wanted join pace on pace.queue = wanted.queue join locked on locked.id = wanted.lane
        where lanes.id = any(array(select id from locked)) and lanes.id = wanted.lane
          and (not locked.has_work or (locked.waits_for is not null and locked.order_id is not null)
               or wanted.priority < locked.band
               or (wanted.priority, wanted.ready_seq) < (locked.floor_priority, locked.floor_seq))
    ),
    fresh as materialized (
        select wanted.*, job.keys
        from wanted left join lateral (
            select keys from sereno.jobs
            where state = 'ready' and jobs.lane is not null and jobs.queue = wanted.queue and jobs.lane = wanted.lane
            limit 1) as job on true
        where wanted.lane not in (select id from known)
    ),
    limiter as materialized (
        select lane, array_agg(limiter) as limiters, array_agg(units) as units
        from (select lane, sereno.limiter_of(item ->> 0, item ->> 1) as limiter, (item ->> 2)::integer as units
              from fresh, jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item
              union all
              select lane, sereno.order_of(queue, keys), 1 from fresh where keys ? 'order') as each
        group by lane
    ),
    limits_made as (
        insert into sereno.limits (name, kind, slots, units, period, burst)
        select distinct on (item ->> 0) item ->> 0, case when item -> 3 ? 'slots' then 'slots' else 'rate' end,
               (item -> 3 ->> 'slots')::integer, (item -> 3 ->> 'units')::double precision,
               (item -> 3 ->> 'period')::double precision, (item -> 3 ->> 'burst')::double precision
        from fresh, jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item
        where item -> 3 is not null and item ->> 0 not in (select name from sereno.limits)
        order by item ->> 0
        on conflict do nothing
    ),
    -- Existing limiters are excluded first: an insert would wait for a claim that is changing the row.
    limiters_made as (
        insert into sereno.limiters (id, limit_name, key)
        select distinct on (limiter) * from (
            select sereno.limiter_of(item ->> 0, item ->> 1) as limiter, item ->> 0, item ->> 1
            from fresh, jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item
            union all
            select sereno.order_of(queue, keys), null, keys ->> 'order' from fresh where keys ? 'order') as each
        where limiter not in (select id from sereno.limiters where id = any(array(select unnest(limiters) from limiter)))
        order by limiter
        on conflict do nothing
    ),
    queues_made as (
        insert into sereno.lane_queues (queue)
        select distinct queue from fresh
        where keys is not null and queue not in (select queue from sereno.lane_queues)
        order by queue
        on conflict do nothing
    ),
    paced as materialized (
        select fresh.*, keys ->> 'fair' as fair, coalesce(weight, 1) as weight,
               greatest(coalesce(clock, pace.turn), pace.turn) as base, clock is not null as is_known,
               row_number() over (partition by fresh.queue, keys ->> 'fair' order by ready_seq) as number
        from fresh join pace on pace.queue = fresh.queue
        left join sereno.weights on weights.key = keys ->> 'fair'
        left join sereno.shares on shares.queue = fresh.queue and shares.key = keys ->> 'fair'
        where keys is not null
    ),
    charge as materialized (
        select queue, fair, max(base + number / weight) as clock, bool_or(is_known) as is_known
        from paced where fair is not null group by queue, fair
    ),
    shares_made as (
        insert into sereno.shares (queue, key, clock)
        select queue, fair, clock from charge where not is_known order by queue, fair
        on conflict do nothing
    ),
    shares_moved as (
        update sereno.shares set clock = greatest(shares.clock, due.clock)
        from (select charge.*, share.place from charge cross join lateral (
                  select ctid as place from sereno.shares
                  where is_known and shares.queue = charge.queue and shares.key = charge.fair
                  for update skip locked) as share) as due
        where shares.ctid = due.place and shares.queue = due.queue and shares.key = due.fair
    ),
    made as (
        insert into sereno.lanes (id, queue, keys, limiters, units, order_id, fair, band, turn)
        select paced.lane, queue, keys, coalesce(limiters, '{}'), coalesce(units, '{}'), sereno.order_of(queue, keys), fair,
               case when fair is null then priority else 10 end,
               case when fair is null then sereno.micros(sereno.now()) + place else base + (number - 1) / weight end
        from paced left join limiter on limiter.lane = paced.lane
        order by paced.lane
        on conflict do nothing
        returning id
    ),
    read as (
        delete from sereno.lane_wakes
        where id = any(array(select id from woken
                             where lane in (select id from locked union all select id from made
                                            union all select lane from fresh where keys is null)))
        returning id
    )
    select json_build_array((select count(*) from woken), (select min(id) from woken),
                            (select count(*) from woken) - (select count(*) from read))
    into result;
    return result;
end $$;

-- Create missing limiters of lanes and queues: deleted while unused, or of a new limit of a queue. Call it in its own
-- transaction: a claim that created them and then stalled would block all others.
create function sereno.make_limiters(lane_ids bigint[], queues text[]) returns void
    language sql as $$
    insert into sereno.limiters (id, limit_name, key)
    select distinct on (1) * from (
        select sereno.limiter_of(item ->> 0, item ->> 1), item ->> 0, item ->> 1
        from sereno.lanes, jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item where id = any(lane_ids)
        union all
        select order_id, null, keys ->> 'order' from sereno.lanes where id = any(lane_ids) and order_id is not null
        union all
        select sereno.limiter_of(name, ''), name, '' from sereno.limits where queue = any(queues)) as limiter(id)
    where (select true from sereno.limiters where limiters.id = limiter.id) is null
    order by 1
    on conflict do nothing
    $$;

-- Return the due limiters for these queues: those that a lane of the queues waits for, or that no lane waits for.
create function sereno.due_limiters(queues text[], moment timestamptz) returns setof bigint
    language sql stable as $$
    select due.id
    from (select id, limit_name from sereno.limiters where check_at <= moment order by check_at limit 5000) as due
    left join sereno.limits on limits.name = due.limit_name
    where (limits.queue is null or limits.queue = any(queues))
      and ((select true from sereno.lanes where has_work and waits_for = due.id and lanes.queue = any(queues) limit 1)
           or (select true from sereno.lanes where has_work and waits_for = due.id limit 1) is null)
    limit 100
    $$;

-- Return the seconds until a limiter is due that lanes of these queues wait for, or that no lane waits for; null if
-- there is none. Others are due in the workers of their queues. If all that are read belong to others, return when the
-- last of them is due.
create function sereno.next_check(queues text[], moment timestamptz) returns double precision
    language sql stable as $$
    select extract(epoch from coalesce(min(check_at) filter (where is_own), case when count(*) = 20 then max(check_at) end)
                              - moment)::double precision
    from (select check_at,
                 (select true from sereno.lanes where has_work and waits_for = due.id and lanes.queue = any(queues) limit 1)
                 or (select true from sereno.lanes where has_work and waits_for = due.id limit 1) is null as is_own
          from (select id, check_at from sereno.limiters where check_at > moment order by check_at limit 20) as due) as next
    $$;

-- Return the number of slots that the running jobs of a list hold.
create function sereno.slots_taken(held bigint[]) returns bigint
    language sql stable as $$
    select coalesce(sum(taken), 0)::bigint
    from (select least(-min(number) filter (where number < 0), count(jobs.id)) as taken
          from (select number, count(*) filter (where number < 0) over (order by place) as slot_group
                from unnest(held) with ordinality as list(number, place)) as each
          left join sereno.jobs on jobs.id = number and state = 'running'
          group by slot_group) as slot_group
    $$;

-- First half of a claim: return lanes with work in turn order, and those behind limiters that came free, with their
-- limiters. Limiters and fair lanes are locked with SKIP LOCKED, so that a claim never waits; other lanes are only
-- read, starting where the same worker's last claim ended, and wrapping around. Each step is a separate statement, so
-- that it sees what was committed before the locks of the previous step: which lanes wait for a limiter is read while
-- the limiter is locked. Which of the admitted jobs still run is queried later, where it matters. A limiter that came
-- free and that no lane waits for is skipped; a claim that makes a lane wait for it checks it once more afterwards.
create function sereno.take_lanes(requests jsonb, freed jsonb) returns json
    language plpgsql as $$
declare
    moment       timestamptz := sereno.now();
    locked_at    timestamptz;
    open_to      text[];
    own          json;
    free         bigint[];
    free_counts  integer[];
    free_list    json;
    missed       json;
    elsewhere    json;
    lane_ids     bigint[];
    lane_list    json;
    limiter_ids  bigint[];
    limiter_list json;
    locked_ids   bigint[];
begin
    select array_agg(wanted.queue) into open_to
    from jsonb_to_recordset(requests) as wanted(queue text)
    where wanted.queue <> all(array(select name from sereno.pauses where kind = 'queue'));
    select json_object_agg(queue, json_build_array(to_json(limiters), has_plain)) into own
    from (select limits.queue, array_agg(sereno.limiter_of(name, '')) as limiters,
                 (select true
                  from jsonb_to_recordset(requests) as wanted(queue text, floors jsonb)
                  cross join lateral jsonb_to_recordset(wanted.floors) as step(priority smallint, floor bigint)
                  cross join lateral (select from sereno.jobs
                                      where state = 'ready' and lane is null and jobs.queue = wanted.queue
                                        and jobs.priority = step.priority and jobs.ready_seq >= step.floor limit 1) as job
                  where wanted.queue = limits.queue limit 1) is not null as has_plain
          from sereno.limits where limits.queue = any(open_to) group by limits.queue) as each;

    with due as materialized (select id from sereno.due_limiters(open_to, moment) as id),
    reported as materialized (
        select * from jsonb_to_recordset(freed) as f(limiter bigint, most integer)
        where (select true from sereno.lanes where has_work and waits_for = limiter limit 1)
    ),
    locked as materialized (
        select id, limit_name from sereno.limiters
        where id = any(array(select id from due union select limiter from reported)) order by id for update skip locked
    )
    select array_agg(locked.id),
           array_agg(greatest(reported.most, case when due.id is null then 0 when kind = 'rate' then 100 else 10 end)),
           json_agg(json_build_array(locked.id, due.id is not null)),
           (select json_agg(limiter) from reported where limiter not in (select id from locked)),
           (select json_agg(limiter) from reported
            where (select true from sereno.lanes
                   where has_work and waits_for = limiter and lanes.queue <> all(open_to) limit 1))
    into free, free_counts, free_list, missed, elsewhere
    from locked left join reported on reported.limiter = locked.id left join due on due.id = locked.id
    left join sereno.limits on limits.name = limit_name;

    with unfair as materialized (
        select lane.*
        from jsonb_to_recordset(requests) as wanted(queue text, lanes integer, bands jsonb)
        cross join lateral (
            select candidate.*
            from jsonb_to_recordset(wanted.bands) as step(band smallint, after double precision)
            cross join lateral (
                (select id, queue, limiters, units, order_id, fair, turn, band, floor_priority, floor_seq,
                        null::bigint as behind
                 from sereno.lanes
                 where has_work and waits_for is null and lanes.queue = wanted.queue and lanes.band = step.band
                   and lanes.turn > step.after
                 order by lanes.turn limit wanted.lanes)
                union all
                (select id, queue, limiters, units, order_id, fair, turn, band, floor_priority, floor_seq,
                        null::bigint as behind
                 from sereno.lanes
                 where has_work and waits_for is null and lanes.queue = wanted.queue and lanes.band = step.band
                   and lanes.turn <= step.after
                 order by lanes.turn limit wanted.lanes)
            ) as candidate
            limit wanted.lanes
        ) as lane
        where wanted.queue = any(open_to)
    ),
    fair as materialized (
        select lane.*
        from jsonb_to_recordset(requests) as wanted(queue text, slots integer)
        cross join lateral (
            select id, queue, limiters, units, order_id, fair, turn, band, floor_priority, floor_seq,
                   null::bigint as behind
            from sereno.lanes
            where has_work and waits_for is null and lanes.queue = wanted.queue and lanes.band = 10
            order by lanes.turn limit wanted.slots for update skip locked
        ) as lane
        where wanted.queue = any(open_to)
    ),
    waiting as materialized (
        select lane.*
        from unnest(free, free_counts) as limiter(id, most) cross join lateral (
            select id, queue, limiters, units, order_id, fair, turn, band, floor_priority, floor_seq, limiter.id as behind
            from sereno.lanes
            where has_work and waits_for = limiter.id and queue = any(open_to)
            order by turn limit limiter.most
        ) as lane
    ),
    every as materialized (select * from unfair union all select * from fair union all select * from waiting)
    select array_agg(id),
           json_agg(json_build_array(id, queue, to_json(limiters), to_json(units), order_id, turn, floor_priority, floor_seq,
               behind, band,
               case when order_id is not null then (
                   select lane = every.id and state = 'ready'
                          and (select true from sereno.history_dead dead
                               where dead.keys ? 'blocks' and dead.queue = every.queue
                                 and dead.keys ->> 'order' = head.keys ->> 'order' limit 1) is null
                   from (select lane, state, keys from sereno.jobs
                         where jobs.order_id = every.order_id order by jobs.id limit 1) as head) end,
               fair,
               case when fair is not null then (select weight from sereno.weights where key = fair) end,
               case when fair is not null then (select clock from sereno.shares
                                                where shares.queue = every.queue and shares.key = fair) end)),
           array(select distinct unnest(limiters) from every)
    into lane_ids, lane_list, limiter_ids from every;

    limiter_ids := array(select unnest(limiter_ids)
                      union select sereno.limiter_of(name, '') from sereno.limits where queue = any(open_to)
                      except select unnest(free));
    with locked as materialized (
        select id from sereno.limiters where id = any(limiter_ids) order by id for update skip locked
    )
    select array_agg(id) into locked_ids from locked;
    -- Tokens are computed for an instant after the locks, at which no other claim can take any: later than all claims
    -- before.
    locked_at := sereno.clock_now();

    select json_agg(json_build_array(
               limiters.id, case when limit_name is null then 'order' else coalesce(kind, 'unknown') end,
               case when limit_name is null then 1 else slots end, units / period, burst,
               case when kind = 'rate' then
                   least(burst, coalesce(tokens, burst)
                         + greatest(0, extract(epoch from locked_at - used_at)) * units / period) end,
               greatest(extract(epoch from closed_until - locked_at),
                        case when kind = 'rate' then extract(epoch from check_at - locked_at) end, 0),
               to_json(held), checks, limiters.xmin::text::bigint))
    into limiter_list
    from sereno.limiters left join sereno.limits on limits.name = limit_name
    where limiters.id = any(free || locked_ids);

    return json_build_array(locked_at, sereno.micros(locked_at), coalesce(lane_list, '[]'), coalesce(limiter_list, '[]'),
        coalesce(free_list, '[]'), coalesce(own, '{}'), coalesce(missed, '[]'), coalesce(elsewhere, '[]'),
        coalesce(cardinality(locked_ids), 0) < cardinality(limiter_ids)
            and exists (select unnest(limiter_ids) except select id from sereno.limiters where id = any(limiter_ids)),
        sereno.next_check(open_to, moment));
end $$;

-- Second half of a claim, after the jobs were picked. Write the admitted jobs to the limiters. Lanes without further
-- jobs lose has_work; lanes that must wait, need not wait any longer, or had their fair turn are updated; all others
-- are unchanged and not written. Whether a lane has more jobs is queried while the lane is locked: a job that arrived
-- meanwhile left a wake-up, which is read under the same lock. The query starts at the lane's floor, where the next
-- job is; jobs that were passed over may be below it. A wake-up that has lowered the floor since the claim read it
-- takes precedence. SKIP LOCKED: a claim never waits. A lane that another transaction has locked stays open, and the
-- next claim checks it again; a share that is locked is not charged.
create function sereno.write_lanes(
    moment timestamptz,
    served bigint[], served_queues integer[], served_priorities smallint[], served_seqs bigint[], queues text[],
    changed bigint[], waits bigint[], bands smallint[], turns double precision[], priorities smallint[], seqs bigint[],
    seen_priorities smallint[], seen_seqs bigint[],
    limiter_ids bigint[], held text[], tokens double precision[], check_in double precision[], exact boolean[], checks integer[],
    share_queues text[], share_keys text[], clocks double precision[]
) returns text
    language plpgsql as $$
declare
    ended   bigint[];
    locked  bigint[];
begin
    update sereno.limiters
    set held = limiter.held::bigint[], tokens = limiter.tokens, used_at = greatest(limiters.used_at, moment), checks = limiter.checks,
        check_at = case
            when limiter.next_check is not null then
                case when not limiter.exact and limiters.check_at > sereno.now() + interval '2 seconds' then limiters.check_at
                     else sereno.now() + make_interval(secs => limiter.next_check) end
            when limiters.check_at is null then null
            when (select true from sereno.lanes where has_work and waits_for = limiters.id limit 1)
                then greatest(limiters.check_at, sereno.now())
            end
    from unnest(limiter_ids, write_lanes.held, write_lanes.tokens, check_in, exact, write_lanes.checks)
        as limiter(id, held, tokens, next_check, exact, checks)
    where limiters.id = any(limiter_ids) and limiters.id = limiter.id;

    ended := array(
        select lane
        from unnest(served, served_queues, served_priorities, served_seqs) as given(lane, place, priority, seq)
        where (select true from sereno.jobs
               where state = 'ready' and jobs.lane is not null and jobs.queue = queues[given.place]
                 and jobs.lane = given.lane and (jobs.priority, jobs.ready_seq) >= (given.priority, given.seq)
               limit 1) is null);

    if cardinality(ended) > 0 or cardinality(changed) > 0 then
        locked := array(
            select id from sereno.lanes where id = any(ended || changed) order by id for update skip locked);
        update sereno.lanes
        set has_work = (select true from sereno.jobs
                        where state = 'ready' and jobs.lane is not null and jobs.queue = lanes.queue
                          and jobs.lane = lanes.id and (jobs.priority, jobs.ready_seq) >= (next.priority, next.seq)
                        limit 1) is not null
                    or (select true from sereno.jobs
                        where state = 'ready' and jobs.lane is not null and jobs.queue = lanes.queue
                          and jobs.lane = lanes.id
                        limit 1) is not null,
            waits_for = case when next.is_moved then next.waits else lanes.waits_for end,
            band = coalesce(next.band, lanes.band), turn = coalesce(next.turn, lanes.turn),
            floor_priority = next.priority, floor_seq = next.seq, served_at = sereno.now(),
            passed_over = lanes.passed_over and (next.priority, next.seq) > (0, 0)
        from (
            select own.id, move.id is not null as is_moved, move.waits, move.band, move.turn,
                   case when keeps then own.floor_priority else move.priority end as priority,
                   case when keeps then own.floor_seq else move.seq end as seq
            from sereno.lanes as own
            left join unnest(changed, waits, bands, turns, priorities, seqs, seen_priorities, seen_seqs)
                as move(id, waits, band, turn, priority, seq, seen_priority, seen_seq) on move.id = own.id
            cross join lateral (select move.id is null or (own.floor_priority, own.floor_seq) < (move.seen_priority, move.seen_seq)) as f(keeps)
            where own.id = any(locked)
        ) as next
        where lanes.id = any(locked) and lanes.id = next.id;
    end if;

    if cardinality(share_keys) > 0 then
        update sereno.shares set clock = greatest(shares.clock, charge.clock)
        from (select each.clock, each.queue, each.key, share.place
              from unnest(share_queues, share_keys, clocks) as each(queue, key, clock)
              cross join lateral (
                  select ctid as place from sereno.shares
                  where shares.queue = each.queue and shares.key = each.key for update skip locked) as share) as charge
        where shares.ctid = charge.place and shares.queue = charge.queue and shares.key = charge.key;
    end if;
    -- The transaction id, by which the worker recognises limiters that no other transaction has written since.
    return pg_current_xact_id()::xid::text;
end $$;

-- Mark lanes whose floor was moved past jobs that must be read again later. SKIP LOCKED: a claim never waits.
create function sereno.mark_passed_over(ids bigint[]) returns void
    language sql as $$
    update sereno.lanes set passed_over = true
    where id = any(array(select id from sereno.lanes where id = any(ids) and not passed_over order by id for update skip locked))
    $$;

-- Wake the lanes whose floor passed over jobs, from their first job; return their number.
create function sereno.reread_lanes() returns bigint
    language sql as $$
    with woken as (
        insert into sereno.lane_wakes (lane, queue, priority, ready_seq)
        select lanes.id, lanes.queue, first.priority, first.ready_seq
        from sereno.lanes cross join lateral (
            select priority, ready_seq from sereno.jobs
            where state = 'ready' and jobs.lane is not null and jobs.queue = lanes.queue and jobs.lane = lanes.id
            order by priority, ready_seq limit 1) as first
        where lanes.passed_over and lanes.has_work
          and (first.priority, first.ready_seq) < (lanes.floor_priority, lanes.floor_seq)
        returning lane)
    select count(*) from woken
    $$;

-- Security definer: a role that may end a pause need not be able to write to lanes.
create function sereno.reread_lanes_of_resumed() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform sereno.reread_lanes();
    return null;
end $$;

-- After every statement that ends a pause.
create trigger reread_lanes after delete on sereno.pauses
    for each statement execute function sereno.reread_lanes_of_resumed();
