-- Limits: how many at once, how many a second, in which order, and whose turn it is.
--
-- A job without a limit is as it was. A job with one carries its keys, and belongs to a lane: all jobs of a queue with
-- the same keys. A lane passes through gates, one for each limit and key; a gate knows its tokens and whom it let in.
-- A claim takes lanes in turn, never their jobs one by one, so what is exhausted costs nothing.

alter table sereno.jobs
    add column lane bigint,
    add column order_id bigint,
    add column keys jsonb,
    add constraint jobs_lane_keys check ((lane is null) = (keys is null));
alter table sereno.history add column keys jsonb;

drop index sereno.jobs_ready;
create index jobs_ready on sereno.jobs (queue, priority, ready_seq) where state = 'ready' and lane is null;
create index jobs_lane on sereno.jobs (queue, lane, priority, ready_seq) where state = 'ready' and lane is not null;
-- The first of a key is its head, whatever its state: while it waits for a retry, those behind it wait too.
create index jobs_in_order on sereno.jobs (order_id, id) where order_id is not null;
-- A dead letter that blocks its key.
create index history_dead_blocks on sereno.history_dead (queue, (keys ->> 'order')) where keys ? 'blocks';

-- Queues with ready jobs, from queue to queue along both indexes.
create function sereno.ready_queues() returns setof text
    language sql stable as $$
    with recursive plain(queue) as (
        (select queue from sereno.jobs where state = 'ready' and lane is null order by queue limit 1)
        union all
        select (select jobs.queue from sereno.jobs where state = 'ready' and lane is null and jobs.queue > plain.queue
                order by jobs.queue limit 1)
        from plain where plain.queue is not null
    ),
    limited(queue) as (
        (select queue from sereno.jobs where state = 'ready' and lane is not null order by queue limit 1)
        union all
        select (select jobs.queue from sereno.jobs where state = 'ready' and lane is not null and jobs.queue > limited.queue
                order by jobs.queue limit 1)
        from limited where limited.queue is not null
    )
    select queue from plain where queue is not null union select queue from limited where queue is not null
    $$;

-- A number to find a lane, a gate or an order by. Two that meet in one of 2^64 would share a limit, never exceed one.
create function sereno.lane_of(queue text, keys jsonb) returns bigint
    language sql immutable parallel safe as $$ select hashtextextended(jsonb_build_array(queue, keys)::text, 1) $$;
create function sereno.gate_of(limit_name text, key text) returns bigint
    language sql immutable parallel safe as $$ select hashtextextended(jsonb_build_array(limit_name, key)::text, 2) $$;
create function sereno.order_of(queue text, keys jsonb) returns bigint
    language sql immutable parallel safe as $$
        select case when keys ? 'order' then hashtextextended(jsonb_build_array(queue, keys ->> 'order')::text, 3) end
    $$;

