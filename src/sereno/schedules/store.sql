-- Statements that write and lock schedules. Statements that change several lock them in the order of their
-- keys, as an upsert does, so that two changes cannot deadlock; a tick never waits for a lock.

-- name: known_rules
-- The rules of these keys, to distinguish a changed schedule from an unchanged one.
select coalesce(json_object_agg(key, rule), '{}')::text from sereno.schedules where key = any(%(keys)s);

-- name: upsert
-- Any number of schedules. An unchanged one is not written; a changed rule starts from now and never fires a past
-- instant again; a schedule that a person paused or disabled stays so. Returns the results in the order given.
with clock as materialized (select sereno.now() as now),
item as materialized (
    select * from rows from (jsonb_to_recordset(%(rows)s::text::jsonb) as (
        key text, rule jsonb, shift bigint, next bigint, state text, task text, args jsonb, templated boolean, queue text,
        priority smallint, tenant text, trace text, tags text[], unique_key text, unique_for double precision,
        unique_forever boolean, on_conflict text, expires_after double precision, missed text, missed_limit integer,
        missed_window double precision, max_lateness double precision, overlap text, starts_at timestamptz,
        ends_at timestamptz, max_fires bigint, disable_after integer, note text, requires jsonb)) with ordinality
),
written as (
    insert into sereno.schedules as s (
        key, rule, shift, next_run_at, state, task, args, templated, queue, priority, tenant, trace, tags, unique_key,
        unique_for, unique_forever, on_conflict, expires_after, missed, missed_limit, missed_window, max_lateness,
        overlap, starts_at, ends_at, max_fires, disable_after, note, requires, changed_by, declared_by, created_at, changed_at)
    select key, rule, shift,
           case when coalesce(state, 'enabled') = 'enabled' then sereno.instant(next) end,
           case when coalesce(state, 'enabled') = 'enabled' and next is null then 'finished' else coalesce(state, 'enabled') end,
           task, args, templated, queue, priority, tenant, trace, tags, unique_key, unique_for, unique_forever,
           on_conflict, expires_after, missed, missed_limit, missed_window, max_lateness, overlap, starts_at, ends_at,
           max_fires, disable_after, note, requires, %(actor)s, %(declared_by)s, (select now from clock), (select now from clock)
    from item order by key
    on conflict on constraint schedules_key do update
    set rule = excluded.rule, shift = excluded.shift, task = excluded.task, args = excluded.args,
        templated = excluded.templated, queue = excluded.queue, priority = excluded.priority, tenant = excluded.tenant,
        trace = excluded.trace, tags = excluded.tags, unique_key = excluded.unique_key,
        unique_for = excluded.unique_for, unique_forever = excluded.unique_forever, on_conflict = excluded.on_conflict,
        expires_after = excluded.expires_after, missed = excluded.missed, missed_limit = excluded.missed_limit,
        missed_window = excluded.missed_window, max_lateness = excluded.max_lateness, overlap = excluded.overlap,
        starts_at = excluded.starts_at, ends_at = excluded.ends_at, max_fires = excluded.max_fires,
        disable_after = excluded.disable_after, requires = excluded.requires,
        -- A declared schedule stays declared when another client writes it.
        declared_by = coalesce(excluded.declared_by, s.declared_by),
        -- Who stopped it, and why, matters more than who wrote it last.
        changed_by = case when s.state in ('paused', 'disabled') or s.paused_until > excluded.changed_at then s.changed_by
                          else excluded.changed_by end,
        changed_at = excluded.changed_at,
        note = case when s.state in ('parked', 'finished')
                         or sereno.returns_to_work(s.state, s.note, excluded.state) then null else s.note end,
        state = case when sereno.returns_to_work(s.state, s.note, excluded.state)
                          or excluded.state in ('paused', 'disabled') then excluded.state
                     when s.state in ('paused', 'disabled') then s.state
                     else excluded.state end,
        next_run_at = case
            when excluded.state in ('paused', 'disabled') then null
            when s.state in ('paused', 'disabled') and not sereno.returns_to_work(s.state, s.note, excluded.state) then null
            -- Also if next_run_at is null because it waits for the end of a run.
            when s.state = 'enabled'
                 and (s.paused_until > excluded.changed_at
                      or (s.rule, s.shift, s.starts_at, s.ends_at) is not distinct from
                         (excluded.rule, excluded.shift, excluded.starts_at, excluded.ends_at)) then s.next_run_at
            -- The rule's last instant must not fire again at another offset of its spread: plan right after it.
            when excluded.next_run_at - sereno.span(excluded.shift)
                 <= coalesce(s.last_base_at, s.last_planned_at - sereno.span(s.shift))
                then excluded.next_run_at + interval '1 microsecond'
            else excluded.next_run_at end,
        -- An unchanged rule keeps its plan; otherwise the caller has computed the instant.
        planned = case
            when s.state = 'enabled'
                 and (s.paused_until > excluded.changed_at
                      or (s.rule, s.shift, s.starts_at, s.ends_at) is not distinct from
                         (excluded.rule, excluded.shift, excluded.starts_at, excluded.ends_at)) then s.planned
            else (excluded.next_run_at - sereno.span(excluded.shift)
                  <= coalesce(s.last_base_at, s.last_planned_at - sereno.span(s.shift))) is not true end
    -- A declaration does not change the schedule of another tenant.
    where (%(declared_by)s::text is null or s.declared_by is not null or s.tenant is null
           or s.tenant is not distinct from excluded.tenant)
      and ((s.rule, s.shift, s.task, s.args, s.queue, s.priority, s.tenant, s.trace, s.tags, s.unique_key, s.unique_for,
           s.unique_forever, s.on_conflict, s.expires_after, s.missed, s.missed_limit, s.missed_window, s.max_lateness,
           s.overlap, s.starts_at, s.ends_at, s.max_fires, s.disable_after, s.requires, s.declared_by)
          is distinct from
          (excluded.rule, excluded.shift, excluded.task, excluded.args, excluded.queue, excluded.priority,
           excluded.tenant, excluded.trace, excluded.tags, excluded.unique_key, excluded.unique_for,
           excluded.unique_forever, excluded.on_conflict, excluded.expires_after, excluded.missed,
           excluded.missed_limit, excluded.missed_window, excluded.max_lateness, excluded.overlap, excluded.starts_at,
           excluded.ends_at, excluded.max_fires, excluded.disable_after, excluded.requires, coalesce(excluded.declared_by, s.declared_by))
       or (excluded.state in ('paused', 'disabled') and s.state <> excluded.state)
       or sereno.returns_to_work(s.state, s.note, excluded.state))
    returning id, key, xmax = 0 as created, next_run_at, state
),
notified as (select sereno.wake_scheduler(min(next_run_at)) from written having min(next_run_at) is not null)
select coalesce(json_agg(json_build_array(
           coalesce(written.id, s.id), item.key,
           case when written.created then 'created' when written.id is not null then 'changed'
                when %(declared_by)s::text is not null and s.declared_by is null and s.tenant is not null
                     and s.tenant is distinct from item.tenant then 'taken'
                else 'unchanged' end,
           coalesce(written.state, s.state),
           sereno.micros(case when written.id is null then s.next_run_at else written.next_run_at end))
           order by item.ordinality), '[]')::text,
       (select count(*) from notified),
       -- Another transaction wrote the same row concurrently: not written by us, and too new for our snapshot.
       coalesce(bool_or(written.id is null and s.id is null), false)
