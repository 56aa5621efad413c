-- Jobs that wait for other jobs: dependencies (one job after others) and groups (one job after all jobs of a set).
--
-- A waiting job has the number of its open predecessors in `pending`. The settlement of a predecessor lowers it, in
-- its own transaction, and makes the job ready at zero: see end_links. Predecessors have lower ids than the jobs that
-- wait for them, so there are no cycles, and rows are locked in the order of their ids.

-- Open dependencies: `successor` waits for `predecessor`. `to_check`: the predecessor was running or waiting when the
-- dependency was made, so its settlement may not know of it; check_links looks at it again.
create table sereno.dependencies (
    predecessor  bigint not null,
    successor    bigint not null,
    to_check     boolean not null default false,
    primary key (predecessor, successor)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

create index dependencies_to_check on sereno.dependencies (predecessor) where to_check;
create index dependencies_successor on sereno.dependencies (successor);

-- Jobs that were deleted, for a while: of a predecessor that is in no table, it tells whether it was deleted, or succeeded
-- without history. Its settlement may not have known of the dependency.
create table sereno.deleted_jobs (
    id          bigint primary key,
    deleted_at  timestamptz not null default sereno.now()
);

-- A set of jobs. `then_job`: the job that waits for all of them. `on_dead`: what a dead job means for that one (see
-- effect_of). `total`: how many jobs it was created with.
create table sereno.groups (
    id            bigint generated always as identity primary key,
    name          text,
    tenant        text,
    total         bigint not null default 0,
    then_job      bigint,
    on_dead       text not null default 'wait' check (on_dead in ('wait', 'continue', 'cancel')),
    -- A dead job cancels the rest: maintenance has not cancelled all of them yet.
    cancelling    boolean not null default false,
    created_at    timestamptz not null default sereno.now()
);

create index groups_cancelling on sereno.groups (id) where cancelling;

-- Jobs of a group that are still to come, in 16 rows: one counter for all would be locked by every settlement. The
-- part of a job follows from its id, so that neighbours, which one worker claims and settles together, share a part.
create table sereno.group_parts (
    group_id   bigint not null,
    part       smallint not null,
    remaining  bigint not null,
    -- When the end of a job was counted last.
    counted_at timestamptz,
    primary key (group_id, part)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create function sereno.group_part(job_id bigint) returns smallint
    language sql immutable parallel safe
    begin atomic
        select ((job_id >> 10) & 15)::smallint;
    end;

-- Return whether the end of a predecessor counts for the job that waits for it, breaks it (it is cancelled too), or
-- neither: a dead predecessor is waited for until it is retried.
create function sereno.effect_of(state text, on_dead text) returns text
    language sql immutable parallel safe as $$
    select case when state = 'succeeded' or on_dead = 'continue' then 'counts'
                when state = 'dead' and on_dead = 'wait' then 'waits'
                else 'breaks' end
$$;

-- Make jobs wait that this transaction has just written: {"id", "after": [ids], "on_dead"} for each. `calls`: it has
-- called the others, and is woken however they end; it must not be waited for by one of them. A predecessor
-- that is ready or scheduled is marked, so that the worker that runs it knows. SKIP LOCKED, and never a lock on a
-- running or waiting one: the settlements of workers must not wait for the caller's transaction. Those are checked
-- later; a worker that runs one is notified.
create function sereno.make_waiting(jobs jsonb) returns void
    language plpgsql as $$
declare
    wanted    record;
    unknown   bigint;
    open_ids  bigint[];
    sure      bigint[];
begin
    for wanted in
        select id, coalesce(calls, false) as calls, case when calls then 'continue' else coalesce(on_dead, 'wait') end as on_dead,
               array(select distinct unnest(after) order by 1) as after
        from jsonb_to_recordset(jobs) as given(id bigint, after bigint[], on_dead text, calls boolean) order by id
    loop
        -- Live predecessors, and finished ones whose end does not count.
        select coalesce(array_agg(p) filter (where live is not null or sereno.effect_of(past, wanted.on_dead) <> 'counts'), '{}'),
               min(p) filter (where not wanted.calls and (live is null and past is null or p >= wanted.id))
        into open_ids, unknown
        from unnest(wanted.after) as p
        cross join lateral (select (select state from sereno.jobs where jobs.id = p) as live,
                                   (select state from sereno.history where history.id = p
                                    order by finished_at desc limit 1) as past) as found;
        if unknown is not null then
            raise exception 'after: job % does not exist', unknown using errcode = 'invalid_parameter_value',
                hint = 'Its transaction is not committed, it was deleted, or it succeeded and its task has history=False.';
        end if;
        if wanted.calls and exists (
            with recursive above(id) as (
                select predecessor from sereno.dependencies where successor = any(wanted.after)
                union
                select d.predecessor from above join sereno.dependencies d on d.successor = above.id
            )
            select from above where id = wanted.id)
        then
            raise exception 'job % waits for a job that waits for it', wanted.id using errcode = 'invalid_parameter_value';
        end if;
        sure := array(select p.id from sereno.jobs p where p.id = any(open_ids) and p.state in ('ready', 'scheduled')
                      order by p.id for update skip locked);
        update sereno.jobs set has_successors = true where id = any(sure) and has_successors is not true;
        insert into sereno.dependencies (predecessor, successor, to_check)
        select p, wanted.id, p <> all(sure) from unnest(open_ids) as p
        on conflict (predecessor, successor) do update set to_check = true;
        update sereno.jobs
        set links = coalesce(links, '{}') || case when wanted.calls then jsonb_build_object('calls', wanted.after)
                                                  else jsonb_build_object('after', wanted.after, 'on_dead', wanted.on_dead) end,
            pending = nullif(coalesce(pending, 0) + cardinality(open_ids), 0),
            state = case when cardinality(open_ids) > 0 then 'waiting' else state end
        where id = wanted.id;
        perform pg_notify('sereno.linked', p.id::text)
        from sereno.jobs p
        where p.id = any(open_ids) and p.state = 'running'
          and coalesce(current_setting('sereno.notify', true), '') <> 'off';
    end loop;
end $$;

-- Complete a group whose jobs this transaction has inserted: count them, and let `then_id` wait for them.
create function sereno.complete_group(made_group bigint, then_id bigint) returns bigint
    language plpgsql as $$
declare
    parts   integer;
    number  bigint;
begin
    insert into sereno.group_parts (group_id, part, remaining)
    select made_group, sereno.group_part(id), count(*) from sereno.jobs where group_id = made_group group by 2;
    select count(*), coalesce(sum(remaining), 0) into parts, number from sereno.group_parts where group_id = made_group;
    update sereno.groups set total = number, then_job = then_id where id = made_group;
    update sereno.jobs
    set links = coalesce(links, '{}') || jsonb_build_object('of', made_group),
        pending = nullif(coalesce(pending, 0) + parts, 0),
        state = case when coalesce(pending, 0) + parts > 0 then 'waiting' else state end
    where id = then_id;
    return number;
end $$;

-- Count successes of jobs of groups: `numbers`, by group and part. It is the usual end of such a job, and end_links, which
-- reads each job, takes five times as long. Return false and change nothing if a job may have to be continued: a part has no
-- jobs left then, or a job waits for one of these (`ids`). The locks are those of end_links.
create function sereno.count_members(ids bigint[], group_ids bigint[], parts smallint[], numbers bigint[]) returns boolean
    language plpgsql as $$
declare
    counted  bigint;
begin
    if exists (select from sereno.dependencies where predecessor = any(ids)) then
        return false;
    end if;
    with fewer as materialized (
        select * from unnest(group_ids, parts, numbers) as f(group_id, part, number)
    ),
    locked as materialized (
        select group_id, part, remaining from sereno.group_parts
        where group_id = any(group_ids) and part = any(parts)
        order by group_id, part for update
    ),
    open as materialized (
        select fewer.* from fewer join locked using (group_id, part) where locked.remaining > fewer.number
    ),
    lowered as (
        update sereno.group_parts p set remaining = p.remaining - open.number, counted_at = sereno.now()
        from open
        where p.group_id = any(group_ids) and p.group_id = open.group_id and p.part = open.part
          and (select count(*) from open) = cardinality(group_ids)
        returning 1
    )
    select count(*) into counted from lowered;
    return counted > 0;
end $$;

-- Continue what waited for jobs that have just ended, in the same transaction: their ids, groups (0: none) and states.
-- Return whether jobs became ready. `settled_by`: the session that has settled them, and that claims these itself.
-- Called as a statement of its own, so that it sees what was committed while the settlement waited for a lock. The row
-- of a dependency is deleted by one transaction only, which then counts it. Jobs that are cancelled here may have
-- successors too, so it works level by level. Lookups are by array and by subquery: joins would be planned as scans of
-- whole tables with the settings of a worker's connection.
create function sereno.end_links(ids bigint[], group_ids bigint[], states text[], settled_by bigint default null)
    returns boolean
    language plpgsql as $$
declare
    moment         timestamptz := sereno.now();
    is_ready       boolean := false;
    is_cancelling  boolean;
    counts         bigint[];
    breaks         bigint[];
    reasons        jsonb;
    freed          record;
begin
    while cardinality(ids) > 0 loop
        with ended as materialized (
            select * from unnest(ids, group_ids, states) as e(id, group_id, state)
        ),
        summed as materialized (
            select group_id, sereno.group_part(id) as part, state, count(*) as number, min(id) as id
            from ended where group_id > 0 group by 1, 2, 3
        ),
        known as materialized (
            select id, then_job, on_dead from sereno.groups where id = any(array(select group_id from summed))
        ),
        member as materialized (
            select summed.id, state, group_id, part, number, then_job, on_dead, sereno.effect_of(state, on_dead) as effect
            from summed join known on known.id = group_id
        ),
        fewer as materialized (
            select group_id, part, then_job, sum(number) as number from member where effect = 'counts' group by 1, 2, 3
        ),
        locked as materialized (
            select group_id, part from sereno.group_parts
            where group_id = any(array(select group_id from fewer)) and part = any(array(select part from fewer))
            order by group_id, part for update
        ),
        counted as (
            update sereno.group_parts p set remaining = p.remaining - fewer.number, counted_at = moment
            from fewer join locked using (group_id, part)
            where p.group_id = any(array(select group_id from locked))
              and p.group_id = fewer.group_id and p.part = fewer.part
            returning fewer.then_job, p.remaining
        ),
        stopped as (
            update sereno.groups set cancelling = true
            where id = any(array(select group_id from member where effect = 'breaks' and on_dead = 'cancel'))
            returning id
        ),
        edge as materialized (
            select d.predecessor, d.successor, ended.state,
                   sereno.effect_of(ended.state, (select case when links -> 'calls' @> to_jsonb(d.predecessor) then 'continue'
                                                              else links ->> 'on_dead' end
                                                  from sereno.jobs where jobs.id = d.successor)) as effect
            from sereno.dependencies d join ended on ended.id = d.predecessor
            where d.predecessor = any(ids)
        ),
        over as (
            delete from sereno.dependencies d using edge
            where d.predecessor = any(ids)
              and d.predecessor = edge.predecessor and d.successor = edge.successor and edge.effect <> 'waits'
            returning edge.predecessor, edge.successor, edge.state, edge.effect
        ),
        broken as (
            select predecessor, successor, state from over where effect = 'breaks'
            union all
            select id, then_job, state from member where effect = 'breaks' and then_job is not null
        )
        select array(select successor from over where effect = 'counts'
                     union all
                     select then_job from counted where remaining = 0 and then_job is not null),
               array(select distinct successor from broken),
               (select jsonb_object_agg(successor, reason)
                from (select successor, format('job %s, which it waits for, %s', min(predecessor),
                                               case when min(state) = 'dead' then 'is dead' else 'was cancelled' end) as reason
                      from broken group by successor) as why),
               exists (select from stopped)
        into counts, breaks, reasons, is_cancelling;
        if is_cancelling and coalesce(current_setting('sereno.notify', true), '') <> 'off' then
            -- No job has this id: maintenance looks at once.
            perform pg_notify('sereno.linked', '0');
        end if;
        ids := '{}';
        exit when cardinality(counts) = 0 and cardinality(breaks) = 0;

        perform from sereno.jobs where id = any(counts || breaks) and state = 'waiting' order by id for update;
        for freed in
            with number as materialized (
                select successor, count(*)::integer as number from unnest(counts) as successor group by 1
            ),
            moved as (
                update sereno.jobs
                set pending = nullif(jobs.pending - number.number, 0),
                    state = case when jobs.pending > number.number then 'waiting'
                                 when jobs.run_at <= moment then 'ready' else 'scheduled' end,
                    ready_seq = case when jobs.pending <= number.number and jobs.run_at <= moment
                                     then nextval('sereno.ready_seq') end,
                    has_successors = jobs.has_successors
                                     or (select true from sereno.dependencies where predecessor = jobs.id limit 1)
                from number
                where jobs.id = any(counts) and jobs.id = number.successor and jobs.state = 'waiting'
                  and jobs.id <> all(breaks)
                returning jobs.queue, jobs.state, jobs.run_at
            )
            select queue, min(extract(epoch from run_at - moment))::double precision as due_in
            from moved where state <> 'waiting' group by queue, state
        loop
            perform sereno.notify_ready(freed.queue, greatest(0, freed.due_in), settled_by);
            is_ready := is_ready or freed.due_in <= 0;
        end loop;
        exit when cardinality(breaks) = 0;

        with gone as (
            delete from sereno.jobs where id = any(breaks) and state = 'waiting' returning *
        ),
        recorded as (
            insert into sereno.history (
                id, finished_at, run_at, created_at, expires_at, attempt, failures, crashes, snoozes, releases, priority, state,
                queue, task, tenant, unique_key, trace, tags, args, schedule_id, planned_at, stands_for, keys, requires, group_id,
                links, reason)
            select id, moment, run_at, created_at, expires_at, attempt, failures, crashes, snoozes, releases, priority,
                   'cancelled', queue, task, tenant, unique_key, trace, tags, args, schedule_id, planned_at, stands_for, keys,
                   requires, group_id, links, reasons ->> id::text
            from gone
        ),
        ended as (
            insert into sereno.schedule_ends (schedule_id, job_id, state, finished_at, error)
            select schedule_id, id, 'cancelled', moment, reasons ->> id::text from gone where schedule_id is not null
        ),
        forgotten as (delete from sereno.steps where job_id = any(array(select id from gone))),
        cleared as (delete from sereno.progress where job_id = any(array(select id from gone)))
        select array_agg(id), array_agg(coalesce(group_id, 0)), array_agg('cancelled'::text)
        into ids, group_ids, states from gone;
        perform sereno.notify_finished(ids) where exists (select from sereno.waiters);
    end loop;
    return is_ready;
end $$;

-- Check a page of dependencies that the settlement of their predecessor may not know of; return whether there are any.
-- A predecessor that has ended: continue. One that waits: mark it, so that the worker that runs it knows. One that runs:
-- its worker was notified, and otherwise a later call finds it ended. No dependency is locked in advance: a settlement
-- that holds a job may wait for one.
create function sereno.check_links(most integer default 1000) returns boolean
    language plpgsql as $$
declare
    checked      bigint[] := array(select predecessor from sereno.dependencies where to_check order by predecessor limit most);
    marked       bigint[];
    gone_ids     bigint[];
    gone_states  text[];
begin
    if cardinality(checked) = 0 then
        return false;
    end if;
    marked := array(select id from sereno.jobs
                    where id = any(checked) and state in ('ready', 'scheduled', 'waiting') order by id for update skip locked);
    update sereno.jobs set has_successors = true where id = any(marked) and has_successors is not true;
    update sereno.dependencies set to_check = false where predecessor = any(marked) and to_check;
    -- A predecessor that is in no table was deleted, and what waits for it is cancelled; or it succeeded without history; or,
    -- where queues are carried, it may be in a message: then the order could not be kept.
    select array_agg(id), array_agg(state) into gone_ids, gone_states
    from (select id, coalesce((select history.state from sereno.history where history.id = p.id
                               order by finished_at desc limit 1),
                              (select 'cancelled' from sereno.deleted_jobs where deleted_jobs.id = p.id),
                              (select 'cancelled' from sereno.carrier_states limit 1),
                              'succeeded') as state
          from unnest(checked) as p(id)
          where (select true from sereno.jobs where jobs.id = p.id) is null
          group by id order by id) as gone;
    update sereno.dependencies set to_check = false where predecessor = any(gone_ids) and to_check;
    if gone_ids is not null then
        perform sereno.end_links(gone_ids, array_fill(0::bigint, array[cardinality(gone_ids)]), gone_states);
    end if;
    return true;
end $$;

-- A dead letter is deleted, or requeued: what waits for it, or for its group, is checked again.
create function sereno.recheck_links() returns trigger
    language plpgsql as $$
begin
    update sereno.dependencies set to_check = true where predecessor = old.id and not to_check;
    insert into sereno.dependencies (predecessor, successor, to_check)
    select old.id, then_job, true from sereno.groups
    where id = old.group_id and then_job is not null and on_dead = 'wait'
      and not exists (select from sereno.jobs where jobs.id = old.id)
      and exists (select from sereno.jobs where jobs.id = then_job and state = 'waiting')
    on conflict do nothing;
    insert into sereno.deleted_jobs (id)
    select old.id
    where exists (select from sereno.dependencies where predecessor = old.id)
      and not exists (select from sereno.jobs where jobs.id = old.id)
    on conflict do nothing;
    return null;
end $$;

create trigger recheck_links after delete on sereno.history_dead
    for each row execute function sereno.recheck_links();

-- What a job returned. `task` and `result` are null if it left no row in the history.
create type sereno.job_result as (id bigint, task text, result jsonb);

-- Results of the jobs that a job with these links waited for: of its predecessors, or of the jobs of its group that left a
-- row in the history.
create function sereno.results_of(links jsonb) returns setof sereno.job_result
    language sql stable as $$
    with named as materialized (
        select value::bigint as id from jsonb_array_elements_text(coalesce(results_of.links -> 'after', '[]'))
    )
    select named.id, past.task, past.result
    from named
    left join (select id, task, result from sereno.history where id = any(array(select id from named))) as past
        on past.id = named.id
    union all
    select id, task, result from sereno.history where group_id = (results_of.links ->> 'of')::bigint
$$;

-- The same for a job that a worker in another language runs, by id. No rows if the session no longer holds the job.
create function sereno.read_results(session bigint, id bigint, attempt integer) returns setof sereno.job_result
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    own     sereno.sessions := sereno.own_session(session);
    waited  jsonb;
begin
    select links into waited from sereno.jobs
    where jobs.id = read_results.id and jobs.attempt = read_results.attempt and session_id = session
      and own.state = 'alive' and own.lease_until > sereno.clock_now();
    return query select found.id, found.task, found.result from sereno.results_of(waited) as found order by found.id;
end $$;

revoke execute on function sereno.read_results(bigint, bigint, integer) from public;
