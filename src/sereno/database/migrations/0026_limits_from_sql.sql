-- Claims under limits by SQL (see 0024_public_functions.sql). Lanes and limiters are taken and written by the functions that the
-- worker in Python calls; the decision between, which domain/lanes.py makes for it, is made here.

-- A claim of lanes and limiters, on its way through the functions below; the first fields as sereno.take_lanes answers them.
-- Of a lane: whether it is still to be asked, how many jobs it may give, which limiter it must wait for.
create type sereno.taken_lane as (
    id bigint, queue text, limiters bigint[], units integer[], order_id bigint, turn double precision, floor_priority smallint,
    floor_seq bigint, behind bigint, band smallint, has_head boolean, fair text, weight double precision,
    clock double precision, is_open boolean, gives integer, waits bigint);
-- Of a limiter: how many slots or tokens are left, what the first one that must wait for it needs, whether it is to be written.
create type sereno.taken_limiter as (
    id bigint, kind text, slots integer, per_second double precision, burst double precision, tokens double precision,
    closed double precision, held bigint[], looks integer, room double precision, need double precision, is_touched boolean);

-- Limiters that were locked, each with those of its jobs that still run and pass it. Asked with the locks in hand. Jobs behind a
-- negative number -n share n slots, as long as there are more than n of them (see domain/parties.py).
create function sereno.read_limiters(answer json) returns sereno.taken_limiter[]
    language sql as $$
    select array_agg(row(id, kind, slots, per_second, burst, tokens, closed, inside.held, looks,
                         case when closed > 0 then 0 when kind = 'rate' then tokens
                              when kind = 'unknown' then 0 else slots - inside.taken end,
                         null, is_due)::sereno.taken_limiter)
    from (select (each ->> 0)::bigint as id, each ->> 1 as kind, (each ->> 2)::integer as slots,
                 (each ->> 3)::double precision as per_second, (each ->> 4)::double precision as burst,
                 (each ->> 5)::double precision as tokens, coalesce((each ->> 6)::double precision, 0) as closed,
                 each -> 7 as list, (each ->> 8)::integer as looks,
                 exists (select from json_array_elements(answer -> 4) as free
                         where free ->> 0 = each ->> 0 and (free ->> 1)::boolean) as is_due
          from json_array_elements(answer -> 3) as each offset 0) as limiter
    cross join lateral (
        select coalesce(array_agg(number order by party * (not is_alone)::integer, place), '{}') as held,
               coalesce(sum(case when is_alone then 1 when number < 0 then -number else 0 end), 0) as taken
        from (select *, count(*) filter (where number > 0) over (partition by party)
                        <= coalesce(-min(number) filter (where number < 0) over (partition by party), 1e9) as is_alone
              from (select number, place, count(*) filter (where number < 0) over (order by place) as party
                    from (select value::bigint as number, place
                          from json_array_elements_text(list) with ordinality as e(value, place)) as listed) as numbered
              where number < 0 or exists (
                  select from sereno.jobs
                  where jobs.id = number and state = 'running'
                    and (attempt = 1 or kind = 'rate' or limiter.id in (select sereno.limiters_of(jobs.queue, jobs.keys))))) as live
        where number > 0 or not is_alone) as inside
    $$;

