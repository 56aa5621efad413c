-- Jobs of one key that one worker claimed together share its slots (see domain/parties.py), and a claim asks for no more
-- lanes than it needs.

comment on column sereno.limiters.held is
    'Jobs that it let in, each with a slot of its own; those behind a negative number -n share n slots.';

-- How many slots are taken by those of a list that still run.
create function sereno.slots_taken(held bigint[]) returns bigint
    language sql stable as $$
    select coalesce(sum(taken), 0)::bigint
    from (select least(-min(number) filter (where number < 0), count(jobs.id)) as taken
          from (select number, count(*) filter (where number < 0) over (order by place) as party
                from unnest(held) with ordinality as list(number, place)) as each
          left join sereno.jobs on jobs.id = number and state = 'running'
          group by party) as party
    $$;

-- The first half of a claim: lanes in turn that have work, and those behind limiters that came free, with their limiters. Limiters
-- are locked or left alone; nobody waits here. So are lanes that take fair turns; others are only read, from where the last
-- claim of the same worker ended, and around. Each step is a statement of its own, so that it sees what was committed
-- before the locks of the step before it: who waits behind a limiter is read with the limiter in hand. Which of the jobs that it
-- let in still run is asked afterwards, where it matters. A limiter that came free and that nobody waits for is left alone; a
-- claim that lets a lane wait for it looks at it once more afterwards.
create or replace function sereno.take_lanes(asked jsonb, freed jsonb) returns json
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
        from jsonb_to_recordset(asked) as wanted(queue text, lanes integer, bands jsonb)
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
    -- Tokens are counted up to a moment at which no other claim can take any: later than any claim before it.
    locked_at := sereno.clock_now();

    select json_agg(json_build_array(
               limiters.id, case when limit_name is null then 'order' else coalesce(kind, 'unknown') end,
               case when limit_name is null then 1 else slots end, units / period, burst,
               case when kind = 'rate' then
                   least(burst, coalesce(tokens, burst)
                         + greatest(0, extract(epoch from locked_at - used_at)) * units / period) end,
               greatest(extract(epoch from closed_until - locked_at),
                        case when kind = 'rate' then extract(epoch from look_at - locked_at) end, 0),
               to_json(held), looks, limiters.xmin::text::bigint))
    into limiter_list
    from sereno.limiters left join sereno.limits on limits.name = limit_name
    where limiters.id = any(free || locked_ids);

    return json_build_array(locked_at, sereno.micros(locked_at), coalesce(lane_list, '[]'), coalesce(limiter_list, '[]'),
        coalesce(free_list, '[]'), coalesce(own, '{}'), coalesce(missed, '[]'), coalesce(elsewhere, '[]'),
        coalesce(cardinality(locked_ids), 0) < cardinality(limiter_ids)
            and exists (select unnest(limiter_ids) except select id from sereno.limiters where id = any(limiter_ids)),
        (select extract(epoch from look_at - moment) from sereno.limiters where look_at > moment order by look_at limit 1));
end $$;

drop function sereno.write_lanes(timestamptz, bigint[], integer[], smallint[], bigint[], text[], bigint[], bigint[], smallint[],
    double precision[], smallint[], bigint[], bigint[], text[], double precision[], double precision[], boolean[], integer[],
    text[], text[], double precision[]);

-- The second half, after the jobs were picked. Limiters note whom they let in. Lanes that have no more rest; those that must
-- wait, or need no longer, or had their fair turn, say so; the rest is as it was, and is not written. Whether a lane has more
-- is asked with its lock in hand: a job that came meanwhile left a wake-up, which is read under the same lock. It is asked
-- from the floor of the lane on first, where the next one is; below it, there may be some that were passed over. A wake-up
-- that lowered the floor since it was seen has its way.
create function sereno.write_lanes(
    moment timestamptz,
    served bigint[], served_queues integer[], served_priorities smallint[], served_seqs bigint[], queues text[],
    changed bigint[], waits bigint[], bands smallint[], turns double precision[], priorities smallint[], seqs bigint[],
    seen_priorities smallint[], seen_seqs bigint[],
    limiter_ids bigint[], held text[], tokens double precision[], look_in double precision[], exact boolean[], looks integer[],
    share_queues text[], share_keys text[], clocks double precision[]
) returns text
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
    -- By which those limiters are known again that nobody else has written since.
    return pg_current_xact_id()::xid::text;
end $$;
