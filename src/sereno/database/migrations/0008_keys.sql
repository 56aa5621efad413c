-- The keys of jobs that are enqueued without the code: by SQL, and by schedules.

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

-- The same, never too long for an index: the program refuses what is cut short here.
create function sereno.fill(template text, task text, queue text, tenant text, args jsonb) returns text
    language sql immutable as $$
    select case when octet_length(filled) > 600 or length(filled) > 500 then left(filled, 100) || md5(filled) else filled end
    from sereno.fill_in(template, task, queue, tenant, args) as filled
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

-- As before, with the keys of limits. A key that is null in JSON is no key.
create or replace function sereno.enqueue_keyed(jobs jsonb) returns jsonb
    language plpgsql as $$
declare
    moment   timestamptz := sereno.clock_now();
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