from item
left join written on written.key = item.key
left join sereno.schedules s on s.key = item.key;

-- name: retire
-- Disable schedules that this service declared before and no longer declares, with a note.
update sereno.schedules
set state = 'disabled', next_run_at = null, paused_until = null, note = 'left the code', changed_at = sereno.now(), changed_by = %(service)s
where id = any(array(select id from sereno.schedules
                     where declared_by = %(service)s and key <> all(%(keys)s) and state <> 'disabled'
                     order by key
                     for update))
returning key;

-- name: lock_page
-- A page of schedules by key, locked for a change.
select coalesce(json_agg(shown order by key), '[]')::text
from (
    select key,
-- use: schedules.schedule_columns
        as shown
    from (select * from sereno.schedules
          where key > %(after)s
-- use: schedules.schedule_filter
          order by key limit %(limit)s
          for update) as page
) as shown_page;

-- name: pause
-- For good, or until a moment, when the scheduler plans it again.
with found as materialized (
    select id from sereno.schedules
    where state in ('enabled', 'paused')
-- use: schedules.schedule_filter
    order by key
    for update
),
changed as (
    update sereno.schedules
    set state = case when %(until)s::timestamptz is null then 'paused' else 'enabled' end,
        next_run_at = %(until)s::timestamptz, planned = false, paused_until = %(until)s::timestamptz,
        note = %(note)s, changed_by = %(actor)s, changed_at = sereno.now()
    where id = any(array(select id from found))
    returning 1
)
select count(*) from changed;

