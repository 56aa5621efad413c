-- Jobs: live jobs, attempts, the history of finished jobs, the sessions that run them, and enqueueing from SQL.
-- The schema name is written literally; migrating into another schema replaces the token "sereno." when the file is
-- loaded.

create schema if not exists sereno;

-- The applied migrations; an applied file is never edited, which the checksum proves.
create table sereno.migrations (
    number      integer primary key,
    name        text not null,
    checksum    text not null,
    applied_at  timestamptz not null default pg_catalog.now()
);

-- Clock offset for tests: one row shifts the only clock that the queries use. Empty in production.
create table sereno.clock (
    one_row  boolean primary key default true check (one_row),
    ahead    interval not null
);

-- Return the start of the statement, not of the transaction, so that a delay requested late in a long transaction is
-- not shortened. Stable, so that it can bound an index scan.
create function sereno.now() returns timestamptz
    language sql stable parallel safe
    begin atomic
        select pg_catalog.statement_timestamp() + coalesce((select ahead from sereno.clock), interval '0');
    end;

-- Return the same clock at the moment of the call, for functions that may be called late in a long statement, such as
-- a DO block or a caller's procedure. Volatile: read it once into a variable, never inside a condition.
create function sereno.clock_now() returns timestamptz
    language sql volatile parallel safe
    begin atomic
        select pg_catalog.clock_timestamp() + coalesce((select ahead from sereno.clock), interval '0');
    end;

-- Notify processes that wait for an instant when a test has moved the clock, instead of leaving them to their next
-- poll.
create function sereno.notify_clock() returns trigger
    language plpgsql as $$
begin
    perform pg_notify('sereno.clock', '');
    return null;
end $$;

create trigger clock_moved after insert or update or delete on sereno.clock
    for each statement execute function sereno.notify_clock();

-- Return an instant in microseconds since the epoch. PostgreSQL and Python exchange instants as whole microseconds,
-- which are exact on both sides.
create function sereno.micros(at timestamptz) returns bigint
    language sql stable parallel safe
    begin atomic
        select (extract(epoch from at) * 1000000)::bigint;
    end;

-- Return the instant of a number of microseconds since the epoch.
create function sereno.instant(micros bigint) returns timestamptz
    language sql immutable parallel safe
    begin atomic
        select timestamptz 'epoch' + micros * interval '1 microsecond';
    end;

-- Return the interval of a number of microseconds.
create function sereno.span(micros bigint) returns interval
    language sql immutable parallel safe
    begin atomic
        select micros * interval '1 microsecond';
    end;

-- One run of one worker process. The end is final: alive -> closed | dead.
-- `opened_by`: the role that opened the session by SQL; null for a worker in Python. `lease`: seconds, for sessions
-- opened by SQL. `look_back_at`: until then, claims start at the floors (see learn_floors). `passed_over`: where
-- claims continue behind jobs that they cannot take (see pass_over); null when nothing was passed over. `release`: of
-- its code. `capabilities`: versions of its tasks and ids of its keys (see sereno.meets); null for none.
create table sereno.sessions (
    id           bigint generated always as identity primary key,
    state        text not null default 'alive' check (state in ('alive', 'closed', 'dead')),
    idle         boolean not null default false,
    host         text not null,
    pid          integer not null,
    version      text not null,
    queues       jsonb not null,
    tasks        text[] not null,
    floors       jsonb not null default '{}',
    started_at   timestamptz not null default sereno.now(),
    seen_at      timestamptz not null default sereno.now(),
    lease_until  timestamptz not null,
    ended_at     timestamptz,
    -- Reported by the session for the rescue of its jobs should it die: ids of claimed jobs that it had not begun,
    -- and the suspects that ran alone, with their attempt.
    waiting      bigint[] not null default '{}',
    suspects     jsonb not null default '{}',
    opened_by    text,
    lease        double precision,
    look_back_at timestamptz,
    passed_over  jsonb,
    release      text,
    capabilities jsonb
) with (fillfactor = 50);

create index sessions_alive on sereno.sessions (id) where state = 'alive';
-- Read by every enqueue: is there an idle session to wake?
create index sessions_idle on sereno.sessions (id) where idle;

