-- Jobs with limits: their lanes are woken, taken, and written after the decision (see sereno.take_lanes).

-- name: open_lanes
-- Reads wake-ups from a floor on; answers how many, the lowest number, and how many lanes were opened.
select sereno.open_lanes(%(floor)s)::text;

-- name: take
-- Lanes and gates, locked until the transaction ends.
select sereno.take_lanes(%(asked)s::text::jsonb, %(freed)s::text::jsonb)::text;

-- name: claim
-- So many of each lane, by index; then the lanes go to the end of their turn, and the gates note whom they let in.
-- A lane of an order gives its head and nothing else. A lane that gave less than was asked has no more, unless what it
-- has is paused or unknown here: then it goes to the back. The arrays keep the updates on the primary keys.
with clock as materialized (select sereno.now() as now),
paused as materialized (select kind, name from sereno.pauses where kind <> 'queue'),
wanted as materialized (
    select * from jsonb_to_recordset(%(lanes)s::text::jsonb) as w(
        number integer, lane bigint, queue text, count integer, order_id bigint, gates bigint[], units integer[],
        turn double precision, floor_priority smallint, floor_seq bigint, waits bigint, fair text, weight double precision,
        floors jsonb)
),
picked as materialized (
    select job.id, job.priority, job.ready_seq, wanted.number
    from wanted cross join lateral (
        select id, priority, ready_seq from sereno.jobs
        where state = 'ready' and jobs.lane is not null and jobs.queue = wanted.queue and jobs.lane = wanted.lane
          and (priority, ready_seq) >= (wanted.floor_priority, wanted.floor_seq)
          and task = any(%(tasks)s)
          and task <> all(array(select name from paused where kind = 'task'))
          and (tenant is null or tenant <> all(array(select name from paused where kind = 'tenant')))
        order by priority, ready_seq
        limit wanted.count
        for update skip locked
    ) as job
    where wanted.order_id is null and wanted.lane is not null and wanted.count > 0
    union all
    select job.id, job.priority, job.ready_seq, wanted.number
    from wanted cross join lateral (
        select id, keys, queue from sereno.jobs where order_id = wanted.order_id order by id limit 1
    ) as head
    cross join lateral (
        select id, priority, ready_seq from sereno.jobs
        where jobs.id = head.id and state = 'ready' and jobs.lane = wanted.lane
          and task = any(%(tasks)s)
          and task <> all(array(select name from paused where kind = 'task'))
          and (tenant is null or tenant <> all(array(select name from paused where kind = 'tenant')))
        for update skip locked
    ) as job
    where wanted.order_id is not null and wanted.count > 0
      and (select true from sereno.history_dead dead
           where dead.keys ? 'blocks' and dead.queue = wanted.queue and dead.keys ->> 'order' = head.keys ->> 'order'
           limit 1) is null
    union all
    select job.id, job.priority, job.ready_seq, wanted.number
    from wanted cross join lateral (
        select candidate.*
        from jsonb_to_recordset(wanted.floors) as step(priority smallint, floor bigint)
        cross join lateral (
            select jobs.id, jobs.priority, jobs.ready_seq
            from sereno.jobs
            where jobs.state = 'ready' and jobs.lane is null
              and jobs.queue = wanted.queue
              and jobs.priority = step.priority
              and jobs.ready_seq >= step.floor
              and jobs.task = any(%(tasks)s)
              and jobs.task <> all(array(select name from paused where kind = 'task'))
              and (jobs.tenant is null or jobs.tenant <> all(array(select name from paused where kind = 'tenant')))
            order by jobs.ready_seq
            limit wanted.count
            for update skip locked
        ) as candidate
        limit wanted.count
    ) as job
    where wanted.lane is null and wanted.count > 0
),
claimed as (
    update sereno.jobs
    set state = 'running', attempt = attempt + 1, session_id = %(session)s, claimed_at = (select now from clock)
    where id = any(array(select id from picked))
      and exists (select from sereno.sessions
                  where id = %(session)s and state = 'alive' and lease_until > (select now from clock))
    returning id, attempt, task, queue, priority, ready_seq, tenant, failures, crashes, trace, args, schedule_id,
              planned_at, stands_for,
              date_part('epoch', claimed_at) as claimed_at,
              date_part('epoch', claimed_at - run_at) as waited,
              expires_at <= claimed_at as expired
),
got as materialized (
    select number, count(*) as count, max(priority) as priority, max(array[priority, ready_seq]) as last,
           array_agg(id) as ids
    from picked group by number
),
served as materialized (
    select wanted.*, coalesce(got.count, 0) as given, got.last, wanted.count > coalesce(got.count, 0) as is_short,
           case when wanted.count > coalesce(got.count, 0)
                then (select true from sereno.jobs
                      where state = 'ready' and jobs.lane is not null and jobs.queue = wanted.queue
                        and jobs.lane = wanted.lane and id <> all(coalesce(got.ids, '{}'))
                      limit 1) is not null
                else true end as has_more
    from wanted left join got on got.number = wanted.number
    where wanted.lane is not null
),
charge as materialized (
    select share.place, queue, fair, turn, units
    from (select queue, fair, min(turn) as turn,
                 sum((given - (not has_more)::integer) / coalesce(weight, 1)) as units
          from served where fair is not null and given > 0 group by queue, fair) as due
    cross join lateral (
        select ctid as place from sereno.shares
        where shares.queue = due.queue and shares.key = due.fair for update skip locked
    ) as share
),
charged as (
    update sereno.shares set clock = greatest(clock, charge.turn) + charge.units
    from charge
    where shares.ctid = any(array(select place from charge))
      and shares.queue = charge.queue and shares.key = charge.fair
    returning shares.queue, key, clock
),
moved as (
    update sereno.lanes
    set has_work = served.has_more,
        waits_for = case when not served.has_more then null
                         when served.count = 0 then served.waits
                         when served.order_id is not null then served.order_id
                         when served.is_short then null
                         else served.waits end,
        band = case when lanes.fair is null then coalesce(served.last[1]::smallint, lanes.band) else lanes.band end,
        turn = case when lanes.fair is not null
                    then coalesce(charged.clock, served.turn + served.given / coalesce(served.weight, 1))
                    when served.is_short and served.has_more then served.turn + %(back)s
                    else coalesce(served.last[2] + 1, lanes.turn) end,
        floor_priority = case when served.is_short then 0 else coalesce(served.last[1]::smallint, lanes.floor_priority) end,
        floor_seq = case when served.is_short then 0 else coalesce(served.last[2], lanes.floor_seq) end,
        served_at = (select now from clock)
    from served left join charged on charged.queue = served.queue and charged.key = served.fair
    where lanes.id = any(array(select lane from wanted)) and lanes.id = served.lane
),
entry as (
    select picked.id, passed.gate, passed.units
    from picked join wanted on wanted.number = picked.number
    cross join lateral unnest(wanted.gates, wanted.units) as passed(gate, units)
),
let_in as materialized (select gate, array_agg(id) as ids, sum(units) as units from entry group by gate),
gate as materialized (
    select item.*, let_in.ids, let_in.units, coalesce(cardinality(item.held), 0) + coalesce(cardinality(let_in.ids), 0) as inside
    from jsonb_to_recordset(%(gates)s::text::jsonb) as item(
        id bigint, kind text, slots integer, per_second double precision, burst double precision, tokens double precision,
        closed double precision, held bigint[], need double precision, is_waited boolean)
    left join let_in on let_in.gate = item.id
),
kept as (
    update sereno.gates
    set held = case when gate.kind = 'rate' then '{}' else gate.held || coalesce(gate.ids, '{}') end,
        tokens = greatest(0, gate.tokens - coalesce(gate.units, 0)),
        used_at = %(moment)s::text::timestamptz,
        look_at = case
            when gate.is_waited
                 or (select true from sereno.lanes where has_work and waits_for = gates.id limit 1) then
                case when gate.kind = 'rate'
                     then (select now from clock) + make_interval(secs => greatest(0, gate.closed,
                          (coalesce(gate.need, 1) - greatest(0, gate.tokens - coalesce(gate.units, 0))) / gate.per_second))
                     when gate.closed > 0 then (select now from clock) + make_interval(secs => gate.closed)
                     when gate.inside < gate.slots and gate.kind = 'slots' then (select now from clock)
                     else (select now from clock) + make_interval(secs => least(60, 5 * 2 ^ least(looks, 5))) end
            end,
        looks = case when gate.ids is null then least(looks + 1, 10) else 0 end
    from gate
    where gates.id = any(array(select id from gate)) and gates.id = gate.id
)
select coalesce(json_agg(json_build_array(
    id, attempt, task, queue, priority, ready_seq, tenant, failures, crashes, trace, args, claimed_at, waited,
    coalesce(expired, false),
    case when schedule_id is not null then json_build_array(schedule_id, planned_at, stands_for) end)), '[]')::text,
    coalesce((select json_agg(json_build_array(number, ids)) from got), '[]')::text
from claimed;

-- name: hand_over
-- Gates that came free and that this worker cannot use: whoever looks next finds them due. Answers those that were noted;
-- one that a claim holds right now is told again later.
with free as materialized (
    select id from sereno.gates where id = any(%(gates)s) order by id for update skip locked
),
noted as (
    update sereno.gates set look_at = sereno.now()
    where id = any(array(select id from free))
      and (select true from sereno.lanes where has_work and waits_for = gates.id limit 1)
    returning id
),
told as (
    select pg_notify('sereno.ready', '')
    where exists (select from noted) and exists (select from sereno.sessions where idle)
)
select coalesce((select json_agg(id) from free), '[]')::text, (select count(*) from noted), (select count(*) from told);
