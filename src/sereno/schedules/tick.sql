-- Statements of a tick: lock due schedules, fire and advance them; count runs that ended.

-- name: take
-- Due rows, oldest first, one line of JSON each. The scan starts at a floor: under a pinned snapshot the index still
-- has the entries of instants that fired long ago. A clock that is set back lowers the floor. Rows locked by another
-- transaction are left for the next pass. The columns come from the locked row itself: a second read would use the
-- snapshot, which may be older than a change committed in between.
-- Held rows: their fire waited for the previous run, which has ended.
with clock as materialized (select sereno.now() as now),
due as materialized (
    select next_run_at as at, false as free, schedules.ctid as place, schedules.* from sereno.schedules
    where next_run_at <= (select now from clock)
      and next_run_at >= case when %(floor)s = 0 then '-infinity'
                              else least(sereno.instant(%(floor)s), (select now from clock)) end
    order by next_run_at
    limit %(limit)s
    for update skip locked
),
free as materialized (
    select held_at as at, true as free, schedules.ctid as place, schedules.* from sereno.schedules
    where held_at is not null and held_free and state = 'enabled' and planned and %(check_held)s
    order by id
    limit %(limit)s - (select count(*) from due)
    for update skip locked
),
taken as materialized (
    select * from due
    union all
    select * from free where id <> all(array(select id from due))
)
select coalesce(string_agg(json_build_array(
           id, place::text, rule::text, case when isfinite(at) then sereno.micros(at) end, free, planned, shift,
           case when isfinite(starts_at) then sereno.micros(starts_at) end,
           case when isfinite(ends_at) then sereno.micros(ends_at) end, max_fires - fired,
           missed, missed_limit, missed_window, max_lateness, overlap,
           case when isfinite(held_at) then sereno.micros(held_at) end, held_for,
           case when isfinite(next_run_at) then sereno.micros(next_run_at) end,
           sereno.micros(coalesce(last_base_at, last_planned_at - sereno.span(shift))), skipped,
           case when templated or unique_key is not null then json_build_object(
               'key', key, 'task', task, 'args', args, 'queue', queue, 'priority', priority,
               'tenant', tenant, 'trace', trace, 'tags', tags, 'unique_key', unique_key,
               'unique_for', unique_for, 'unique_forever', unique_forever, 'on_conflict', on_conflict,
               'expires_after', expires_after, 'requires', requires) end)::text, chr(10)), ''),
       (select sereno.micros(now) from clock)
from taken;

-- name: busy
-- Which of these schedules have a run under way. Read after their rows are locked: another scheduler may have started a
-- run just before.
select coalesce(json_agg(distinct schedule_id), '[]')::text from sereno.jobs where schedule_id = any(%(ids)s);

-- name: fire
-- The common path, many rows at once. The fire is inserted first and is unique; only the transaction that inserted it
-- makes a job. Then the schedule advances and the job is made from its row; an existing fire is not counted again. The
-- rows are locked, so their ctid is still valid: no index lookup is needed.
with clock as materialized (select sereno.now() as now),
item as materialized (
    select id, bucket, sereno.instant(planned) as planned_at, sereno.instant(next) as next_at,
           nextval('sereno.jobs_id_seq') as job_id, nextval('sereno.ready_seq') as ready_seq
    from unnest(%(ids)s::text::bigint[], %(planned)s::text::bigint[], %(next)s::text::bigint[],
                %(bucket)s::text::integer[]) as i(id, planned, next, bucket)
),
written as (
    insert into sereno.fires (planned_at, schedule_id, fired_at, job_id)
    select planned_at, id, (select now from clock), job_id from item
    on conflict do nothing
    returning job_id
),
done as materialized (
    select item.id, planned_at, next_at, bucket, ready_seq, written.job_id as made_id,
           (written.job_id is not null)::integer as new
    from item left join written on written.job_id = item.job_id
),
advanced as (
    update sereno.schedules s
    set next_run_at = done.next_at,
        last_planned_at = done.planned_at, last_base_at = done.planned_at - sereno.span(s.shift),
        last_fired_at = case when done.made_id is null then s.last_fired_at else (select now from clock) end,
        last_job_id = coalesce(done.made_id, s.last_job_id),
        fired = s.fired + done.new,
        lateness[done.bucket] = coalesce(s.lateness[done.bucket], 0) + done.new
    from done
    where s.ctid = any(%(places)s::text::tid[]) and s.id = done.id
    returning s.id, done.made_id, done.planned_at, done.ready_seq, s.task, s.args, s.queue, s.priority, s.tenant, s.tags, s.trace,
              s.expires_after, s.requires
),
made as (
    insert into sereno.jobs (id, task, args, queue, priority, run_at, tenant, tags, trace, created_at, expires_at,
                             schedule_id, planned_at, stands_for, keys, requires, lane, order_id, state, ready_seq)
    select made_id, task, args, queue, priority, (select now from clock), tenant, tags, trace,
           (select now from clock), (select now from clock) + expires_after * interval '1 second',
           id, planned_at, 1, found, requires, case when found is not null then sereno.lane_of(queue, found) end,
           case when found is not null then sereno.order_of(queue, found) end, 'ready', ready_seq
    from advanced, lateral (
        select case when task = any(array(select name from sereno.key_rules where kind = 'task'))
                         or queue = any(array(select name from sereno.key_rules where kind = 'queue'))
                    then sereno.keys_for(task, queue, tenant, args) end) as k(found)
    where made_id is not null
    returning queue
),
notified as (
    select pg_notify('sereno.ready', queue)
    from (select distinct queue from made) as filled
    where exists (select from sereno.sessions where idle and queues ? filled.queue)
)
select (select count(*) from advanced), (select count(*) from made), (select count(*) from notified);

