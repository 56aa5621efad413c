-- Schedules that are said again stay as they are, from SQL too; ticks that wait for nobody; patterns by index anywhere.

-- In any other collation, a pattern such as 'menu:*' would walk over every key.
alter table sereno.schedules alter column key type text collate "C";

-- Every fire writes a new entry into these, wherever the schedule stands: room for it spares splits. And what fires left
-- behind is pruned as pages are met: a whole vacuum is worth its price less often.
alter index sereno.schedules_pkey set (fillfactor = 75);
alter index sereno.schedules_key set (fillfactor = 75);
alter table sereno.schedules set (autovacuum_vacuum_scale_factor = 0.1);

-- Fires that waited and are free: however many wait, only these are looked at.
create index schedules_free on sereno.schedules (id) where held_at is not null and held_free;

-- What the rule named last, before its spread moved it: it does not come again at another place in another spread.
alter table sereno.schedules add column last_base_at timestamptz;

-- Seconds that a person or a program can count; SQL knows others.
create function sereno.finite(seconds double precision) returns double precision
    language sql immutable parallel safe
    begin atomic
        select case when seconds > '-infinity' and seconds < 'infinity' then seconds end;
    end;

-- The interval of a rule, where it is a number of seconds that a date can bear; words are read by Python alone.
create function sereno.interval_of(rule jsonb) returns interval
    language sql immutable parallel safe
    begin atomic
        select case when jsonb_typeof(rule -> 'interval') = 'number' and (rule ->> 'interval')::numeric between 0 and 1e11
                    then (rule ->> 'interval')::double precision * interval '1 second' end;
    end;

-- The same rule, whatever spread it was given since.
create function sereno.keeps_rule(before jsonb, after jsonb) returns boolean
    language sql immutable parallel safe
    begin atomic
        select before - 'spread' = after - 'spread';
    end;

-- Jobs with unique keys, unless one of them is in somebody's open transaction: then null, and nothing is written.
-- Patience in seconds.
create function sereno.try_enqueue_keyed(jobs jsonb, patience double precision) returns jsonb
    language plpgsql as $$
declare
    before text := current_setting('lock_timeout');
    answers jsonb;
begin
    perform set_config('lock_timeout', greatest(1, round(patience * 1000))::bigint::text, true);
    answers := sereno.enqueue_keyed(jobs);
    perform set_config('lock_timeout', before, true);
    return answers;
exception when lock_not_available then
    return null;
end $$;

-- For psql and other languages:
--   select sereno.schedule('reconcile:r42', 'reconcile', '{"account": "r42"}', cron => '0 3 * * *', tz => 'America/Sao_Paulo');
-- The rule is read by the scheduler; one that makes no sense is parked, and its note says why.
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
    moment timestamptz := sereno.now();
    rule jsonb;
    found_id bigint;
begin
    if num_nonnulls(cron, every, at, daily) <> 1 then
        raise exception 'schedule %: say when with exactly one of cron, every, at and daily', key
            using errcode = 'invalid_parameter_value';
    end if;
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
            moment, current_user)
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
                      and (sereno.keeps_rule(s.rule, excluded.rule) or s.paused_until > moment),
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