-- Lanes all of whose limiters were locked, and for each queue that has a limit of its own, the plain jobs of it as a lane without a
-- number. A fair lane that waited has saved up nothing: it comes back at the turn of those who are next.
create function sereno.read_lanes(answer json, locked bigint[]) returns sereno.taken_lane[]
    language sql as $$
    with own as materialized (
        select key as queue, array(select json_array_elements_text(value -> 0)::bigint) as limiters,
               (value ->> 1)::boolean as has_plain
        from json_each(answer -> 5)
    ),
    lane as materialized (
        select (each ->> 0)::bigint as id, each ->> 1 as queue, array(select json_array_elements_text(each -> 2)::bigint) as limiters,
               array(select json_array_elements_text(each -> 3)::integer) as units, (each ->> 4)::bigint as order_id,
               (each ->> 5)::double precision as turn, (each ->> 6)::smallint as floor_priority, (each ->> 7)::bigint as floor_seq,
               (each ->> 8)::bigint as behind, (each ->> 9)::smallint as band, (each ->> 10)::boolean as has_head,
               each ->> 11 as fair, (each ->> 12)::double precision as weight, (each ->> 13)::double precision as clock
        from json_array_elements(answer -> 2) as each
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

-- One job at a time to the lane that is next, until the room is used up or every lane must wait: bands in order, in rounds within
-- a band, fair lanes by what they got divided by their weight. A limiter that refuses closes a rate for all who come later.
create function sereno.give_turns(
    inout lanes sereno.taken_lane[], inout limiters sereno.taken_limiter[], in room integer, in turned boolean
)
    language plpgsql as $$
declare
    known    bigint[] := array(select id from unnest(limiters));
    most     integer := greatest(4, 4 * room / greatest(1, cardinality(lanes)));
    number   integer;
    refused  integer;
    limiter     integer;
    cost     double precision;
begin
    while room > 0 loop
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
            if limiters[limiter].room < cost or (limiters[limiter].kind = 'rate' and limiters[limiter].need is not null)
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
            limiters[limiter].room := limiters[limiter].room - cost;
            if limiters[limiter].kind = 'order' then
                -- Whoever is next in the order waits from now on.
                limiters[limiter].need := 1;
            end if;
        end loop;
        lanes[number].gives := lanes[number].gives + 1;
        lanes[number].is_open := lanes[number].gives < most;
        room := room - 1;
    end loop;
end $$;

-- So many of each lane, by index, as the statement `pick` of the worker takes them: their ids, and the number of the lane of each.
-- `stops`: lanes of which no more may be read in one claim, by number, and where the next one goes on. `passing`: numbers of
-- lanes that gave jobs from behind others.
create function sereno.pick_limited(
    lanes sereno.taken_lane[], known_tasks text[], out ids bigint[], out numbers bigint[], out stops jsonb,
    out passing bigint[]
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
                  select jobs.ctid as place, task, tenant from sereno.jobs
                  where state = 'ready' and jobs.lane is not null and jobs.queue = wanted.queue and jobs.lane = wanted.id
                    and (priority, ready_seq) >= (wanted.floor_priority, wanted.floor_seq)
                  order by priority, ready_seq limit wanted.most) as rows_read) as near
            cross join lateral (
                select jobs.id from sereno.jobs
                where jobs.ctid = near.place and state = 'ready' and jobs.queue = wanted.queue and jobs.lane = wanted.id
                for update skip locked) as locked
            where task = any(known_tasks) and task <> all(array(select name from paused where kind = 'task'))
              and (tenant is null or tenant <> all(array(select name from paused where kind = 'tenant')))
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

-- What the decision, and what was picked, means for lanes and limiters (see store/lanes.py). A lane that gave something goes to the
-- end of its line, for whoever claims by SQL remembers nothing. A limiter that somebody waits for from now on is looked at once more
-- by whoever comes next: it may come free while this is being written.
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
                    when kind = 'slots' and room + coalesce(unused, 0) > 0 then 0
                    else least(60, 5 * 2 ^ looks) end as look,
               case when entered <> '{}' then 0 when is_new and kind <> 'rate' then looks else least(10, looks + 1) end as new_looks
        from unnest(limiters) as limiter left join passed on passed.limiter = limiter.id
        cross join lateral (select array(select job from given g, unnest(g.ids) as job where limiter.id = any(g.limiters))) as e(entered)
        where is_touched
    )
    select sereno.write_lanes(
        moment, '{}', '{}', '{}', '{}', '{}', m.ids, m.waits, m.bands, m.turns, m.priorities, m.seqs, m.seen, m.seen_seqs,
        w.ids, w.held, w.tokens, w.looks, w.exact, w.counts, s.queues, s.keys, s.clocks)
    from (select array_agg(id) as ids, array_agg(waits) as waits, array_agg(band::smallint) as bands, array_agg(turn) as turns,
                 array_agg(priority::smallint) as priorities, array_agg(seq) as seqs,
                 array_agg(floor_priority) as seen, array_agg(floor_seq) as seen_seqs from moved) as m,
         (select array_agg(id) as ids, array_agg(case when kind = 'rate' then '{}' else (entered || held)::text end) as held,
                 array_agg(tokens - spent) as tokens, array_agg(look::double precision) as looks,
                 array_agg(kind = 'rate' or coalesce(look, 1) = 0) as exact, array_agg(new_looks::integer) as counts
          from written) as w,
         (select array_agg(queue) as queues, array_agg(fair) as keys, array_agg(clock) as clocks from share) as s
    $$;

