-- Limits: how many at once, how many a second, in which order, and whose turn it is.
--
-- A job without a limit is as it was. A job with one carries its keys, and belongs to a lane: all jobs of a queue with
-- the same keys. A lane passes through limiters, one for each limit and key; a limiter knows its tokens and whom it let in.
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

-- A number to find a lane, a limiter or an order by. Two that meet in one of 2^64 would share a limit, never exceed one.
create function sereno.lane_of(queue text, keys jsonb) returns bigint
    language sql immutable parallel safe as $$ select hashtextextended(jsonb_build_array(queue, keys)::text, 1) $$;
create function sereno.limiter_of(limit_name text, key text) returns bigint
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
-- Workers ask with every claim whether anything was changed.
create index limits_changed on sereno.limits (changed_at);

-- One limit for one key. `held`: the jobs that it let in; those of them that still run hold its slots, so a slot that
-- nobody gave back is free as soon as its job is no longer running. An order is a limiter of one slot without a limit.
create table sereno.limiters (
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

create index limiters_look on sereno.limiters (look_at) where look_at is not null;
create index limiters_limit on sereno.limiters (limit_name);

create table sereno.lanes (
    id              bigint primary key,
    queue           text not null,
    keys            jsonb not null,
    limiters           bigint[] not null,
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
    -- Jobs below the floor were passed over: paused, or unknown to the worker that claimed.
    passed_over     boolean not null default false,
    served_at       timestamptz not null default sereno.now()
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

create index lanes_open on sereno.lanes (queue, band, turn) where has_work and waits_for is null;
create index lanes_waiting on sereno.lanes (waits_for, turn) where has_work and waits_for is not null;
-- Which fair keys have lanes. Lanes without one are not in it; neither column changes, so updates stay heap-only.
create index lanes_fair on sereno.lanes (queue, fair) where fair is not null;
create index lanes_idle on sereno.lanes (served_at) where not has_work;
create index lanes_passed_over on sereno.lanes (id) where passed_over;

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
    weight      double precision not null check (weight between 0.001 and 1000000),
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

-- Numbers of these limits changed: whoever waits for them is looked at again. A limiter that a claim holds is tried again for a
-- moment, never waited for: the claim may be in the same program, and could not go on.
create function sereno.look_again(names text[]) returns void
    language plpgsql as $$
declare
    left_over integer;
begin
    for attempt in 1..20 loop
        with waited as materialized (
            select id from sereno.limiters
            where limit_name = any(names) and look_at is not null and (attempt = 1 or look_at > sereno.now())
        ),
        locked as materialized (
            select id from sereno.limiters where id = any(array(select id from waited)) order by id for update skip locked
        ),
        looked as (
            update sereno.limiters set look_at = sereno.now() where id = any(array(select id from locked)) returning id
        )
        select (select count(*) from waited) - (select count(*) from looked) into left_over;
        exit when left_over = 0;
        perform pg_sleep(0.01);
    end loop;
end $$;
