-- What is needed so that each process can have a role of its own (`sereno migrate --roles`): who may only make jobs makes
-- no jobs of ours, and a day is as open as the table that it belongs to.
-- Functions run as whoever calls them until those roles are made; then a few run as the owner.

-- Whoever asked, also where a function runs as its owner.
create function sereno.caller() returns text
    language sql stable as $$ select coalesce(nullif(current_setting('role'), 'none'), session_user::text) $$;

-- Tasks of ours do what their arguments say; only those may ask for them who can write jobs anyway. The login counts,
-- because it is the one thing that a session cannot change.
create function sereno.check_task(task text) returns void
    language plpgsql stable as $$
begin
    -- Their names are the same in every schema, and this file is not.
    if starts_with(task, 'sereno' || '.') and not has_table_privilege(session_user, 'sereno.jobs', 'insert') then
        raise exception 'task "%" is not for % to ask for', left(task, 60), session_user
            using errcode = 'insufficient_privilege', hint = 'Name a task of your own application.';
    end if;
end $$;

-- What the code declares is the code's.
create function sereno.check_schedule(key text) returns void
    language plpgsql stable as $$
begin
    if not has_table_privilege(session_user, 'sereno.schedules', 'insert')
       and exists (select from sereno.schedules s where s.key = check_schedule.key and s.declared_by is not null) then
        raise exception 'schedule "%" is declared in the code, and not for % to change', left(key, 60), session_user
            using errcode = 'insufficient_privilege', hint = 'Choose another key.';
    end if;
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
    moment timestamptz := sereno.clock_now();
    due    timestamptz := coalesce(run_at, moment);
    made   bigint;
    keys   jsonb := sereno.keys_for(task, queue, tenant, args);
begin
    perform sereno.check_task(task);
    if not sereno.are_tags(tags) then
        raise exception 'task "%": tags are at most 50 texts of 1 to 200 characters', left(task, 60)
            using errcode = 'invalid_parameter_value', hint = 'What is longer belongs into the arguments.';
    end if;
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

-- For psql and other languages; the rule is read by the scheduler, and one that makes no sense is parked.
create or replace function sereno.schedule(
    key text,
    task text,
    args jsonb default '{}',
    cron text default null,
    every interval default null,
    at timestamptz default null,
    daily text default null,
    tz text default 'UTC',
    queue text default 'default',
    priority integer default 5,
    tenant text default null,
    unique_key text default null,
    missed text default 'latest',
    overlap text default 'skip'
) returns bigint
    language plpgsql as $$
declare
    moment timestamptz := sereno.clock_now();
    rule jsonb;
    found_id bigint;
