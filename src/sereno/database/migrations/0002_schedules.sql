create table sereno.schedules (
    id               bigint generated always as identity primary key with (fillfactor = 75),
    -- Null when nothing is to come: paused, disabled, parked, finished, or waiting for a run to end.
    next_run_at      timestamptz,
    -- False when written by SQL or changed by hand: the scheduler works out the first instant and fires nothing.
    planned          boolean not null default true,
    state            text not null default 'enabled'
                     check (state in ('enabled', 'paused', 'disabled', 'parked', 'finished')),
    key              text collate "C" not null,
    rule             jsonb not null check (jsonb_typeof(rule) = 'object'),
    -- Where inside its spread it fires, in microseconds.
    shift            bigint not null default 0,

    -- The job that it makes.
    task             text not null,
    queue            text not null default 'default',
    priority         smallint not null default 5 check (priority between 0 and 9),
    tenant           text,
    trace            text,
    tags             text[] constraint schedules_tags check (tags is null or sereno.are_tags(tags)),
    args             sereno.bounded_json not null default '{}' check (jsonb_typeof(args) = 'object'),
    -- The arguments or the unique key name the fire.
    templated        boolean not null default false,
    unique_key       text,
    unique_for       double precision,
    unique_forever   boolean,
    on_conflict      text check (on_conflict in ('keep', 'replace')),
    expires_after    double precision,

    -- What it does when things go wrong.
    missed           text not null default 'latest' check (missed in ('skip', 'latest', 'all')),
    missed_limit     integer not null default 100 check (missed_limit > 0),
    missed_window    double precision not null default 86400,
    max_lateness     double precision,
    overlap          text not null default 'skip' check (overlap in ('skip', 'allow', 'queue_one', 'cancel_previous')),
    disable_after    integer check (disable_after > 0),
    starts_at        timestamptz,
    ends_at          timestamptz,
    max_fires        bigint check (max_fires > 0),

    -- Who stopped it, until when, and why.
    paused_until     timestamptz,
    note             text,
    changed_by       text,
    -- The service whose code declares it; null when it was made at run time.
    declared_by      text,
    created_at       timestamptz not null default sereno.now(),
    changed_at       timestamptz not null default sereno.now(),

    -- How it went.
    last_planned_at  timestamptz,
    last_fired_at    timestamptz,
    last_job_id      bigint,
    last_finished_at timestamptz,
    last_state       text,
    last_error       text,
    -- A fire that waits for the one before it to end.
    held_at          timestamptz,
    held_for         integer not null default 1,
    held_free        boolean not null default false,
    fired            bigint not null default 0,
    missed_count     bigint not null default 0,
    succeeded        bigint not null default 0,
    failed           bigint not null default 0,
    failed_in_row    integer not null default 0,
    skipped          jsonb not null default '{}',
    -- How many fires were how late: bucket n holds those up to 2^n ms.
    lateness         integer[] not null default '{0}',
    last_base_at     timestamptz,

    constraint schedules_key unique (key) with (fillfactor = 75),
    constraint schedules_next check (next_run_at is null or state = 'enabled')
) with (
    fillfactor = 80,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_scale_factor = 0.1
);

-- The only index that a tick walks: its cost follows what is due, not what exists.
create index schedules_due on sereno.schedules (next_run_at) where next_run_at is not null;
-- Enabled, and nothing to come before a run ends.
create index schedules_waiting on sereno.schedules (id) where state = 'enabled' and next_run_at is null;
create index schedules_held on sereno.schedules (id) where held_at is not null;
-- Fires that waited and are free: however many wait, only these are looked at.
create index schedules_free on sereno.schedules (id) where held_at is not null and held_free;
create index schedules_tenant on sereno.schedules (tenant, key) where tenant is not null;
create index schedules_declared on sereno.schedules (declared_by) where declared_by is not null;
create index schedules_trouble on sereno.schedules (state, id) where state in ('parked', 'disabled');