-- Return whether a session with these capabilities can run a job of this task with these requirements.
--   requires      {"version": 2, "key": "2026b"}: at least this version of the task; the key of its encrypted arguments
--   capabilities  {"versions": {"export": 2}, "keys": ["2026b", "2026a"]}: a task that is not named has version 1
-- In plpgsql: a claim passes over 100,000 such jobs in 0.1 s; a function in SQL, which is not inlined there because its
-- argument is a subquery, takes 0.5 s.
create function sereno.meets(requires jsonb, task text, capabilities jsonb) returns boolean
    language plpgsql immutable parallel safe as $$
begin
    return coalesce((requires ->> 'version')::integer, 1) <= coalesce((capabilities -> 'versions' ->> task)::integer, 1)
           and (not requires ? 'key' or coalesce(capabilities -> 'keys' ? (requires ->> 'key'), false));
end $$;

-- Assigned whenever a job becomes ready, so that a claim can start where the last one stopped (the claim floor).
create sequence sereno.ready_seq;

-- Return whether tags are within bounds. Lists show them with every job: at most 50, of at most 200 characters.
create function sereno.are_tags(tags text[]) returns boolean
    language sql immutable as $$
    select cardinality(tags) <= 50
           and not exists (select from unnest(tags) as tag where tag is null or length(tag) not between 1 and 200)
$$;

-- JSON nested at most 100 levels deep, which every parser accepts. A domain and not a check of the table, because a
-- check is evaluated again whenever a row is claimed or moved. A value below 800 bytes cannot be that deep (each
-- level takes 8) unless it was compressed elsewhere, so it is not searched.
create domain sereno.bounded_json as jsonb
    constraint nested_at_most_100_deep check (
        (pg_column_size(value) < 800 and pg_column_compression(value) is null)
        or not jsonb_path_exists(value, 'strict $.**{100} ? (@.type() == "array" || @.type() == "object")'));

-- The arguments of a job: a domain for the same reason.
create domain sereno.arguments as sereno.bounded_json
    constraint arguments_are_an_object check (jsonb_typeof(value) = 'object');