-- Jobs with limits, and those of queues with limits: wake lanes, take them with their limiters, decide, pick, write. Again while it
-- gives something, because a lane is given no more than its part. `floors`: where to start.
create function sereno.claim_limited(
    for_session bigint, wanted text[], known_tasks text[], most integer, floors jsonb, turned boolean,
    looks_back boolean default false
) returns setof sereno.jobs
    language plpgsql as $$
declare
    opened   json := sereno.open_lanes(coalesce((floors ->> 'wakes')::bigint, 0));
    made     boolean := false;
    answer   json;
    limiters    sereno.taken_limiter[];
    lanes    sereno.taken_lane[];
    ids      bigint[];
    numbers  bigint[];
    stops    jsonb;
    passing  bigint[];
    walks    integer := 0;
    plain    bigint[];
    which    integer;
begin
    perform sereno.keep_moving();
    while most > 0 loop
        answer := sereno.take_lanes((
            select jsonb_agg(jsonb_build_object(
                'queue', queue, 'now', most, 'room', most, 'lanes', most,
                'floors', (select jsonb_agg(jsonb_build_object(
                               'priority', level, 'floor', coalesce((floors ->> (queue || ':' || level))::bigint, 0)))
                           from generate_series(0, 9) as level),
                'bands', (select jsonb_agg(jsonb_build_object('band', level, 'after', 0) order by place)
                          from (select level, case when turned then -level else level end as place
                                from generate_series(0, 9) as level) as step)))
            from unnest(wanted) as queue), '[]');
        limiters := sereno.read_limiters(answer);
        lanes := sereno.read_lanes(answer, coalesce((select array_agg(id) from unnest(limiters)), '{}'));
        select given.lanes, given.limiters into lanes, limiters from sereno.give_turns(lanes, limiters, most, turned) as given;
        select picked.ids, picked.numbers, picked.stops, picked.passing into ids, numbers, stops, passing
        from sereno.pick_limited(lanes, known_tasks) as picked;
        -- The jobs without keys of a queue with a limit of its own.
        for which in select ordinality from unnest(lanes) with ordinality where id is null and gives > 0 loop
            plain := sereno.pick_plain(
                for_session, array[lanes[which].queue], known_tasks, lanes[which].gives, floors, looks_back, turned);
            ids := ids || plain;
            numbers := numbers || array_fill(which::bigint, array[cardinality(plain)]);
        end loop;
        perform sereno.write_limited((answer ->> 0)::timestamptz, lanes, limiters, ids, numbers, stops);
        if stops is not null or passing is not null then
            perform sereno.mark_passed_over(
                array(select lane.id from unnest(lanes) with ordinality as lane
                      where stops ? ordinality::text or ordinality = any(passing)));
        end if;
        return query select * from sereno.mark_claimed(for_session, ids, (answer ->> 0)::timestamptz);
        if (answer ->> 8)::boolean and not made then
            -- Of new limits, or swept away while nobody used them.
            perform sereno.make_limiters(array(select (each ->> 0)::bigint from json_array_elements(answer -> 2) as each), wanted);
            made := true;
        elsif coalesce(cardinality(ids), 0) = 0 then
            -- Behind what was passed over there may be more.
            walks := walks + 1;
            exit when stops is null or walks = 5;
        end if;
        most := most - coalesce(cardinality(ids), 0);
    end loop;
end $$;