-- name: record
-- Fires of the careful path, and skipped instants. Returns the new ones.
with item as materialized (
    select * from jsonb_to_recordset(%(fires)s::text::jsonb)
        as i(id bigint, planned bigint, stands_for integer, reason text)
),
written as (
    insert into sereno.fires (planned_at, schedule_id, fired_at, stands_for, reason)
    select sereno.instant(planned), id, sereno.now(), stands_for, reason from item
    order by planned, id
    on conflict do nothing
    returning schedule_id, planned_at
)
select coalesce(json_agg(json_build_array(schedule_id, sereno.micros(planned_at))), '[]')::text from written;

-- name: try_make_jobs
-- Insert jobs with unique keys. Another transaction that holds one of the keys uncommitted would block the tick, and
-- with it every schedule: returns null then.
select sereno.try_enqueue_keyed(%(jobs)s::text::jsonb, %(timeout)s)::text;

-- name: savepoint
-- Start of what can be rolled back.
savepoint sereno_fires;

-- name: keep_since_savepoint
-- Keep what was written since the savepoint.
release savepoint sereno_fires;

-- name: undo_since_savepoint
-- Discard what was written since the savepoint.
rollback to savepoint sereno_fires;

-- name: link
-- Link jobs of the careful path with their fires. The fires exist: inserting them again finds each by its key, where a
-- search by time would read every fire of that moment.
with item as materialized (
    select * from jsonb_to_recordset(%(fires)s::text::jsonb)
        as i(id bigint, planned bigint, stands_for integer, job_id bigint, created boolean)
),
linked as (
    update sereno.jobs
    set schedule_id = item.id, planned_at = sereno.instant(item.planned), stands_for = item.stands_for
    from item
    where jobs.id = any(array(select job_id from item where created)) and jobs.id = item.job_id
),
noted as (
    insert into sereno.fires (planned_at, schedule_id, fired_at, job_id, reason)
    select sereno.instant(planned), id, sereno.now(), job_id, case when created then null else 'duplicate' end from item
    on conflict (planned_at, schedule_id) do update set job_id = excluded.job_id, reason = excluded.reason
)
select count(*) from item;