-- Live jobs only; finished jobs are moved to the history. `schedule_id`, `planned_at`, `stands_for`: the schedule and
-- fire that made the job. `lane`, `order_id`, `keys`: the lane and order of a job with limits, and the keys that they
-- are derived from; null for a plain job. `requires`: what a worker must have to run it (see sereno.meets). `group_id`: the
-- group that it belongs to. `pending`: how many predecessors a waiting job still waits for. `has_successors`: jobs wait
-- for it. `links`: its predecessors (`after`, `on_dead`), or the group whose end it waits for (`of`). See 0011_groups.sql.
create table sereno.jobs (
    id                bigint generated by default as identity primary key,
    ready_seq         bigint,
    session_id        bigint,
    run_at            timestamptz not null default sereno.now(),
    created_at        timestamptz not null default sereno.now(),
    claimed_at        timestamptz,
    expires_at        timestamptz,
    attempt           integer not null default 0,
    failures          integer not null default 0,
    crashes           integer not null default 0,
    snoozes           integer not null default 0,
    releases          integer not null default 0,
    priority          smallint not null default 5,
    cancel_requested  boolean not null default false,
    state             text not null,
    queue             text not null default 'default',
    task              text not null,
    tenant            text,
    unique_key        text,
    trace             text,
    tags              text[],
    args              sereno.arguments not null default '{}',
    schedule_id       bigint,
    planned_at        timestamptz,
    stands_for        integer,
    lane              bigint,
    order_id          bigint,
    keys              jsonb,
    group_id          bigint,
    pending           integer,
    has_successors    boolean,
    links             jsonb,
    requires          jsonb,
    constraint jobs_state check (
        (state = 'running' and session_id is not null and attempt > 0)
        or (state = 'ready' and session_id is null and ready_seq is not null)
        or (state = 'scheduled' and session_id is null)
        or (state = 'waiting' and session_id is null and pending > 0)),
    constraint jobs_priority check (priority between 0 and 9),
    constraint jobs_dates check (run_at > '1900-01-01' and run_at < '10000-01-01'),
    constraint jobs_tags check (tags is null or sereno.are_tags(tags)),
    constraint jobs_lane_keys check ((lane is null) = (keys is null))
) with (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

create index jobs_ready on sereno.jobs (queue, priority, ready_seq) where state = 'ready' and lane is null;
create index jobs_waiting on sereno.jobs (queue) where state = 'waiting';
create index jobs_group on sereno.jobs (group_id, id) where group_id is not null;
create index jobs_scheduled on sereno.jobs (run_at) where state = 'scheduled';
create index jobs_running on sereno.jobs (session_id) where state = 'running';
create unique index jobs_unique on sereno.jobs (task, unique_key, tenant) nulls not distinct where unique_key is not null;
create index jobs_schedule on sereno.jobs (schedule_id) where schedule_id is not null;
create index jobs_lane on sereno.jobs (queue, lane, priority, ready_seq) where state = 'ready' and lane is not null;
-- The first job of an order is its head, whatever its state: while it waits for a retry, the jobs behind it wait too.
create index jobs_in_order on sereno.jobs (order_id, id) where order_id is not null;
-- Rows without a trace are not in these trace indexes. The hash stands for the text: it is a third as long, and SQL
-- callers may write texts that are too long for an index.
create index jobs_trace on sereno.jobs (hashtext(trace), id) where trace is not null;

-- Return the queues that have ready jobs, by skipping from queue to queue along both indexes.
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

-- Processes that wait for jobs to finish, each until it says so again. While there is one, settlements notify them.
create table sereno.waiters (
    id     bigint generated always as identity primary key,
    until  timestamptz not null
);

-- Tell the processes that wait which jobs have finished. The real clock: a test that moves sereno's does not end waits.
create function sereno.notify_finished(ids bigint[]) returns void
    language sql volatile as $$
    select pg_notify('sereno.finished', string_agg(id::text, ','))
    from unnest(ids) with ordinality as finished(id, place)
    where coalesce(current_setting('sereno.notify', true), '') <> 'off'
      and exists (select from sereno.waiters where until > pg_catalog.clock_timestamp())
    group by (place - 1) / 300
$$;

-- A unique key that outlives its job: for a period, or for ever.
create table sereno.unique_keys (
    task        text not null,
    unique_key  text not null,
    tenant      text,
    job_id      bigint not null,
    until       timestamptz not null,
    constraint unique_keys_key unique nulls not distinct (task, unique_key, tenant)
);

create index unique_keys_until on sereno.unique_keys (until) where until < 'infinity';

-- All attempts but the last, which is the history row itself. Partitioned by day like the history. `partition_at`: the
-- instant that assigns the row to a day: when it was written, or, for a job that outlived that day, when the job
-- ended (see jobs/attempt_partitions.sql). The claim fence uses each attempt number of a job once; no unique key can
-- enforce that across partitions, so `sereno verify` checks it.
create table sereno.attempts (
    job_id         bigint not null,
    number         integer not null,
    session_id     bigint,
    started_at     timestamptz not null,
    finished_at    timestamptz not null,
    outcome        text not null check (
        outcome in ('retry', 'snooze', 'release', 'crash', 'dead', 'cancelled', 'succeeded')),
    reason         text,
    error_type     text,
    error_message  text,
    traceback      text,
    partition_at      timestamptz not null default sereno.now(),
    fingerprint    text,
    primary key (job_id, number, partition_at)
) partition by range (partition_at);

-- Takes rows of days that have no partition yet; maintenance moves them later.
create table sereno.attempts_default partition of sereno.attempts default;

create index attempts_fingerprint on sereno.attempts (fingerprint, job_id) where fingerprint is not null;

-- Results of steps, retained between the attempts of a job. `position`: the place in the order of the handler's steps;
-- null for a step that ran beside others. `pending`: steps that were asked for before and had no result yet.
-- `is_cursor`: how far an iteration is; only that is updated.
create table sereno.steps (
    job_id     bigint not null,
    name       text not null,
    attempt    integer not null,
    result     jsonb,
    done_at    timestamptz not null default sereno.now(),
    position   integer,
    pending    text[],
    is_cursor  boolean not null default false,
    primary key (job_id, name)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- The progress that a running job reports.
create table sereno.progress (
    job_id      bigint primary key,
    attempt     integer not null,
    fraction    double precision not null check (fraction between 0 and 1),
    note        text,
    updated_at  timestamptz not null default sereno.now()
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Finished jobs. `fingerprint`: the group of the error that ended the job (see error_groups); null for a success.
-- `result`: what the task returned; null if it keeps no result.
create table sereno.history (
    id             bigint not null,
    session_id     bigint,
    finished_at    timestamptz not null,
    started_at     timestamptz,
    run_at         timestamptz not null,
    created_at     timestamptz not null,
    expires_at     timestamptz,
    attempt        integer not null,
    failures       integer not null,
    crashes        integer not null,
    snoozes        integer not null,
    releases       integer not null,
    priority       smallint not null,
    state          text not null,
    queue          text not null,
    task           text not null,
    tenant         text,
    unique_key     text,
    trace          text,
    tags           text[],
    args           jsonb not null,
    reason         text,
    error_type     text,
    error_message  text,
    traceback      text,
    schedule_id    bigint,
    planned_at     timestamptz,
    stands_for     integer,
    keys           jsonb,
    fingerprint    text,
    result         jsonb,
    group_id       bigint,
    links          jsonb,
    requires       jsonb
) partition by list (state);

create index history_id on sereno.history (id);

-- Dead letters stay until an operator retries or deletes them; the rest is dropped or archived by the day.
create table sereno.history_dead partition of sereno.history for values in ('dead');

-- Succeeded and cancelled jobs, one partition per day.
create table sereno.history_done partition of sereno.history for values in ('succeeded', 'cancelled')
    partition by range (finished_at);

-- Takes rows of days that have no partition yet, so that settling never fails when maintenance did not run;
-- maintenance moves them later.
create table sereno.history_done_default partition of sereno.history_done default;

create index history_group on sereno.history (group_id, id) where group_id is not null;
create index history_schedule on sereno.history (schedule_id, finished_at) where schedule_id is not null;
create index history_trace on sereno.history (hashtext(trace), id) where trace is not null;
-- Dead letters that block the jobs behind them in an order.
create index history_dead_blocks on sereno.history_dead (queue, (keys ->> 'order')) where keys ? 'blocks';
-- For alerts: recent dead letters, without reading all of them.
create index history_dead_finished on sereno.history_dead (finished_at);
-- Dead letters only: a cancelled job did not end by a failure.
create index history_dead_fingerprint on sereno.history_dead (fingerprint, id) where fingerprint is not null;

-- Queues, tasks and tenants that an operator has paused.
create table sereno.pauses (
    kind       text not null check (kind in ('queue', 'task', 'tenant')),
    name       text not null,
    paused_at  timestamptz not null default sereno.now(),
    paused_by  text not null,
    note       text,
    -- Paused with a token of that tenant, which may therefore resume it. Not derived from paused_by, a name that any
    -- caller may choose.
    by_tenant  boolean not null default false check (not by_tenant or kind = 'tenant'),
    primary key (kind, name)
);

-- Every change made by an operator, written in the transaction that makes it. `login`: the database login that wrote
-- the row. No role may set it, so a worker cannot forge a row of the server.
create table sereno.audit (
    id       bigint generated always as identity primary key,
    at       timestamptz not null default sereno.now(),
    actor    text not null,
    action   text not null,
    subject  text not null,
    detail   jsonb not null default '{}',
    login    text not null default session_user
);

-- The changes of one subject, newest first.
create index audit_subject on sereno.audit (subject, id desc);

-- When each maintenance duty last ran, so that one worker of many runs it, and the position of a duty that takes
-- several steps.
create table sereno.duties (
    name     text primary key,
    done_at  timestamptz not null,
    place    text[]
);

-- Grant SELECT on the target to every role that has it on the source.
create function sereno.share_reading(source regclass, target regclass) returns void
    language plpgsql as $$
declare
    reader text;
begin
    for reader in
        select distinct case grantee when 0 then 'public' else quote_ident(pg_get_userbyid(grantee)) end
        from pg_class cross join lateral aclexplode(relacl) as given
        where pg_class.oid = source and privilege_type = 'SELECT' and grantee <> relowner
    loop
        execute format('grant select on %s to %s', target, reader);
    end loop;
end $$;

-- Create the partition of a day, with the read privileges of its parent; return false if it exists. Partitions are
-- created ahead of time and dropped whole. Both need a lock that a long read of the table delays, and every writer
-- would queue behind the wait, so these functions give up after one second.
create function sereno.make_day_partition(parent text, moment text, day date) returns boolean
    language plpgsql set lock_timeout = '1s' as $$
declare
    name text := parent || '_' || to_char(day, 'YYYYMMDD');
    from_at timestamptz := day::timestamp at time zone 'UTC';
    to_at timestamptz := (day + 1)::timestamp at time zone 'UTC';
begin
    -- Two workers may call this at the same time: the second one waits, then finds the partition.
    perform pg_advisory_xact_lock(hashtext('sereno.' || parent));
    if to_regclass(format('sereno.%I', name)) is not null then
        return false;
    end if;
    -- Writers wait here, before their rows are routed to a partition. A row that was already routed to the default
    -- partition would be refused there once this day is attached.
    execute format('lock table sereno.%I in share row exclusive mode', parent);
    execute format('create table sereno.%I (like sereno.%I including all)', name, parent);
    perform sereno.share_reading(format('sereno.%I', parent)::regclass, format('sereno.%I', name)::regclass);
    -- Rows of this day in the default partition are moved first; ATTACH would be refused otherwise.
    execute format('with moved as (delete from sereno.%I where %I >= %L and %I < %L returning *) '
                   'insert into sereno.%I select * from moved',
                   parent || '_default', moment, from_at, moment, to_at, name);
    execute format('alter table sereno.%I attach partition sereno.%I for values from (%L) to (%L)',
                   parent, name, from_at, to_at);
    return true;
end $$;

-- Create the history partition of a day.
create function sereno.make_history_partition(day date) returns boolean
    language sql as $$ select sereno.make_day_partition('history_done', 'finished_at', day) $$;

-- Drop a day of history.
create function sereno.drop_history_partition(name text) returns void
    language plpgsql set lock_timeout = '1s' as $$
begin
    if name !~ '^history_done_[0-9]{8}$' then
        raise exception '% is not a partition of the history', name;
    end if;
    execute format('drop table sereno.%I', name);
end $$;

-- Drop a day of attempts, after the same day of history: until then the jobs of these attempts are shown.
create function sereno.drop_attempts_partition(name text) returns void
    language plpgsql set lock_timeout = '1s' as $$
begin
    if name !~ '^attempts_[0-9]{8}$' then
        raise exception '% is not a partition of the attempts', name;
    end if;
    if to_regclass(format('sereno.%I', 'history_done_' || right(name, 8))) is not null then
        raise exception 'the history of % has to be dropped first', name using errcode = 'object_in_use';
    end if;
    execute format('drop table sereno.%I', name);
end $$;

-- Maintenance creates the partitions after the first week.
select sereno.make_history_partition(day::date)
from generate_series(date_trunc('day', sereno.now() at time zone 'UTC'),
                     date_trunc('day', sereno.now() at time zone 'UTC') + interval '7 days', interval '1 day') as day;

select sereno.make_day_partition('attempts', 'partition_at', day::date)
from generate_series(date_trunc('day', sereno.now() at time zone 'UTC'),
                     date_trunc('day', sereno.now() at time zone 'UTC') + interval '7 days', interval '1 day') as day;

-- Return the role of the caller, also inside a function that runs as its owner.
create function sereno.caller() returns text
    language sql stable as $$ select coalesce(nullif(current_setting('role'), 'none'), session_user::text) $$;

-- Refuse sereno's own tasks, whose arguments decide what they do, to logins that cannot insert jobs anyway. The login
-- is checked, because it is the one identity that a session cannot change.
create function sereno.check_task(task text) returns void
    language plpgsql stable as $$
begin
    -- Concatenated, because loading this file into another schema replaces the token "sereno."; the task names stay.
    if starts_with(task, 'sereno' || '.') and not has_table_privilege(session_user, 'sereno.jobs', 'insert') then
        raise exception 'role % may not enqueue task "%"', session_user, left(task, 60)
            using errcode = 'insufficient_privilege', hint = 'Name a task of your own application.';
    end if;
end $$;

-- Wake the idle workers of a queue by NOTIFY; nothing to do when none is idle, because a busy worker polls by itself.
-- If a job is due within 10 seconds, the promoters are told in how many, so that it does not wait for their next poll.
-- `set sereno.notify = off` disables it: a transaction that has notified cannot be prepared (two-phase commit).
-- `settled_by`: a session that claims at once after this transaction, and so needs no notification of ready jobs.
create function sereno.notify_ready(queue text, due_in double precision, settled_by bigint default null) returns void
    language plpgsql as $$
begin
    if due_in <= 10 and coalesce(current_setting('sereno.notify', true), '') <> 'off'
       and exists (select from sereno.sessions s where s.idle and s.queues ? notify_ready.queue
                                                   and (due_in > 0 or s.id is distinct from settled_by)) then
        perform pg_notify(case when due_in <= 0 then 'sereno.ready' else 'sereno.due' end,
                          case when due_in <= 0 then notify_ready.queue
                               else round(due_in::numeric, 3) || ' ' || notify_ready.queue end);
    end if;
end $$;

-- Enqueue jobs that have a unique key: an array of jobs in; out, in the same order, {"id", "created"} per job.
-- Keys are locked in one order, so that two callers never deadlock.
-- A key is unique within its task and tenant. An index enforces it, never a query:
--   while the job is live        the partial unique index on jobs
--   for a period, or for ever    a row in unique_keys that outlives the job
-- on_conflict: keep (return the existing job), replace (its arguments and time, while it waits), raise (done by the
-- caller). `keys`: limit, order and fair keys; a JSON null means none. `by_rules`: derive them from key_rules.
create function sereno.enqueue_keyed(jobs jsonb) returns jsonb
    language plpgsql as $$
declare
    moment   timestamptz := sereno.clock_now();
    wanted   record;
    due      timestamptz;
    new_id   bigint;
    found_id bigint;
    its_queue text;
    results  jsonb[] := '{}';
begin
    for wanted in
        select * from rows from (jsonb_to_recordset(jobs) as (
            task text, args jsonb, queue text, priority smallint, run_at timestamptz, delay double precision,
            tenant text, expires_at timestamptz, tags text[], trace text, unique_key text, on_conflict text,
            unique_for double precision, unique_forever boolean, keys jsonb, by_rules boolean,
            requires jsonb)) with ordinality
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
                    -- The key expired and was deleted in between: try again.
                    continue when found_id is null;
                end if;
            end if;
            if found_id is null or found_id = new_id then
                insert into sereno.jobs (id, task, args, queue, priority, run_at, tenant, expires_at, tags, trace,
                                         created_at, unique_key, keys, requires, lane, order_id, state, ready_seq)
                values (new_id, wanted.task, coalesce(wanted.args, '{}'), coalesce(wanted.queue, 'default'),
                        coalesce(wanted.priority, 5), due, wanted.tenant, wanted.expires_at, wanted.tags,
                        wanted.trace, moment, wanted.unique_key, wanted.keys, wanted.requires,
                        case when wanted.keys is not null
                             then sereno.lane_of(coalesce(wanted.queue, 'default'), wanted.keys) end,
                        case when wanted.keys is not null
                             then sereno.order_of(coalesce(wanted.queue, 'default'), wanted.keys) end,
                        case when due <= moment then 'ready' else 'scheduled' end,
                        case when due <= moment then nextval('sereno.ready_seq') end)
                on conflict (task, unique_key, tenant) where unique_key is not null do nothing
                returning id into found_id;
                if found_id = new_id then
                    perform sereno.notify_ready(coalesce(wanted.queue, 'default'), extract(epoch from due - moment));
                    results[wanted.ordinality] := jsonb_build_object('id', new_id, 'created', true);
                    exit;
                end if;
                -- A live job has the key. While it waits, lock it, so that it runs after this transaction commits and
                -- sees its changes. Never lock a running job: its worker, and everything that it settles in the same
                -- batch, would wait for this transaction.
                select id into found_id from sereno.jobs live
                where live.task = wanted.task and live.unique_key = wanted.unique_key
                  and live.tenant is not distinct from wanted.tenant and live.state in ('scheduled', 'ready')
                for update;
                if found_id is null then
                    select id into found_id from sereno.jobs live
                    where live.task = wanted.task and live.unique_key = wanted.unique_key
                      and live.tenant is not distinct from wanted.tenant;
                    -- The job finished in between, so the key is free again: try again.
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
                    keys = wanted.keys, requires = wanted.requires,
                    lane = case when wanted.keys is not null then sereno.lane_of(jobs.queue, wanted.keys) end,
                    order_id = case when wanted.keys is not null then sereno.order_of(jobs.queue, wanted.keys) end
                where id = found_id and state in ('scheduled', 'ready')
                returning queue into its_queue;
                if found then
                    perform sereno.notify_ready(its_queue, extract(epoch from due - moment));
                end if;
            end if;
            results[wanted.ordinality] := jsonb_build_object('id', found_id, 'created', false);
            exit;
        end loop;
    end loop;
    return to_jsonb(results);
end $$;

-- Enqueue jobs with unique keys, or return null and write nothing when an open transaction holds one of them for
-- longer than `timeout` seconds.
create function sereno.try_enqueue_keyed(jobs jsonb, timeout double precision) returns jsonb
    language plpgsql as $$
declare
    before text := current_setting('lock_timeout');
    results jsonb;
begin
    perform set_config('lock_timeout', greatest(1, round(timeout * 1000))::bigint::text, true);
    results := sereno.enqueue_keyed(jobs);
    perform set_config('lock_timeout', before, true);
    return results;
exception when lock_not_available then
    return null;
end $$;

-- Enqueue a job from psql, a trigger or another language; return its id.
--   select sereno.enqueue('reconcile', '{"account": "r42"}', tenant => 'r42');
-- `requires`: what a worker must have to run it (see sereno.meets).
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
    trace text default null,
    after bigint[] default null,
    on_dead text default 'wait',
    requires jsonb default null
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
            using errcode = 'invalid_parameter_value', hint = 'Put longer texts into the arguments.';
    end if;
    if on_dead not in ('wait', 'continue', 'cancel') then
        raise exception 'task "%": on_dead is wait, continue or cancel, not %', left(task, 60), left(on_dead, 60)
            using errcode = 'invalid_parameter_value';
    end if;
    if requires is not null then
        perform sereno.check_requires(task, requires);
    end if;
    if unique_key is not null and after is not null then
        raise exception 'task "%": after and unique_key exclude each other', left(task, 60)
            using errcode = 'invalid_parameter_value', hint = 'A job that exists already cannot wait for others.';
    end if;
    if unique_key is not null then
        return (sereno.enqueue_keyed(jsonb_build_array(jsonb_build_object(
            'task', task, 'args', args, 'queue', queue, 'priority', priority, 'run_at', run_at, 'tenant', tenant,
            'unique_key', unique_key, 'expires_at', expires_at, 'tags', tags, 'trace', trace,
            'keys', keys, 'requires', nullif(requires, '{}')))) -> 0 ->> 'id')::bigint;
    end if;
    insert into sereno.jobs (task, args, queue, priority, run_at, tenant, expires_at, tags, trace, created_at,
                             keys, requires, lane, order_id, state, ready_seq)
    values (enqueue.task, enqueue.args, enqueue.queue, enqueue.priority, due, enqueue.tenant, enqueue.expires_at,
            enqueue.tags, enqueue.trace, moment, keys, nullif(enqueue.requires, '{}'),
            case when keys is not null then sereno.lane_of(enqueue.queue, keys) end,
            case when keys is not null then sereno.order_of(enqueue.queue, keys) end,
            case when due <= moment then 'ready' else 'scheduled' end,
            case when due <= moment then nextval('sereno.ready_seq') end)
    returning id into made;
    if after is not null then
        perform sereno.make_waiting(jsonb_build_array(jsonb_build_object('id', made, 'after', after, 'on_dead', on_dead)));
    end if;
    perform sereno.notify_ready(enqueue.queue, extract(epoch from due - moment));
    return made;
end $$;

-- Comments of public functions; a function without one is internal. docs/reference/sql-functions.md is made of them.
comment on function sereno.now is
    'The clock that decides: the start of the statement by the clock of PostgreSQL, unless a test has moved it by '
    'a row in sereno.clock.';
comment on function sereno.enqueue is
    'Create a job in the current transaction, and return its id. With a unique_key that a live job has, return '
    'the id of that job. The queue and the priority that the task declares in Python are not known here; its '
    'limits, fair and order keys are. run_at: not before then. expires_at: cancelled if it has not started by '
    'then. after: ids of jobs that it waits for; on_dead: what a dead one of them means, wait, continue or '
    'cancel. requires: what a worker must have, such as {"version": 2} of the task or {"key": "2026b"}.';