-- name: resume
-- Enable from now on: instants missed in the meantime are not caught up.
with found as materialized (
    select id from sereno.schedules
    where (state <> 'enabled' or paused_until is not null)
-- use: schedules.schedule_filter
    order by key
    for update
),
changed as (
    update sereno.schedules
    set state = 'enabled', next_run_at = sereno.now(), planned = false, paused_until = null, note = null,
        failed_in_row = 0, changed_by = %(actor)s, changed_at = sereno.now()
    where id = any(array(select id from found))
    returning 1
),
notified as (select sereno.wake_scheduler(sereno.now()) where exists (select from changed))
select (select count(*) from changed), (select count(*) from notified);

-- name: disable
-- Stop until it is resumed.
with found as materialized (
    select id from sereno.schedules
    where state <> 'disabled'
-- use: schedules.schedule_filter
    order by key
    for update
),
changed as (
    update sereno.schedules
    set state = 'disabled', next_run_at = null, paused_until = null, note = %(note)s,
        changed_by = %(actor)s, changed_at = sereno.now()
    where id = any(array(select id from found))
    returning 1
)
select count(*) from changed;

-- name: delete
-- Delete; jobs and fires stay as history.
with found as materialized (
    select id from sereno.schedules
    where true
-- use: schedules.schedule_filter
    order by key
    for update
),
gone as (
    delete from sereno.schedules
    where id = any(array(select id from found))
    returning 1
)
select count(*) from gone;

-- name: reshift
-- Another spread: a new offset for each schedule and the next instant, computed by the caller.
with item as materialized (
    select * from jsonb_to_recordset(%(rows)s::text::jsonb) as i(id bigint, rule jsonb, shift bigint, next bigint)
),
changed as (
    update sereno.schedules s
    set rule = item.rule, shift = item.shift, changed_at = sereno.now(),
        planned = s.planned and s.paused_until is null,
        next_run_at = case when s.planned and s.paused_until is null and s.state = 'enabled' and s.next_run_at is not null
                           then sereno.instant(item.next) else s.next_run_at end
    from item
    where s.id = any(array(select id from item)) and s.id = item.id
    returning 1
),
notified as (select sereno.wake_scheduler(sereno.now()) where exists (select from changed))
select (select count(*) from changed), (select count(*) from notified);

-- name: lock_one
-- One schedule, locked for a manual run, with its complete arguments.
select
-- use: schedules.schedule_columns
    ::text, args::text
from sereno.schedules where key = %(key)s
for update;

-- name: note_manual
-- Record a manual run on the schedule.
update sereno.schedules
set last_fired_at = sereno.now(), last_job_id = %(job)s, fired = fired + %(fired)s,
    skipped = case when %(duplicates)s::integer = 0 then skipped
                   else skipped || jsonb_build_object('duplicate', coalesce((skipped ->> 'duplicate')::integer, 0)
                                                                   + %(duplicates)s::integer) end
where id = %(id)s
returning id;
