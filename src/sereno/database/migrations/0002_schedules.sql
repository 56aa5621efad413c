-- Schedules: the rules that say when to make which job, their fires, and the leader election of the schedulers.

-- A schedule: its rule, the job that it makes, its policies and its results. `key` has collation C, because in any
-- other collation a pattern such as 'menu:*' would scan every key. `last_base_at`: the last instant of the rule
-- before the spread shifted it, so that it does not fire again when the spread changes.
-- Every fire writes a new entry into both unique indexes, anywhere in them: fillfactor 75 leaves space and avoids
-- page splits. Updates prune the dead versions that fires leave on their page, so a vacuum at 10 % of the rows is
-- enough.
create table sereno.schedules (
    id               bigint generated always as identity primary key with (fillfactor = 75),
    -- Null when no fire is planned: paused, disabled, parked, finished, or waiting for a run to end.
    next_run_at      timestamptz,
    -- False when written by SQL or changed by an operator: the scheduler then computes the first instant and fires
    -- nothing.
    planned          boolean not null default true,
    state            text not null default 'enabled'
                     check (state in ('enabled', 'paused', 'disabled', 'parked', 'finished')),
    key              text collate "C" not null,
    rule             jsonb not null check (jsonb_typeof(rule) = 'object'),
    -- Offset of the fire inside its spread, in microseconds.
    shift            bigint not null default 0,

    -- The job that each fire makes.
    task             text not null,
    queue            text not null default 'default',
    priority         smallint not null default 5 check (priority between 0 and 9),
    tenant           text,
    trace            text,
    tags             text[] constraint schedules_tags check (tags is null or sereno.are_tags(tags)),
    args             sereno.arguments not null default '{}',
    -- True when the arguments or the unique key contain fields of the fire, such as {date}.
    templated        boolean not null default false,
    unique_key       text,
    unique_for       double precision,
    unique_forever   boolean,
    on_conflict      text check (on_conflict in ('keep', 'replace')),
    expires_after    double precision,

    -- Policies for missed fires, overlapping runs and repeated failures.
    missed           text not null default 'latest' check (missed in ('skip', 'latest', 'all')),
    missed_limit     integer not null default 100 check (missed_limit > 0),
    missed_window    double precision not null default 86400,
    max_lateness     double precision,
    overlap          text not null default 'skip' check (overlap in ('skip', 'allow', 'queue_one', 'cancel_previous')),
    disable_after    integer check (disable_after > 0),
    starts_at        timestamptz,
    ends_at          timestamptz,
    max_fires        bigint check (max_fires > 0),

    -- Pause, note and last change.
    paused_until     timestamptz,
    note             text,
    changed_by       text,
    -- The service whose code declares the schedule; null when it was created at run time.
    declared_by      text,
    created_at       timestamptz not null default sereno.now(),
    changed_at       timestamptz not null default sereno.now(),

    -- Results of the fires so far.
    last_planned_at  timestamptz,
    last_fired_at    timestamptz,
    last_job_id      bigint,
    last_finished_at timestamptz,
    last_state       text,
    last_error       text,
    -- A fire that waits for the run before it to end.
    held_at          timestamptz,
    held_for         integer not null default 1,
    held_free        boolean not null default false,
    fired            bigint not null default 0,
    missed_count     bigint not null default 0,
    succeeded        bigint not null default 0,
    failed           bigint not null default 0,
    failed_in_row    integer not null default 0,
    skipped          jsonb not null default '{}',
    -- Histogram of lateness: bucket n counts the fires that were up to 2^n ms late.
    lateness         integer[] not null default '{0}',
    last_base_at     timestamptz,
    -- What a worker must have to run its jobs, copied to each of them.
    requires         jsonb,

    constraint schedules_key unique (key) with (fillfactor = 75),
    constraint schedules_next check (next_run_at is null or state = 'enabled')
) with (
    fillfactor = 80,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_scale_factor = 0.1
);

-- The only index that a tick scans, so its cost depends on the number of due schedules, not of all schedules.
create index schedules_due on sereno.schedules (next_run_at) where next_run_at is not null;
-- Enabled, but with no fire planned until a run ends.
create index schedules_waiting on sereno.schedules (id) where state = 'enabled' and next_run_at is null;
create index schedules_held on sereno.schedules (id) where held_at is not null;
-- Held fires whose run before has ended. A tick reads only these, however many are held.
create index schedules_free on sereno.schedules (id) where held_at is not null and held_free;
create index schedules_tenant on sereno.schedules (tenant, key) where tenant is not null;
create index schedules_declared on sereno.schedules (declared_by) where declared_by is not null;
create index schedules_trouble on sereno.schedules (state, id) where state in ('parked', 'disabled');

-- Declared schedules that could not be stored when their service last started, for `sereno doctor`.
create table sereno.refused_declarations (
    service     text not null,
    key         text not null,
    problem     text not null,
    -- When the declaration was first refused for this problem.
    refused_at  timestamptz not null,
    primary key (service, key)
);

-- One instant of one schedule: it made a job, or was skipped for a reason. The primary key makes it unique, however
-- many schedulers run. The time comes first in the key, so that new rows are added at the end of the index.
create table sereno.fires (
    planned_at   timestamptz not null,
    schedule_id  bigint not null,
    fired_at     timestamptz not null,
    job_id       bigint,
    -- The number of fires that this one represents: itself and the missed ones before it.
    stands_for   integer not null default 1,
    reason       text,
    constraint fires_pkey primary key (planned_at, schedule_id)
) partition by range (planned_at);

-- Takes rows of days that have no partition yet; maintenance moves them later.
create table sereno.fires_default partition of sereno.fires default;

create index fires_skipped on sereno.fires (schedule_id, planned_at) where reason is not null;