-- The numbers, which people may change while everything runs. What the code declares is kept beside what holds.
create table sereno.limits (
    name         text primary key,
    kind         text not null check (kind in ('slots', 'rate')),
    slots        integer check (slots >= 0),
    units        double precision check (units > 0 and units < 'infinity'),
    period       double precision check (period > 0 and period < 'infinity'),
    burst        double precision check (burst >= 1 and burst < 'infinity'),
    -- Of a whole queue: holds for all its jobs, also for those that carry no key.
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

-- One limit for one key. `held`: the jobs that it let in; those of them that still run hold its slots, so a slot that
-- nobody gave back is free as soon as its job is no longer running. An order is a gate of one slot without a limit.
create table sereno.gates (
    id            bigint primary key,
    limit_name    text,
    key           text not null,
    tokens        double precision,
    used_at       timestamptz not null default sereno.now(),
    closed_until  timestamptz,
    held          bigint[] not null default '{}',
    -- When to look at those who wait for it: the next token comes, or nobody told that a slot came back.
    look_at       timestamptz,
    looks         integer not null default 0
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index gates_look on sereno.gates (look_at) where look_at is not null;
create index gates_limit on sereno.gates (limit_name, key);

create table sereno.lanes (
    id              bigint primary key,
    queue           text not null,
    keys            jsonb not null,
    gates           bigint[] not null,
    units           integer[] not null,
    order_id        bigint,
    fair            text,
    -- Bands of priority, as the first job of the lane has it; lanes that take turns by a fair key have a band of their own.
    band            smallint not null,
    turn            double precision not null,
    has_work        boolean not null default true,
    waits_for       bigint,
    floor_priority  smallint not null default 0,
    floor_seq       bigint not null default 0,
    served_at       timestamptz not null default sereno.now()
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index lanes_open on sereno.lanes (queue, band, turn) where has_work and waits_for is null;
create index lanes_waiting on sereno.lanes (waits_for, turn) where has_work and waits_for is not null;
create index lanes_idle on sereno.lanes (served_at) where not has_work;

-- Queues that have lanes: a claim of plain jobs asks whether there is more than that.
create table sereno.lane_queues (queue text primary key);

-- How much of its turn a fair key has had, and how much weight it has.
create table sereno.shares (
    queue  text not null,
    key    text not null,
    clock  double precision not null,
    primary key (queue, key)
) with (fillfactor = 50);

create index shares_clock on sereno.shares (queue, clock);

create table sereno.weights (
    key         text primary key,
    weight      double precision not null check (weight > 0 and weight <= 1000000),
    changed_by  text,
    changed_at  timestamptz not null default sereno.now()
);

-- A job with a limit became ready. Appended, never locked: a caller's long transaction holds up nobody's lane.
create table sereno.lane_wakes (
    id         bigint generated always as identity primary key,
    lane       bigint not null,
    queue      text not null,
    priority   smallint not null,
    ready_seq  bigint not null
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create function sereno.wake_lane() returns trigger
    language plpgsql as $$
begin
    insert into sereno.lane_wakes (lane, queue, priority, ready_seq)
    values (new.lane, new.queue, new.priority, new.ready_seq);
    return null;
end $$;

-- Whoever makes a job ready, by whatever statement: its lane is woken.
create trigger wake_lane_of_new after insert on sereno.jobs
    for each row when (new.lane is not null and new.state = 'ready') execute function sereno.wake_lane();
create trigger wake_lane_of_ready after update on sereno.jobs
    for each row when (new.lane is not null and new.state = 'ready') execute function sereno.wake_lane();

-- A job of an order is gone, or a dead letter that blocked its key: the next one may be the head now.
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

-- What wake-ups say is written on their lanes; a lane that is new is made from one of its jobs. A lane that a claim holds
-- is left for the next time, with its wake-ups. One at a time does this, the others go on. Answers how many wake-ups there
-- were, and the lowest number.
create function sereno.open_lanes(look_from bigint) returns json
    language plpgsql as $$
declare
    answer json;
begin
    if not pg_try_advisory_xact_lock('sereno.lane_wakes'::regclass::oid::bigint) then
        return json_build_array(0, null, 0);
    end if;
    with woken as materialized (
        select id, lane, queue, priority, ready_seq from sereno.lane_wakes
        where id >= look_from order by id limit 5000
    ),
    wanted as materialized (
        select lane, min(queue) as queue, min(priority) as priority, min(ready_seq) as ready_seq,
               row_number() over () as place
        from woken group by lane
    ),
    known as materialized (select id from sereno.lanes where id = any(array(select lane from wanted))),
    locked as materialized (
        select id from sereno.lanes where id = any(array(select id from known)) order by id for update skip locked
    ),
    -- Where a fair key starts that comes late: at the turn of whoever is next.
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
            waits_for = case when has_work and order_id is null then waits_for end,
            band = case when fair is not null then band when has_work then least(band, wanted.priority)
                        else wanted.priority end,
            turn = case when has_work then lanes.turn when fair is not null then greatest(lanes.turn, pace.turn)
                        else sereno.micros(sereno.now()) + wanted.place end,
            floor_priority = least(floor_priority, wanted.priority),
            floor_seq = case when floor_priority < wanted.priority then floor_seq
                             when floor_priority = wanted.priority then least(floor_seq, wanted.ready_seq)
                             else wanted.ready_seq end
        from wanted join pace on pace.queue = wanted.queue
        where lanes.id = any(array(select id from locked)) and lanes.id = wanted.lane
          and (not has_work or (waits_for is not null and order_id is not null) or wanted.priority < band
               or (wanted.priority, wanted.ready_seq) < (floor_priority, floor_seq))
    ),
    fresh as materialized (
        select wanted.*, job.keys
        from wanted left join lateral (
            select keys from sereno.jobs
            where state = 'ready' and jobs.lane is not null and jobs.queue = wanted.queue and jobs.lane = wanted.lane
            limit 1) as job on true
        where wanted.lane not in (select id from known)
    ),
    gate as materialized (
        select lane, array_agg(gate) as gates, array_agg(units) as units
        from (select lane, sereno.gate_of(item ->> 0, item ->> 1) as gate, (item ->> 2)::integer as units
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
        where item -> 3 is not null
        order by item ->> 0
        on conflict do nothing
    ),
    queues_made as (
        insert into sereno.lane_queues (queue) select distinct queue from fresh where keys is not null order by queue
        on conflict do nothing
    ),
    paced as materialized (
        select fresh.*, keys ->> 'fair' as fair, coalesce(weight, 1) as weight,
               greatest(coalesce(clock, pace.turn), pace.turn) as base,
               row_number() over (partition by fresh.queue, keys ->> 'fair' order by ready_seq) as number
        from fresh join pace on pace.queue = fresh.queue
        left join sereno.weights on weights.key = keys ->> 'fair'
        left join sereno.shares on shares.queue = fresh.queue and shares.key = keys ->> 'fair'
        where keys is not null
    ),
    shares_made as (
        insert into sereno.shares as share (queue, key, clock)
        select queue, fair, max(base + number / weight) from paced where fair is not null
        group by queue, fair order by queue, fair
        on conflict (queue, key) do update set clock = greatest(share.clock, excluded.clock)
    ),
    made as (
        insert into sereno.lanes (id, queue, keys, gates, units, order_id, fair, band, turn)
        select paced.lane, queue, keys, coalesce(gates, '{}'), coalesce(units, '{}'), sereno.order_of(queue, keys), fair,
               case when fair is null then priority else 10 end,
               case when fair is null then sereno.micros(sereno.now()) + place else base + (number - 1) / weight end
        from paced left join gate on gate.lane = paced.lane
        order by paced.lane
        on conflict do nothing
        returning id
    ),
    read as (
        delete from sereno.lane_wakes
        where id = any(array(select id from woken
                             where lane in (select id from locked union all select id from made
                                            union all select lane from fresh where keys is null)))
    )
    select json_build_array((select count(*) from woken), (select min(id) from woken),
                            (select count(*) from locked) + (select count(*) from made))
    into answer;
    return answer;
end $$;

-- Gates that a lane or a queue passes and that are not there: new, or swept away while nobody used them.
create function sereno.make_gates(lane_ids bigint[], queues text[]) returns void
    language sql as $$
    insert into sereno.gates (id, limit_name, key)
    select distinct on (1) * from (
        select sereno.gate_of(item ->> 0, item ->> 1), item ->> 0, item ->> 1
        from sereno.lanes, jsonb_array_elements(coalesce(keys -> 'limits', '[]')) as item where id = any(lane_ids)
        union all
        select order_id, null, keys ->> 'order' from sereno.lanes where id = any(lane_ids) and order_id is not null
        union all
        select sereno.gate_of(name, ''), name, '' from sereno.limits where queue = any(queues)) as gate
    order by 1
    on conflict do nothing
    $$;

-- The first half of a claim: lanes in turn that have work, and those behind gates that came free, with their gates and
-- with what runs behind each gate. Gates are locked or left alone; nobody waits here. So are lanes that take fair turns;
-- others are only read, from where the last claim of the same worker ended, and around. Each step is a statement of its
-- own, so that it sees what was committed before the locks of the step before it: who waits behind a gate is read with the
-- gate in hand, and what runs behind it as well. A gate that came free and that nobody waits for is left alone; a claim that
-- is about to let a lane wait for it looks at it once more afterwards.
create function sereno.take_lanes(asked jsonb, freed jsonb) returns json
    language plpgsql as $$
declare
    moment       timestamptz := sereno.now();
    open_to      text[];
    own          json;
    free         bigint[];
    free_counts  integer[];
    free_list    json;
    missed       json;
    lane_ids     bigint[];
    lane_list    json;
    gate_ids     bigint[];
    gate_list    json;
    locked_ids   bigint[];
    held_ids     bigint[];
    live         json;
begin
    select array_agg(wanted.queue) into open_to
    from jsonb_to_recordset(asked) as wanted(queue text)
    where wanted.queue <> all(array(select name from sereno.pauses where kind = 'queue'));
    select json_object_agg(queue, gates) into own
    from (select queue, array_agg(sereno.gate_of(name, '')) as gates
          from sereno.limits where queue = any(open_to) group by queue) as each;

    with due as materialized (select id from sereno.gates where look_at <= moment order by look_at limit 100),
    told as materialized (
        select * from jsonb_to_recordset(freed) as f(gate bigint, most integer)
        where (select true from sereno.lanes where has_work and waits_for = gate limit 1)
    ),
    locked as materialized (
        select id, limit_name from sereno.gates
        where id = any(array(select id from due union select gate from told)) order by id for update skip locked
    )
    select array_agg(locked.id),
           array_agg(greatest(told.most, case when due.id is null then 0 when kind = 'rate' then 100 else 10 end)),
           json_agg(json_build_array(locked.id, due.id is not null)),
           (select json_agg(gate) from told where gate not in (select id from locked))
    into free, free_counts, free_list, missed
    from locked left join told on told.gate = locked.id left join due on due.id = locked.id
    left join sereno.limits on limits.name = limit_name;

    with unfair as materialized (
        select lane.*
        from jsonb_to_recordset(asked) as wanted(queue text, room integer, bands jsonb)
        cross join lateral (
            select candidate.*
            from jsonb_to_recordset(wanted.bands) as step(band smallint, after double precision)
            cross join lateral (
                (select id, queue, gates, units, order_id, fair, turn, band, floor_priority, floor_seq,
                        null::bigint as behind
                 from sereno.lanes
                 where has_work and waits_for is null and lanes.queue = wanted.queue and lanes.band = step.band
                   and lanes.turn > step.after
                 order by lanes.turn limit wanted.room)
                union all
                (select id, queue, gates, units, order_id, fair, turn, band, floor_priority, floor_seq,
                        null::bigint as behind
                 from sereno.lanes
                 where has_work and waits_for is null and lanes.queue = wanted.queue and lanes.band = step.band
                   and lanes.turn <= step.after
                 order by lanes.turn limit wanted.room)
            ) as candidate
            limit wanted.room
        ) as lane
        where wanted.queue = any(open_to)
    ),
    fair as materialized (
        select lane.*
        from jsonb_to_recordset(asked) as wanted(queue text, room integer)
        cross join lateral (
            select id, queue, gates, units, order_id, fair, turn, band, floor_priority, floor_seq,
                   null::bigint as behind
            from sereno.lanes
            where has_work and waits_for is null and lanes.queue = wanted.queue and lanes.band = 10
            order by lanes.turn limit wanted.room for update skip locked
        ) as lane
        where wanted.queue = any(open_to)
    ),
    waiting as materialized (
        select lane.*
        from unnest(free, free_counts) as gate(id, most) cross join lateral (
            select id, queue, gates, units, order_id, fair, turn, band, floor_priority, floor_seq, gate.id as behind
            from sereno.lanes
            where has_work and waits_for = gate.id and queue = any(open_to)
            order by turn limit gate.most
        ) as lane
    ),
    every as materialized (select * from unfair union all select * from fair union all select * from waiting)
    select array_agg(id),
           json_agg(json_build_array(id, queue, to_json(gates), to_json(units), order_id, turn, floor_priority, floor_seq,
               behind, band, fair,
               case when fair is not null then (select weight from sereno.weights where key = fair) end,
               case when fair is not null then (select clock from sereno.shares
                                                where shares.queue = every.queue and shares.key = fair) end)),
           array(select distinct unnest(gates) from every)
    into lane_ids, lane_list, gate_ids from every;

    gate_ids := array(select unnest(gate_ids)
                      union select sereno.gate_of(name, '') from sereno.limits where queue = any(open_to)
                      except select unnest(free));
    for attempt in 1..2 loop
        exit when cardinality(gate_ids) = 0;
        with locked as materialized (
            select id from sereno.gates where id = any(gate_ids) order by id for update skip locked
        )
        select array_agg(id) into locked_ids from locked;
        exit when attempt = 2 or coalesce(cardinality(locked_ids), 0) >= cardinality(gate_ids)
               or not exists (select unnest(gate_ids) except select id from sereno.gates where id = any(gate_ids));
        perform sereno.make_gates(lane_ids, open_to);
    end loop;

    -- A gate that is at most half full as far as anybody knows lets in without asking who of them still runs.
    with gate as materialized (
        select gates.id, limit_name, tokens, used_at, closed_until, held, look_at, looks, kind, burst, units, period,
               case when limit_name is null then 1 else slots end as slots
        from sereno.gates left join sereno.limits on limits.name = limit_name
        where gates.id = any(free || locked_ids)
    )
    select array(select unnest(held) from gate where 2 * cardinality(held) > slots),
           json_agg(json_build_array(
               id, case when limit_name is null then 'order' else coalesce(kind, 'unknown') end, slots,
               units / period, burst,
               case when kind = 'rate' then
                   least(burst, coalesce(tokens, burst)
                         + greatest(0, extract(epoch from moment - used_at)) * units / period) end,
               greatest(extract(epoch from closed_until - moment),
                        case when kind = 'rate' then extract(epoch from look_at - moment) end, 0),
               to_json(held), looks))
    into held_ids, gate_list
    from gate;

    select json_agg(id) into live from sereno.jobs where id = any(held_ids) and state = 'running';

    return json_build_array(moment, sereno.micros(moment), coalesce(lane_list, '[]'), coalesce(gate_list, '[]'),
        coalesce(live, '[]'), coalesce(free_list, '[]'), coalesce(own, '{}'), coalesce(missed, '[]'),
        (select extract(epoch from look_at - moment) from sereno.gates where look_at > moment order by look_at limit 1));
end $$;

-- The second half, after the jobs were picked. Gates note whom they let in. Lanes that have no more rest; those that must
-- wait, or need no longer, or had their fair turn, say so; the rest is as it was, and is not written. Whether a lane has more
-- is asked with its lock in hand: a job that came meanwhile left a wake-up, which is read under the same lock.
create function sereno.write_lanes(
    moment timestamptz,
    served bigint[], served_queues text[],
    changed bigint[], waits bigint[], bands smallint[], turns double precision[], priorities smallint[], seqs bigint[],
    gate_ids bigint[], held text[], tokens double precision[], look_in double precision[], exact boolean[], looks integer[],
    share_queues text[], share_keys text[], clocks double precision[]
) returns void
    language plpgsql as $$
declare
    ended   bigint[];
    locked  bigint[];
begin
    update sereno.gates
    set held = gate.held::bigint[], tokens = gate.tokens, used_at = moment, looks = gate.looks,
        look_at = case
            when gate.look is not null then
                case when not gate.exact and gates.look_at > sereno.now() + interval '2 seconds' then gates.look_at
                     else sereno.now() + make_interval(secs => gate.look) end
            when gates.look_at is null then null
            when (select true from sereno.lanes where has_work and waits_for = gates.id limit 1)
                then greatest(gates.look_at, sereno.now())
            end
    from unnest(gate_ids, write_lanes.held, write_lanes.tokens, look_in, exact, write_lanes.looks)
        as gate(id, held, tokens, look, exact, looks)
    where gates.id = any(gate_ids) and gates.id = gate.id;

    ended := array(
        select lane from unnest(served, served_queues) as given(lane, queue)
        where (select true from sereno.jobs
               where state = 'ready' and jobs.lane is not null and jobs.queue = given.queue and jobs.lane = given.lane
               limit 1) is null);

    if cardinality(ended) > 0 or cardinality(changed) > 0 then
        locked := array(
            select id from sereno.lanes where id = any(ended || changed) order by id for update skip locked);
        update sereno.lanes
        set has_work = (select true from sereno.jobs
                        where state = 'ready' and jobs.lane is not null and jobs.queue = lanes.queue
                          and jobs.lane = lanes.id
                        limit 1) is not null,
            waits_for = case when move.id is null then lanes.waits_for else move.waits end,
            band = coalesce(move.band, lanes.band), turn = coalesce(move.turn, lanes.turn),
            floor_priority = coalesce(move.priority, 0), floor_seq = coalesce(move.seq, 0), served_at = sereno.now()
        from unnest(locked) as own(id)
        left join unnest(changed, waits, bands, turns, priorities, seqs)
            as move(id, waits, band, turn, priority, seq) on move.id = own.id
        where lanes.id = any(locked) and lanes.id = own.id;
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
end $$;

-- What the code declares: how the keys of a task's jobs, or of all jobs of a queue, are made. For those who enqueue
-- without the code: SQL, and schedules.
create table sereno.key_rules (
    kind         text not null check (kind in ('task', 'queue')),
    name         text not null,
    rule         jsonb not null,
    declared_by  text not null,
    primary key (kind, name)
);

-- A template filled in: {tenant}, {task}, {queue} and the arguments by name. What is filled in is not read again.
create function sereno.fill(template text, task text, queue text, tenant text, args jsonb) returns text
    language sql immutable as $$
    select coalesce(string_agg(
        case part[1]
            when '{tenant}' then coalesce(tenant, '') when '{task}' then task when '{queue}' then queue
            else case when part[1] ~ '^\{\w+\}$' then coalesce(args ->> substr(part[1], 2, length(part[1]) - 2), '')
                      else part[1] end
        end, '' order by number), '')
    from regexp_matches(template, '\{\w+\}|[^{]+|\{', 'g') with ordinality as found(part, number)
    $$;

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
                   greatest(1, sereno.fill(item ->> 2, task, queue, tenant, args)::integer)))
        into limits
        from jsonb_array_elements(wanted.rule -> 'limits') as item;
        if limits is not null then
            found := found || jsonb_build_object('limits', coalesce(found -> 'limits', '[]') || limits);
        end if;
    end loop;
    if found = '{}' then
        return null;
    end if;
    if found ? 'limits' then
        found := found || jsonb_build_object('limits', (
            select jsonb_agg(item order by item ->> 0 collate "C") from jsonb_array_elements(found -> 'limits') as item));
    end if;
    return found;
end $$;

-- As before, with the keys of limits. A key that is null in JSON is no key.
create or replace function sereno.enqueue_keyed(jobs jsonb) returns jsonb
    language plpgsql as $$
declare
    moment   timestamptz := sereno.now();
    wanted   record;
    due      timestamptz;
    new_id   bigint;
    found_id bigint;
    told_queue text;
    answers  jsonb[] := '{}';
begin
    for wanted in
        select * from rows from (jsonb_to_recordset(jobs) as (
            task text, args jsonb, queue text, priority smallint, run_at timestamptz, delay double precision,
            tenant text, expires_at timestamptz, tags text[], trace text, unique_key text, on_conflict text,
            unique_for double precision, unique_forever boolean, keys jsonb, by_rules boolean)) with ordinality
        order by task, unique_key, tenant, ordinality
    loop
        if wanted.keys is null and wanted.by_rules then
            wanted.keys := sereno.keys_for(wanted.task, wanted.queue, wanted.tenant, wanted.args);
        end if;
        due := coalesce(wanted.run_at, moment + make_interval(secs => coalesce(wanted.delay, 0)));
        loop
            new_id := nextval(pg_get_serial_sequence('sereno.jobs', 'id'));
            found_id := null;
            if wanted.unique_for is not null or wanted.unique_forever then
                insert into sereno.unique_keys as held (task, unique_key, tenant, job_id, until)
                values (wanted.task, wanted.unique_key, wanted.tenant, new_id,
                        case when wanted.unique_forever then 'infinity'
                             else moment + make_interval(secs => wanted.unique_for) end)
                on conflict on constraint unique_keys_key do update
                    set job_id = excluded.job_id, until = excluded.until
                    where held.until <= moment
                returning job_id into found_id;
                if found_id is null then
                    select job_id into found_id from sereno.unique_keys held
                    where held.task = wanted.task and held.unique_key = wanted.unique_key
                      and held.tenant is not distinct from wanted.tenant;
                    -- Its time ran out and it was swept away in between: try once more.
                    continue when found_id is null;
                end if;
            end if;
            if found_id is null or found_id = new_id then
                insert into sereno.jobs (id, task, args, queue, priority, run_at, tenant, expires_at, tags, trace,
                                         created_at, unique_key, keys, lane, order_id, state, ready_seq)
                values (new_id, wanted.task, coalesce(wanted.args, '{}'), coalesce(wanted.queue, 'default'),
                        coalesce(wanted.priority, 5), due, wanted.tenant, wanted.expires_at, wanted.tags,
                        wanted.trace, moment, wanted.unique_key, wanted.keys,
                        case when wanted.keys is not null
                             then sereno.lane_of(coalesce(wanted.queue, 'default'), wanted.keys) end,
                        case when wanted.keys is not null
                             then sereno.order_of(coalesce(wanted.queue, 'default'), wanted.keys) end,
                        case when due <= moment then 'ready' else 'scheduled' end,
                        case when due <= moment then nextval('sereno.ready_seq') end)
                on conflict (task, unique_key, tenant) where unique_key is not null do nothing
                returning id into found_id;
                if found_id = new_id then
                    perform sereno.tell(coalesce(wanted.queue, 'default'), extract(epoch from due - moment));
                    answers[wanted.ordinality] := jsonb_build_object('id', new_id, 'created', true);
                    exit;
                end if;
                -- A live job has the key. While it waits, lock it, so that it runs after we commit and sees what we did.
                -- Never lock a running one: its worker would wait for us, and with it everything that it settles.
                select id into found_id from sereno.jobs live
                where live.task = wanted.task and live.unique_key = wanted.unique_key
                  and live.tenant is not distinct from wanted.tenant and live.state in ('scheduled', 'ready')
                for update;
                if found_id is null then
                    select id into found_id from sereno.jobs live
                    where live.task = wanted.task and live.unique_key = wanted.unique_key
                      and live.tenant is not distinct from wanted.tenant;
                    -- It finished in between: the key is free again, try once more.
                    continue when found_id is null;
                end if;
                update sereno.unique_keys held set job_id = found_id
                where held.task = wanted.task and held.unique_key = wanted.unique_key
                  and held.tenant is not distinct from wanted.tenant and held.job_id = new_id;
            end if;
            if wanted.on_conflict = 'replace' then
                update sereno.jobs
                set args = coalesce(wanted.args, '{}'), run_at = due, priority = coalesce(wanted.priority, 5),
                    state = case when due <= moment then 'ready' else 'scheduled' end,
                    ready_seq = case when due <= moment then nextval('sereno.ready_seq') end,
                    keys = wanted.keys,
                    lane = case when wanted.keys is not null then sereno.lane_of(jobs.queue, wanted.keys) end,
                    order_id = case when wanted.keys is not null then sereno.order_of(jobs.queue, wanted.keys) end
                where id = found_id and state in ('scheduled', 'ready')
                returning queue into told_queue;
                if found then
                    perform sereno.tell(told_queue, extract(epoch from due - moment));
                end if;
            end if;
            answers[wanted.ordinality] := jsonb_build_object('id', found_id, 'created', false);
            exit;
        end loop;
    end loop;
    return to_jsonb(answers);
end $$;

-- For psql and triggers: select sereno.enqueue('reconcile', '{"account": "r42"}', tenant => 'r42');
create or replace function sereno.enqueue(
    task text,
    args jsonb default '{}',
    queue text default 'default',
    priority integer default 5,
    run_at timestamptz default null,
    tenant text default null,
    unique_key text default null,
    expires_at timestamptz default null,
    tags text[] default null,
    trace text default null
) returns bigint
    language plpgsql as $$
declare
    moment timestamptz := sereno.now();
    due    timestamptz := coalesce(run_at, moment);
    made   bigint;
    keys   jsonb := sereno.keys_for(task, queue, tenant, args);
begin
    if unique_key is not null then
        return (sereno.enqueue_keyed(jsonb_build_array(jsonb_build_object(
            'task', task, 'args', args, 'queue', queue, 'priority', priority, 'run_at', run_at, 'tenant', tenant,
            'unique_key', unique_key, 'expires_at', expires_at, 'tags', tags, 'trace', trace,
            'keys', keys))) -> 0 ->> 'id')::bigint;
    end if;
    insert into sereno.jobs (task, args, queue, priority, run_at, tenant, expires_at, tags, trace, created_at,
                             keys, lane, order_id, state, ready_seq)
    values (enqueue.task, enqueue.args, enqueue.queue, enqueue.priority, due, enqueue.tenant, enqueue.expires_at,
            enqueue.tags, enqueue.trace, moment, keys,
            case when keys is not null then sereno.lane_of(enqueue.queue, keys) end,
            case when keys is not null then sereno.order_of(enqueue.queue, keys) end,
            case when due <= moment then 'ready' else 'scheduled' end,
            case when due <= moment then nextval('sereno.ready_seq') end)
    returning id into made;
    perform sereno.tell(enqueue.queue, extract(epoch from due - moment));
    return made;
end $$;
