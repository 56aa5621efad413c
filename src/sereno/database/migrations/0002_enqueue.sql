-- Enqueue from SQL: psql, a trigger, another language; and the keyed path of the Python client.

-- Tells the sleeping workers of a queue; nothing to do when nobody sleeps, because a busy worker looks by itself.
-- A job due within seconds wakes the promoters (an empty payload) instead of waiting for their next look.
-- `set sereno.notify = off` silences it: a transaction that has notified cannot be prepared (two-phase commit).
create function sereno.tell(queue text, due_in double precision) returns void
    language plpgsql as $$
begin
    if due_in <= 10 and coalesce(current_setting('sereno.notify', true), '') <> 'off'
       and exists (select from sereno.sessions s where s.idle and s.queues ? tell.queue) then
        perform pg_notify('sereno.ready', case when due_in <= 0 then tell.queue else '' end);
    end if;
end $$;

-- Jobs with a unique key. One JSON value in; out, in the same order, {"id", "created"} per job.
-- Keys are met in one order, so that two callers never wait for each other in a ring.
-- A key is unique within its task and tenant. The index decides, never a look-up:
--   while live   the partial unique index on jobs
--   for a period, or for ever   a row in unique_keys that outlives the job
-- on_conflict: keep (return the existing one), replace (its arguments and time, while it waits), raise (the caller does).
create function sereno.enqueue_keyed(jobs jsonb) returns jsonb
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
            unique_for double precision, unique_forever boolean)) with ordinality
        order by task, unique_key, tenant, ordinality
    loop
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
                                         created_at, unique_key, state, ready_seq)
                values (new_id, wanted.task, coalesce(wanted.args, '{}'), coalesce(wanted.queue, 'default'),
                        coalesce(wanted.priority, 5), due, wanted.tenant, wanted.expires_at, wanted.tags,
                        wanted.trace, moment, wanted.unique_key,
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
                    ready_seq = case when due <= moment then nextval('sereno.ready_seq') end
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
create function sereno.enqueue(
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
begin
    if unique_key is not null then
        return (sereno.enqueue_keyed(jsonb_build_array(jsonb_build_object(
            'task', task, 'args', args, 'queue', queue, 'priority', priority, 'run_at', run_at, 'tenant', tenant,
            'unique_key', unique_key, 'expires_at', expires_at, 'tags', tags, 'trace', trace))) -> 0 ->> 'id')::bigint;
    end if;
    insert into sereno.jobs (task, args, queue, priority, run_at, tenant, expires_at, tags, trace, created_at,
                             state, ready_seq)
    values (enqueue.task, enqueue.args, enqueue.queue, enqueue.priority, due, enqueue.tenant, enqueue.expires_at,
            enqueue.tags, enqueue.trace, moment,
            case when due <= moment then 'ready' else 'scheduled' end,
            case when due <= moment then nextval('sereno.ready_seq') end)
    returning id into made;
    perform sereno.tell(enqueue.queue, extract(epoch from due - moment));
    return made;
end $$;
