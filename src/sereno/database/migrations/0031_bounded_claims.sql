-- A claim looks at a bounded number of rows, however many it has to pass over: ready jobs of paused tenants and tasks, and of
-- tasks that the worker does not know. What it has passed over is remembered, so that the next claim goes on behind it. The
-- worker in Python has engine/claim_ranges.py for plain jobs; here is the same for claims by SQL, and what lanes need.

-- Part of the index of ready jobs: values of ready_seq from `low` on and below `high`, of which at most `most` rows are read.
-- `is_back`: below the floor.
create type sereno.ready_range as (
    queue text, priority smallint, low bigint, high bigint, most integer, is_back boolean);

-- What a claim reads: the most urgent first, queues of one urgency in any order, older jobs before newer ones. `turned`: from the
-- least urgent. Ranges below the floor are read only after something was passed over; without that, all lies above the floor.
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

-- Jobs of these ranges, locked, but for those in `but`. Rows are read without a lock first, because a limit below a lock would
-- count what was locked and not what was read. `reached`: how many ranges were read, to their end or to their limit.
-- SKIP LOCKED: a row that another claim holds is that claim's.
create function sereno.pick_ranges(
    ranges sereno.ready_range[], known_tasks text[], room integer, but bigint[], out ids bigint[], out reached integer
)
    language plpgsql as $$
begin
    with paused as materialized (select kind, name from sereno.pauses where kind <> 'queue')
    select array_agg(picked.id), case when count(*) < room then cardinality(ranges) else max(picked.number)::integer - 1 end
    into ids, reached
    from (select candidate.id, range.number
          from unnest(ranges) with ordinality as range(queue, priority, low, high, most, is_back, number)
          cross join lateral (
              select locked.id
              from (select jobs.ctid as place, jobs.task, jobs.tenant from sereno.jobs
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
          ) as candidate
          limit room) as picked;
end $$;

-- What is paused, as it is remembered.
create function sereno.paused_now() returns jsonb
    language sql stable as $$ select coalesce(jsonb_agg(kind || ':' || name), '[]') from sereno.pauses where kind <> 'queue' $$;

-- A claim has read these ranges: where it stopped before the end of one, the next claim goes on. What lies above the floor is not
-- walked to its end first: the floor rises to the newest jobs at once, and the walk below it goes on from claim to claim, from the
-- beginning again when it has come to the floor. Jobs whose transactions took long to commit are found by it too; for their sake
-- the floor rises to a value that is two seconds old. Of the memory, `from` says for each queue and priority where the walk goes
-- on, `head` what the sequence had given at `head_at`, and `paused` what was paused. `is_short`: a floor has risen.
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

-- Ready jobs without limits of these queues, locked. After a floor has risen, what lies below it is looked at at once.
create function sereno.pick_plain(
    for_session bigint, queues text[], known_tasks text[], room integer, floors jsonb, looks_back boolean, turned boolean
) returns bigint[]
    language plpgsql as $$
declare
    ids          bigint[] := '{}';
    passed_over  jsonb;
    known        jsonb := floors;
    ranges       sereno.ready_range[];
    picked       record;
    noted        record;
begin
    select own.passed_over, case when own.passed_over is null then pick_plain.floors else own.floors end into passed_over, known
    from sereno.sessions own where id = for_session;
    for round in 1..2 loop
        ranges := sereno.ready_ranges(queues, coalesce(known, floors), passed_over, looks_back or round = 2, turned);
        exit when ranges is null;
        picked := sereno.pick_ranges(ranges, known_tasks, room - cardinality(ids), ids);
        ids := ids || coalesce(picked.ids, '{}');
        noted := sereno.pass_over(for_session, ranges[:picked.reached], coalesce(known, floors), passed_over);
        exit when not noted.is_short or cardinality(ids) >= room;
        known := noted.floors;
        passed_over := noted.passed_over;
    end loop;
    return ids;
end $$;

-- A pause has ended: what this session has passed over may be for it now.
create function sereno.start_over(for_session bigint) returns void
    language sql as $$
    update sereno.sessions set passed_over = null, floors = '{}', look_back_at = null
    where id = any(array(select id from sereno.sessions where id = for_session for update skip locked))
    $$;

create function sereno.has_resumed(passed_over jsonb) returns boolean
    language sql stable as $$ select not (passed_over -> 'paused') <@ sereno.paused_now() $$;

-- Lanes whose floor has passed over jobs are read from the beginning again.
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

-- With the rights of the owner: a role that may end a pause need not be able to write to lanes.
create function sereno.reread_lanes_of_resumed() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform sereno.reread_lanes();
    return null;
end $$;

-- Runs for every statement that ends a pause.
create trigger reread_lanes after delete on sereno.pauses
    for each statement execute function sereno.reread_lanes_of_resumed();

-- The floors of these lanes were written behind jobs that may have to be looked at again.
create function sereno.mark_passed_over(ids bigint[]) returns void
    language sql as $$
    update sereno.lanes set passed_over = true
    where id = any(array(select id from sereno.lanes where id = any(ids) and not passed_over order by id for update skip locked))
    $$;
