-- A claim under limits: lanes are woken, taken with their limiters, and written after the decision (see 0006_limits.sql).

-- What wake-ups say is written on their lanes; a lane that is new is made from one of its jobs. A lane that a claim holds
-- is left for the next time, with its wake-ups. One at a time does this, the others go on. Answers how many wake-ups there
-- were, the lowest number, and how many are left over.
create function sereno.open_lanes(look_from bigint) returns json
    language plpgsql as $$
declare
    answer json;
begin
    if not pg_try_advisory_xact_lock(hashtext('sereno: lanes are opened'), 'sereno.lane_wakes'::regclass::oid::integer) then
        return json_build_array(0, null, 1);
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
    -- What is there is left alone: an insert would wait for a claim that is changing it.
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
    into answer;
    return answer;
end $$;

-- Limiters that a lane or a queue passes and that are not there: swept away while nobody used them, or of a new limit of a
-- queue. In a transaction of its own: a claim that made them and stopped would hold up all others.
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

-- Limiters whose moment has come, as far as they concern these queues: somebody of them waits there, or nobody at all does.
create function sereno.due_limiters(queues text[], moment timestamptz) returns setof bigint
    language sql stable as $$
    select due.id
    from (select id, limit_name from sereno.limiters where look_at <= moment order by look_at limit 5000) as due
    left join sereno.limits on limits.name = due.limit_name
    where (limits.queue is null or limits.queue = any(queues))
      and ((select true from sereno.lanes where has_work and waits_for = due.id and lanes.queue = any(queues) limit 1)
           or (select true from sereno.lanes where has_work and waits_for = due.id limit 1) is null)
    limit 100
    $$;

-- The first half of a claim: lanes in turn that have work, and those behind limiters that came free, with their limiters. Limiters
-- are locked or left alone; nobody waits here. So are lanes that take fair turns; others are only read, from where the last
-- claim of the same worker ended, and around. Each step is a statement of its own, so that it sees what was committed
-- before the locks of the step before it: who waits behind a limiter is read with the limiter in hand. Which of the jobs that it
-- let in still run is asked afterwards, where it matters. A limiter that came free and that nobody waits for is left alone; a
-- claim that lets a lane wait for it looks at it once more afterwards.
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
    elsewhere    json;
    lane_ids     bigint[];
    lane_list    json;
    limiter_ids     bigint[];
    limiter_list    json;
    locked_ids   bigint[];