-- name: advance
-- The state of schedules after the careful path: skipped, held, parked, replanned, or fired one by one.
with clock as materialized (select sereno.now() as now),
item as materialized (
    select * from jsonb_to_recordset(%(rows)s::text::jsonb)
        as i(id bigint, next bigint, state text, last_planned bigint, fired integer, missed integer,
             skipped jsonb, job_id bigint, held bigint, held_for integer, held_free boolean, bucket integer)
)
update sereno.schedules s
set next_run_at = case when coalesce(item.state, s.state) = 'enabled' then sereno.instant(item.next) end,
    state = coalesce(item.state, s.state),
    note = case when s.paused_until is null then s.note end,
    paused_until = null,
    planned = true,
    last_planned_at = coalesce(sereno.instant(item.last_planned), s.last_planned_at),
    last_base_at = coalesce(sereno.instant(item.last_planned) - sereno.span(s.shift), s.last_base_at),
    last_fired_at = case when item.fired > 0 then (select now from clock) else s.last_fired_at end,
    last_job_id = coalesce(item.job_id, s.last_job_id),
    fired = s.fired + item.fired,
    missed_count = s.missed_count + item.missed,
    skipped = item.skipped,
    held_at = sereno.instant(item.held),
    held_for = item.held_for,
    held_free = item.held_free,
    lateness[item.bucket] = coalesce(s.lateness[item.bucket], 0) + item.fired
from item
where s.id = any(%(ids)s) and s.id = item.id;

-- name: details
-- The details needed to make the jobs of these schedules on the careful path.
select coalesce(json_object_agg(id, json_build_object(
           'key', key, 'task', task, 'args', args, 'queue', queue, 'priority', priority, 'tenant', tenant,
           'trace', trace, 'tags', tags, 'expires_after', expires_after, 'requires', requires)), '{}')::text
from sereno.schedules where id = any(%(ids)s);

-- name: park
-- Park rows that are invalid, each with its reason, so that they do not block the others.
update sereno.schedules
set state = 'parked', next_run_at = null, paused_until = null, note = left(reason, 2000), changed_at = sereno.now()
from unnest(%(ids)s::bigint[], %(reasons)s::text[]) as item(item_id, reason)
where id = any(%(ids)s::bigint[]) and id = item_id
returning key, note;

-- name: lock_runs
-- The live runs of these schedules, and whether each could be locked, that is, no other transaction holds it.
with live as materialized (select id, schedule_id from sereno.jobs where schedule_id = any(%(ids)s)),
locked as materialized (
    select id from sereno.jobs where id = any(array(select id from live)) order by id for update skip locked
)
select coalesce(json_agg(json_build_array(live.schedule_id, live.id, locked.id is not null)), '[]')::text
from live left join locked on locked.id = live.id;

-- name: end_runs
-- Read the ended runs from schedule_ends, count them on the schedule, and delete them. A schedule that is locked keeps
-- its rows for the next pass. An interval that counts from the end is planned here; a held fire becomes free. One page
-- at a time, so that a thousand locked rows do not block those after them.
with over as materialized (
    select * from sereno.schedule_ends where id > %(after)s order by id limit 1000 for update skip locked
),
locked as materialized (
    select id, state, held_at is not null or next_run_at is null as waits from sereno.schedules
    where id = any(array(select schedule_id from over)) order by id for update skip locked
),
read as materialized (
    delete from sereno.schedule_ends
    where id = any(array(select id from over
                         where schedule_id = any(array(select id from locked))
                            or schedule_id <> all(array(select id from sereno.schedules
                                                        where id = any(array(select schedule_id from over))))))
    returning *
),
live as materialized (
    select distinct schedule_id from sereno.jobs where schedule_id = any(array(select id from locked where waits))
),
summed as materialized (
    select schedule_id, count(*) filter (where state = 'succeeded') as succeeded,
           count(*) filter (where state = 'dead') as failed,
           -- Failures since the last success.
           count(*) filter (where state = 'dead' and id > coalesce(last_success, 0)) as failed_since,
           coalesce(last_success, 0) > 0 as had_success,
           max(finished_at) as finished_at,
           (array_agg(state order by id desc))[1] as state,
           (array_agg(error order by id desc) filter (where state = 'dead'))[1] as error
    from (select read.*, max(id) filter (where state = 'succeeded') over (partition by schedule_id) as last_success
          from read) as each
    group by schedule_id, last_success
),
counted as (
    update sereno.schedules s
    set succeeded = s.succeeded + summed.succeeded,
        failed = s.failed + summed.failed,
        failed_in_row = summed.failed_since + case when summed.had_success then 0 else s.failed_in_row end,
        last_finished_at = summed.finished_at, last_state = summed.state,
        last_error = coalesce(summed.error, s.last_error),
        held_free = s.held_at is not null and live.schedule_id is null,
        state = case when s.state = 'enabled' and s.disable_after
                          <= summed.failed_since + case when summed.had_success then 0 else s.failed_in_row end
                     then 'disabled' else s.state end,
        note = case when s.state = 'enabled' and s.disable_after
                         <= summed.failed_since + case when summed.had_success then 0 else s.failed_in_row end
                    then 'disabled after '
                         || case s.disable_after when 1 then 'a failed run' else s.disable_after || ' failed runs in a row' end
                         || ': ' || coalesce(summed.error, '?')
                    else s.note end,
        paused_until = case when s.state = 'enabled' and s.disable_after
                                 <= summed.failed_since + case when summed.had_success then 0 else s.failed_in_row end
                            then null else s.paused_until end,
        next_run_at = case
            when s.state <> 'enabled' then null
            when s.disable_after <= summed.failed_since + case when summed.had_success then 0 else s.failed_in_row end
                then null
            when s.next_run_at is null and s.rule ->> 'count_from' = 'end' and live.schedule_id is null
                then greatest(summed.finished_at + coalesce(sereno.interval_of(s.rule), interval '0'), s.starts_at)
            else s.next_run_at end,
        -- An interval given as text, written with SQL, is parsed where rules are parsed.
        planned = s.planned and (s.next_run_at is not null or sereno.interval_of(s.rule) is not null
                                 or s.rule ->> 'count_from' is distinct from 'end')
    from summed left join live on live.schedule_id = summed.schedule_id
    where s.id = any(array(select id from locked)) and s.id = summed.schedule_id
    returning s.id, s.key, s.state, s.note, s.held_free
)
select (select max(id) from over), (select count(*) from over), (select count(*) from read),
       (select count(*) from counted where held_free),
       coalesce((select json_agg(json_build_array(key, counted.note)) from counted join locked using (id)
                 where locked.state = 'enabled' and counted.state = 'disabled'), '[]')::text;