-- Declarations of a service's code that could not be written when it started last, for `sereno doctor`.
create table sereno.refused_declarations (
    service     text not null,
    key         text not null,
    problem     text not null,
    -- When it was first refused for this problem.
    refused_at  timestamptz not null,
    primary key (service, key)
);

-- One instant of one schedule: it made a job, or was skipped for a reason. Unique, whatever schedulers do.
-- Ordered by time first, so that new rows meet the end of the index.
create table sereno.fires (
    planned_at   timestamptz not null,
    schedule_id  bigint not null,
    fired_at     timestamptz not null,
    job_id       bigint,
    -- This one and the missed ones before it that it stands for.
    stands_for   integer not null default 1,
    reason       text,
    constraint fires_pkey primary key (planned_at, schedule_id)
) partition by range (planned_at);

create table sereno.fires_default partition of sereno.fires default;

create index fires_skipped on sereno.fires (schedule_id, planned_at) where reason is not null;

-- Where a run of a schedule ended; the scheduler reads it and forgets it. Append-only, so that nobody who settles jobs
-- ever waits for a schedule that a person is changing.
create table sereno.schedule_ends (
    id           bigint generated always as identity primary key,
    schedule_id  bigint not null,
    job_id       bigint not null,
    state        text not null,
    finished_at  timestamptz not null,
    error        text
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Who keeps time. Any number of schedulers may run; one leads, so that the others can sleep. The fence rises with every
-- new leader: what an old one writes about itself afterwards changes nothing.
create table sereno.leases (
    name           text primary key,
    holder         text not null,
    fence          bigint not null default 1,
    since          timestamptz not null,
    until          timestamptz not null,
    wakes_at       timestamptz,
    ticked_at      timestamptz,
    tick_seconds   double precision,
    tick_fires     integer,
    error          text,
    error_at       timestamptz,
    -- The version of the time zone data that instants were worked out with.
    zones          text
) with (fillfactor = 50);

create function sereno.drop_fires_partition(name text) returns void
    language plpgsql set lock_timeout = '1s' as $$
begin
    if name !~ '^fires_[0-9]{8}$' then
        raise exception '% is not a partition of the fires', name;
    end if;
    execute format('drop table sereno.%I', name);
end $$;

select sereno.make_day_partition('fires', 'planned_at', day::date)
from generate_series(date_trunc('day', sereno.now() at time zone 'UTC'),
                     date_trunc('day', sereno.now() at time zone 'UTC') + interval '7 days', interval '1 day') as day;

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

-- A schedule that becomes due before the leader looks again is worth a word to it. When it looks is not asked: it may
-- look between this and the commit, and go to sleep for its few seconds.
create function sereno.wake_scheduler(due timestamptz) returns void
    language plpgsql as $$
begin
    if due < sereno.now() + interval '10 seconds' and coalesce(current_setting('sereno.notify', true), '') <> 'off'
       and exists (select from sereno.leases where name = 'scheduler') then
        perform pg_notify('sereno.schedule', '');
    end if;
end $$;

-- A schedule that was disabled only because it had left the code, and is in the code again.
create function sereno.returns_to_work(state text, note text, wanted text) returns boolean
    language sql immutable parallel safe
    begin atomic
        -- Never null, also where the schedule has no note: its callers negate it.
        select state = 'disabled' and note is not distinct from 'left the code' and wanted = 'enabled';
    end;

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

-- For psql and other languages:
--   select sereno.schedule('reconcile:r42', 'reconcile', '{"account": "r42"}', cron => '0 3 * * *', tz => 'America/Sao_Paulo');
-- The rule is read by the scheduler; one that makes no sense is parked, and its note says why.
create function sereno.schedule(
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

create function sereno.unschedule(key text) returns boolean
    language plpgsql as $$
begin
    perform sereno.check_schedule(key);
    delete from sereno.schedules where schedules.key = unschedule.key;
    return found;
end $$;