begin
    select array_agg(wanted.queue) into open_to
    from jsonb_to_recordset(asked) as wanted(queue text)
    where wanted.queue <> all(array(select name from sereno.pauses where kind = 'queue'));
    select json_object_agg(queue, json_build_array(to_json(limiters), has_plain)) into own
    from (select limits.queue, array_agg(sereno.limiter_of(name, '')) as limiters,
                 (select true
                  from jsonb_to_recordset(asked) as wanted(queue text, floors jsonb)
                  cross join lateral jsonb_to_recordset(wanted.floors) as step(priority smallint, floor bigint)
                  cross join lateral (select from sereno.jobs
                                      where state = 'ready' and lane is null and jobs.queue = wanted.queue
                                        and jobs.priority = step.priority and jobs.ready_seq >= step.floor limit 1) as job
                  where wanted.queue = limits.queue limit 1) is not null as has_plain
          from sereno.limits where limits.queue = any(open_to) group by limits.queue) as each;

    with due as materialized (select id from sereno.due_limiters(open_to, moment) as id),
    told as materialized (
        select * from jsonb_to_recordset(freed) as f(limiter bigint, most integer)
        where (select true from sereno.lanes where has_work and waits_for = limiter limit 1)
    ),
    locked as materialized (
        select id, limit_name from sereno.limiters
        where id = any(array(select id from due union select limiter from told)) order by id for update skip locked
    )
    select array_agg(locked.id),
           array_agg(greatest(told.most, case when due.id is null then 0 when kind = 'rate' then 100 else 10 end)),
           json_agg(json_build_array(locked.id, due.id is not null)),
           (select json_agg(limiter) from told where limiter not in (select id from locked)),
           (select json_agg(limiter) from told
            where (select true from sereno.lanes
                   where has_work and waits_for = limiter and lanes.queue <> all(open_to) limit 1))
    into free, free_counts, free_list, missed, elsewhere
    from locked left join told on told.limiter = locked.id left join due on due.id = locked.id
    left join sereno.limits on limits.name = limit_name;

    with unfair as materialized (
        select lane.*
        from jsonb_to_recordset(asked) as wanted(queue text, room integer, bands jsonb)
        cross join lateral (
            select candidate.*
            from jsonb_to_recordset(wanted.bands) as step(band smallint, after double precision)
            cross join lateral (
                (select id, queue, limiters, units, order_id, fair, turn, band, floor_priority, floor_seq,
                        null::bigint as behind
                 from sereno.lanes
                 where has_work and waits_for is null and lanes.queue = wanted.queue and lanes.band = step.band
                   and lanes.turn > step.after
                 order by lanes.turn limit wanted.room)
                union all
                (select id, queue, limiters, units, order_id, fair, turn, band, floor_priority, floor_seq,
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
            select id, queue, limiters, units, order_id, fair, turn, band, floor_priority, floor_seq,
                   null::bigint as behind
            from sereno.lanes
            where has_work and waits_for is null and lanes.queue = wanted.queue and lanes.band = 10
            order by lanes.turn limit wanted.room for update skip locked
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

    select json_agg(json_build_array(
               limiters.id, case when limit_name is null then 'order' else coalesce(kind, 'unknown') end,
               case when limit_name is null then 1 else slots end, units / period, burst,
               case when kind = 'rate' then
                   least(burst, coalesce(tokens, burst)
                         + greatest(0, extract(epoch from moment - used_at)) * units / period) end,
               greatest(extract(epoch from closed_until - moment),
                        case when kind = 'rate' then extract(epoch from look_at - moment) end, 0),
               to_json(held), looks))
    into limiter_list
    from sereno.limiters left join sereno.limits on limits.name = limit_name
    where limiters.id = any(free || locked_ids);

    return json_build_array(moment, sereno.micros(moment), coalesce(lane_list, '[]'), coalesce(limiter_list, '[]'),
        coalesce(free_list, '[]'), coalesce(own, '{}'), coalesce(missed, '[]'), coalesce(elsewhere, '[]'),
        coalesce(cardinality(locked_ids), 0) < cardinality(limiter_ids)
            and exists (select unnest(limiter_ids) except select id from sereno.limiters where id = any(limiter_ids)),
        (select extract(epoch from look_at - moment) from sereno.limiters where look_at > moment order by look_at limit 1));
end $$;

-- The second half, after the jobs were picked. Limiters note whom they let in. Lanes that have no more rest; those that must
-- wait, or need no longer, or had their fair turn, say so; the rest is as it was, and is not written. Whether a lane has more
-- is asked with its lock in hand: a job that came meanwhile left a wake-up, which is read under the same lock.
create function sereno.write_lanes(
    moment timestamptz,
    served bigint[], served_queues integer[], served_priorities smallint[], served_seqs bigint[], queues text[],
    changed bigint[], waits bigint[], bands smallint[], turns double precision[], priorities smallint[], seqs bigint[],
    limiter_ids bigint[], held text[], tokens double precision[], look_in double precision[], exact boolean[], looks integer[],
    share_queues text[], share_keys text[], clocks double precision[]
) returns void
    language plpgsql as $$
declare
    ended   bigint[];
    locked  bigint[];
begin
    update sereno.limiters
    set held = limiter.held::bigint[], tokens = limiter.tokens, used_at = greatest(limiters.used_at, moment), looks = limiter.looks,
        look_at = case
            when limiter.look is not null then
                case when not limiter.exact and limiters.look_at > sereno.now() + interval '2 seconds' then limiters.look_at
                     else sereno.now() + make_interval(secs => limiter.look) end
            when limiters.look_at is null then null
            when (select true from sereno.lanes where has_work and waits_for = limiters.id limit 1)
                then greatest(limiters.look_at, sereno.now())
            end
    from unnest(limiter_ids, write_lanes.held, write_lanes.tokens, look_in, exact, write_lanes.looks)
        as limiter(id, held, tokens, look, exact, looks)
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