begin
    if num_nonnulls(cron, every, at, daily) <> 1 then
        raise exception 'schedule %: say when with exactly one of cron, every, at and daily', key
            using errcode = 'invalid_parameter_value';
    end if;
    perform sereno.check_task(task), sereno.check_schedule(key);
    rule := case
        when cron is not null then jsonb_build_object('kind', 'cron', 'expression', cron, 'tz', tz)
        when daily is not null then jsonb_build_object('kind', 'daily', 'at', daily, 'tz', tz)
        when at is not null then jsonb_build_object('kind', 'once', 'at', to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
        else jsonb_build_object('kind', 'every', 'interval', extract(epoch from every))
    end;
    insert into sereno.schedules as s (key, task, args, rule, queue, priority, tenant, unique_key, missed, overlap,
                                       templated, planned, next_run_at, created_at, changed_at, changed_by)
    values (schedule.key, schedule.task, schedule.args, rule, schedule.queue, schedule.priority, schedule.tenant,
            schedule.unique_key, schedule.missed, schedule.overlap,
            concat(schedule.args::text, schedule.unique_key) ~ '\{(fire|date|key|tenant)[:}]', false, moment, moment,
            moment, sereno.caller())
    on conflict on constraint schedules_key do update
        set task = excluded.task, args = excluded.args, queue = excluded.queue, priority = excluded.priority,
            tenant = excluded.tenant, unique_key = excluded.unique_key, missed = excluded.missed,
            overlap = excluded.overlap, templated = excluded.templated,
            rule = case when sereno.keeps_rule(s.rule, excluded.rule) then s.rule else excluded.rule end,
            shift = case when sereno.keeps_rule(s.rule, excluded.rule) then s.shift else 0 end,
            changed_at = moment, changed_by = excluded.changed_by,
            note = case when s.state in ('parked', 'finished') then null else s.note end,
            state = case when s.state in ('paused', 'disabled') then s.state else 'enabled' end,
            planned = s.planned and s.state = 'enabled'
                      and (sereno.keeps_rule(s.rule, excluded.rule) or coalesce(s.paused_until > moment, false)),
            next_run_at = case
                when s.state in ('paused', 'disabled') then null
                -- Said again, or asleep for a while: as it was.
                when s.state = 'enabled'
                     and (sereno.keeps_rule(s.rule, excluded.rule) or s.paused_until > moment) then s.next_run_at
                else moment end
        where (s.task, s.args, s.queue, s.priority, s.tenant, s.unique_key, s.missed, s.overlap)
              is distinct from (excluded.task, excluded.args, excluded.queue, excluded.priority, excluded.tenant,
                                excluded.unique_key, excluded.missed, excluded.overlap)
           or not sereno.keeps_rule(s.rule, excluded.rule)
    returning id into found_id;
    if found_id is null then
        -- Said again, and nothing is new.
        select id into found_id from sereno.schedules s where s.key = schedule.key;
    else
        perform sereno.wake_scheduler(moment);
    end if;
    return found_id;
end $$;

create or replace function sereno.unschedule(key text) returns boolean
    language plpgsql as $$
begin
    perform sereno.check_schedule(key);
    delete from sereno.schedules where schedules.key = unschedule.key;
    return found;
end $$;

-- Tells people of an event, in the transaction of whoever calls; the second one of the same name gets the id of the first.
create or replace function sereno.notify(
    type text,
    payload jsonb,
    "to" text[] default null,
    subject text default null,
    key text default null,
    tenant text default null,
    at timestamptz default null,
    ttl interval default null
) returns bigint
    language plpgsql as $$
declare
    said      jsonb := (select definition from sereno.event_types where name = notify.type);
    due       timestamptz := coalesce(at, sereno.clock_now());
    seconds   double precision := coalesce(extract(epoch from ttl), (said ->> 'ttl')::double precision);
    -- Without a name of its own it is told apart from every other.
    own_key   text := case when subject is null and key is null then replace(gen_random_uuid()::text, '-', '') else key end;
    gathered  text;
    number    bigint;
begin
    perform sereno.check_event(type, payload, "to", at, ttl, said);
    perform sereno.check_text(given.name, given.value)
    from (values ('subject', subject), ('key', key), ('tenant', tenant)) as given(name, value);
    if said ? 'digest' then
        gathered := sereno.digest_key(type, said -> 'digest' ->> 'key', payload);
    end if;
    loop
        insert into sereno.events (type, tenant, subject, key, category, payload, channels, audience, critical, opt_in, due_at,
                                   expires_at, note, steps, throttle_most, throttle_seconds, digest, digest_seconds, unchecked)
        values (notify.type, coalesce(notify.tenant, ''), notify.subject, own_key, said ->> 'category', notify.payload,
                array(select jsonb_array_elements_text(said -> 'channels')),
                (select array_agg(distinct name collate "C") from unnest("to") as named(name)),
                coalesce((said ->> 'critical')::boolean, false), coalesce((said ->> 'opt_in')::boolean, false), due,
                due + make_interval(secs => seconds), said ->> 'note', said -> 'steps',
                (said -> 'throttle' ->> 'most')::integer, (said -> 'throttle' ->> 'seconds')::double precision,
                gathered, case when gathered is not null then (said -> 'digest' ->> 'seconds')::double precision end, true)
        on conflict on constraint events_once do nothing
        returning id into number;
        if number is not null then
            -- Not by `enqueue`, where not everybody may ask for a task of ours.
            perform sereno.enqueue_keyed(jsonb_build_array(jsonb_build_object(
                'task', 'sereno' || '.fan_out', 'args', jsonb_build_object('event', number), 'queue', 'notifications',
                'run_at', at, 'tenant', tenant, 'by_rules', true)));
            return number;
        end if;
        select id into number from sereno.events e
        where e.type = notify.type and e.tenant = coalesce(notify.tenant, '')
          and e.subject is not distinct from notify.subject and e.key is not distinct from own_key;
        -- Deleted in between: the name is free again, try once more.
        exit when number is not null;
    end loop;
    return number;
end $$;

-- A day of its own, as open to readers as its parent.
create or replace function sereno.make_day_partition(parent text, moment text, day date) returns boolean
    language plpgsql set lock_timeout = '1s' as $$
declare
    name text := parent || '_' || to_char(day, 'YYYYMMDD');
    from_at timestamptz := day::timestamp at time zone 'UTC';
    to_at timestamptz := (day + 1)::timestamp at time zone 'UTC';
begin
    -- Two workers may get here together.
    perform pg_advisory_xact_lock(hashtext('sereno.' || parent));
    if to_regclass(format('sereno.%I', name)) is not null then
        return false;
    end if;
    -- Whoever writes waits here, before its rows are given a partition. A row that already stood before the default one
    -- would be refused there: it belongs to this day now.
    execute format('lock table sereno.%I in share row exclusive mode', parent);
    execute format('create table sereno.%I (like sereno.%I including all)', name, parent);
    perform sereno.share_reading(format('sereno.%I', parent)::regclass, format('sereno.%I', name)::regclass);
    -- What the default partition took meanwhile moves in first; attaching would be refused otherwise.
    execute format('with moved as (delete from sereno.%I where %I >= %L and %I < %L returning *) '
                   'insert into sereno.%I select * from moved',
                   parent || '_default', moment, from_at, moment, to_at, name);
    execute format('alter table sereno.%I attach partition sereno.%I for values from (%L) to (%L)',
                   parent, name, from_at, to_at);
    return true;
end $$;