-- Ends of scheduled runs, which the scheduler reads and deletes. Append-only, so that settling a job never waits for
-- a schedule that an operator is changing.
create table sereno.schedule_ends (
    id           bigint generated always as identity primary key,
    schedule_id  bigint not null,
    job_id       bigint not null,
    state        text not null,
    finished_at  timestamptz not null,
    error        text
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Leader election. Any number of schedulers may run; one leads, so that the others can sleep. The fence rises with
-- every new leader, so that an old leader's later writes about itself have no effect.
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
    -- The version of the time zone data that planned instants were computed with.
    zones          text
) with (fillfactor = 50);

-- Drop a day of fires.
create function sereno.drop_fires_partition(name text) returns void
    language plpgsql set lock_timeout = '1s' as $$
begin
    if name !~ '^fires_[0-9]{8}$' then
        raise exception '% is not a partition of the fires', name;
    end if;
    execute format('drop table sereno.%I', name);
end $$;

-- Maintenance creates the partitions after the first week.
select sereno.make_day_partition('fires', 'planned_at', day::date)
from generate_series(date_trunc('day', sereno.now() at time zone 'UTC'),
                     date_trunc('day', sereno.now() at time zone 'UTC') + interval '7 days', interval '1 day') as day;

-- Return the seconds if they are finite, else null: SQL also has infinity and NaN.
create function sereno.finite(seconds double precision) returns double precision
    language sql immutable parallel safe
    begin atomic
        select case when seconds > '-infinity' and seconds < 'infinity' then seconds end;
    end;

-- Return the interval of a rule if it is a number of seconds within the range of dates, else null: only Python parses
-- intervals in words.
create function sereno.interval_of(rule jsonb) returns interval
    language sql immutable parallel safe
    begin atomic
        select case when jsonb_typeof(rule -> 'interval') = 'number' and (rule ->> 'interval')::numeric between 0 and 1e11
                    then (rule ->> 'interval')::double precision * interval '1 second' end;
    end;

-- Return whether two rules are equal apart from their spread.
create function sereno.keeps_rule(before jsonb, after jsonb) returns boolean
    language sql immutable parallel safe
    begin atomic
        select before - 'spread' = after - 'spread';
    end;

-- Wake the leading scheduler by NOTIFY if a schedule is due within 10 seconds. The leader's planned wake-up is not
-- considered: it may poll between this statement and the commit, and then sleep for its few seconds.
create function sereno.wake_scheduler(due timestamptz) returns void
    language plpgsql as $$
begin
    if due < sereno.now() + interval '10 seconds' and coalesce(current_setting('sereno.notify', true), '') <> 'off'
       and exists (select from sereno.leases where name = 'scheduler') then
        perform pg_notify('sereno.schedule', '');
    end if;
end $$;

-- Return whether a schedule that was disabled only because the code no longer declared it is declared again.
create function sereno.returns_to_work(state text, note text, wanted text) returns boolean
    language sql immutable parallel safe
    begin atomic
        -- Never null, also for a schedule without a note: the callers negate it.
        select state = 'disabled' and note is not distinct from 'left the code' and wanted = 'enabled';
    end;

-- Refuse changes to a schedule that the code declares to logins that cannot insert schedules anyway.
create function sereno.check_schedule(key text) returns void
    language plpgsql stable as $$
begin
    if not has_table_privilege(session_user, 'sereno.schedules', 'insert')
       and exists (select from sereno.schedules s where s.key = check_schedule.key and s.declared_by is not null) then
        raise exception 'role % may not change schedule "%", which the code declares', session_user, left(key, 60)
            using errcode = 'insufficient_privilege', hint = 'Choose another key.';
    end if;
end $$;

-- Create or change a schedule from psql or another language; return its id.
--   select sereno.schedule('reconcile:r42', 'reconcile', '{"account": "r42"}', cron => '0 3 * * *',
--                          tz => 'America/Sao_Paulo');
-- The scheduler parses the rule; it parks a schedule with an invalid rule, and the note says why.
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
        raise exception 'schedule %: give exactly one of cron, every, at and daily', key
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
                -- Same rule as before, or paused for a while: the planned fire stays.
                when s.state = 'enabled'
                     and (sereno.keeps_rule(s.rule, excluded.rule) or s.paused_until > moment) then s.next_run_at
                else moment end
        where (s.task, s.args, s.queue, s.priority, s.tenant, s.unique_key, s.missed, s.overlap)
              is distinct from (excluded.task, excluded.args, excluded.queue, excluded.priority, excluded.tenant,
                                excluded.unique_key, excluded.missed, excluded.overlap)
           or not sereno.keeps_rule(s.rule, excluded.rule)
    returning id into found_id;
    if found_id is null then
        -- The schedule exists and nothing has changed.
        select id into found_id from sereno.schedules s where s.key = schedule.key;
    else
        perform sereno.wake_scheduler(moment);
    end if;
    return found_id;
end $$;

-- Delete a schedule; return whether it existed.
create function sereno.unschedule(key text) returns boolean
    language plpgsql as $$
begin
    perform sereno.check_schedule(key);
    delete from sereno.schedules where schedules.key = unschedule.key;
    return found;
end $$;

-- Comments of public functions; a function without one is internal. docs/reference/sql-functions.md is made of them.
comment on function sereno.schedule is
    'Create or change a schedule in the current transaction, and return its id. Give exactly one of cron, every, '
    'at and daily. The scheduler reads the rule; an invalid one is parked, and its note has the reason. missed: '
    'skip, latest or all. overlap: skip, allow, queue_one or cancel_previous.';
comment on function sereno.unschedule is
    'Remove a schedule, and return whether there was one. Its jobs stay.';