-- name: zoned
-- A page of schedules whose instants depend on zone data, with what is needed to plan the next one again: it comes
-- after the last instant and not before the start.
select coalesce(json_agg(json_build_array(
           id, rule::text, sereno.micros(next_run_at), shift,
           sereno.micros(greatest(last_planned_at, case when isfinite(starts_at)
                                                        then starts_at - interval '1 microsecond' end)))
           order by id), '[]')::text
from (select * from sereno.schedules
      where id > %(after)s and isfinite(next_run_at) and planned and rule ->> 'tz' is not null
      order by id limit %(limit)s) as page;

-- name: replan
-- New instants for the same rules; a row that fired or changed in the meantime is not touched.
with item as materialized (
    select * from jsonb_to_recordset(%(rows)s::text::jsonb) as i(id bigint, seen bigint, next bigint)
),
moved as (
    update sereno.schedules s set next_run_at = sereno.instant(item.next)
    from item
    where s.id = any(array(select id from item)) and s.id = item.id
      and s.next_run_at = sereno.instant(item.seen) and s.state = 'enabled'
    returning s.id
)
select count(*) from moved;

-- name: heal
-- Enabled, but without a next instant and without a run whose end would plan it: plan it again. A held fire without a
-- run to wait for becomes free. Both are left behind when a job is deleted by hand. One page of candidates at a time. Returns
-- the last one scanned, and the keys that were healed.
with page as materialized (
    select id from (
        (select id from sereno.schedules
         where state = 'enabled' and next_run_at is null and id > %(after)s order by id limit 1000)
        union
        (select id from sereno.schedules where held_at is not null and id > %(after)s order by id limit 1000)
    ) as candidate
    order by id limit 1000
),
waiting as materialized (
    select id from sereno.schedules
    where id = any(array(select id from page)) and state = 'enabled' and not held_free
      and (next_run_at is null or held_at is not null)
    order by id
    for update skip locked
),
alive as materialized (
    select schedule_id from sereno.jobs where schedule_id = any(array(select id from waiting))
    union all
    select ended.schedule_id from waiting join sereno.schedule_ends ended on ended.schedule_id = waiting.id
),
healed as (
    update sereno.schedules
    set held_free = held_at is not null, planned = planned and held_at is not null,
        next_run_at = case when held_at is null then sereno.now() else next_run_at end
    where id = any(array(select id from waiting where id not in (select schedule_id from alive)))
    returning key
)
select (select max(id) from page), coalesce((select json_agg(key) from healed), '[]')::text;
