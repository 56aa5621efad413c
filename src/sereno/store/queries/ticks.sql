-- The tick: schedules that are due are taken, fired and advanced; runs that ended are counted; one scheduler leads.

-- name: take
-- Rows that are due, oldest first, from a floor: under a pinned snapshot the entries of instants that have long been
-- fired are still in the index. A clock that was set back pulls the floor down with it. One JSON value out. A row that
-- somebody changes right now is left for the next look. What is read is the row that was locked: looked up again, it would
-- be as the snapshot knew it, before whoever changed it in between.
-- Held rows: their fire waited for the run before it, which has ended.
with clock as materialized (select sereno.now() as now),
due as materialized (
    select next_run_at as at, false as free, schedules.ctid as place, schedules.* from sereno.schedules
    where next_run_at <= (select now from clock)
      and next_run_at >= least(sereno.instant(%(floor)s), (select now from clock))
    order by next_run_at
    limit %(limit)s
    for update skip locked
),
free as materialized (
    select held_at as at, true as free, schedules.ctid as place, schedules.* from sereno.schedules
    where held_at is not null and held_free and state = 'enabled' and planned and %(look_at_held)s
    order by id
    limit %(limit)s - (select count(*) from due)
    for update skip locked
),
taken as materialized (
    select * from due
    union all
    select * from free where id <> all(array(select id from due))
),
busy as materialized (
    select distinct schedule_id from sereno.jobs
    where schedule_id = any(array(select id from taken where overlap <> 'allow'))
)
select coalesce(json_agg(json_build_array(
           s.id, s.place::text, s.rule::text, sereno.micros(s.at), s.free, s.planned, s.shift,
           sereno.micros(nullif(s.starts_at, '-infinity')), sereno.micros(nullif(s.ends_at, 'infinity')),
           s.max_fires - s.fired,
           s.missed, s.missed_limit, s.missed_window, s.max_lateness, s.overlap,
           busy.schedule_id is not null, sereno.micros(s.held_at), s.held_for,
           sereno.micros(s.next_run_at), s.skipped,
           case when s.templated or s.unique_key is not null then json_build_object(
               'key', s.key, 'task', s.task, 'args', s.args, 'queue', s.queue, 'priority', s.priority,
               'tenant', s.tenant, 'trace', s.trace, 'tags', s.tags, 'unique_key', s.unique_key,
               'unique_for', s.unique_for, 'unique_forever', s.unique_forever, 'on_conflict', s.on_conflict,
               'expires_after', s.expires_after) end)), '[]')::text,
       (select sereno.micros(now) from clock)
from taken s left join busy on busy.schedule_id = s.id;

-- name: first
-- What a pass of one takes; for whoever could not even read it.
with due as materialized (
    select id from sereno.schedules
    where next_run_at <= sereno.now() and next_run_at >= least(sereno.instant(%(floor)s), sereno.now())
    order by next_run_at
    limit 1
    for update skip locked
),
free as materialized (
    select id from sereno.schedules
    where held_at is not null and held_free and state = 'enabled' and planned
    order by id
    limit 1 - (select count(*) from due)
    for update skip locked
)
select coalesce(json_agg(id), '[]')::text from (select id from due union all select id from free) as taken;

-- name: fire
-- The common fire, many at once: the fire is written first and is unique; only who wrote it makes a job.
-- Then the job, and the advance of the schedule; a fire that was there before is not counted again.
-- The rows are locked, so they are still where they were taken: no index has to be searched for them.
with clock as materialized (select sereno.now() as now),
item as materialized (
    select * from unnest(%(ids)s::text::bigint[], %(planned)s::text::bigint[], %(next)s::text::bigint[],
                         %(bucket)s::text::integer[]) as i(id, planned, next, bucket)
),
mine as materialized (
    select s.id, s.task, s.args, s.queue, s.priority, s.tenant, s.tags, s.trace, s.expires_after,
           sereno.instant(item.planned) as planned_at, sereno.instant(item.next) as next_at, item.bucket,
           nextval('sereno.jobs_id_seq') as job_id
    from item join sereno.schedules s on s.id = item.id
    where s.ctid = any(%(places)s::text::tid[])
),
written as (
    insert into sereno.fires (planned_at, schedule_id, fired_at, job_id)
    select planned_at, id, (select now from clock), job_id from mine
    on conflict do nothing
    returning job_id
),
made as (
    insert into sereno.jobs (id, task, args, queue, priority, run_at, tenant, tags, trace, created_at, expires_at,
                             schedule_id, planned_at, stands_for, state, ready_seq)
    select job_id, task, args, queue, priority, (select now from clock), tenant, tags, trace,
           (select now from clock), (select now from clock) + expires_after * interval '1 second',
           id, planned_at, 1, 'ready', nextval('sereno.ready_seq')
    from mine join written using (job_id)
    returning queue
),
done as materialized (
    select mine.id, mine.planned_at, mine.next_at, mine.bucket, written.job_id as made_id,
           (written.job_id is not null)::integer as new
    from mine left join written using (job_id)
),
advanced as (
    update sereno.schedules s
    set next_run_at = done.next_at,
        last_planned_at = done.planned_at,
        last_fired_at = case when done.made_id is null then s.last_fired_at else (select now from clock) end,
        last_job_id = coalesce(done.made_id, s.last_job_id),
        fired = s.fired + done.new,
        lateness[done.bucket] = coalesce(s.lateness[done.bucket], 0) + done.new
    from done
    where s.ctid = any(%(places)s::text::tid[]) and s.id = done.id
),
told as (
    select pg_notify('sereno.ready', queue)
    from (select distinct queue from made) as filled
    where exists (select from sereno.sessions where idle and queues ? filled.queue)
)
select (select count(*) from made), (select count(*) from told);

-- name: record
-- Fires that need a closer look, and instants that are skipped. Answers those that were new.
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

-- name: link
-- Jobs that were made the careful way learn which fire they are, and the fires which job.
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
    update sereno.fires
    set job_id = item.job_id, reason = case when item.created then null else 'duplicate' end
    from item
    where fires.planned_at = any(array(select sereno.instant(planned) from item))
      and fires.planned_at = sereno.instant(item.planned) and fires.schedule_id = item.id
)
select count(*) from item;

-- name: advance
-- Where schedules stand after instants that needed a closer look: skipped, held, parked, replanned, or fired one by one.
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
-- What it takes to make the jobs of these schedules by hand.
select coalesce(json_object_agg(id, json_build_object(
           'key', key, 'task', task, 'args', args, 'queue', queue, 'priority', priority, 'tenant', tenant,
           'trace', trace, 'tags', tags, 'expires_after', expires_after)), '{}')::text
from sereno.schedules where id = any(%(ids)s);

-- name: park
-- A row that makes no sense: kept, out of the way of the others, with the reason.
update sereno.schedules
set state = 'parked', next_run_at = null, note = %(reason)s, changed_at = sereno.now()
where id = any(%(ids)s)
returning key;

-- name: live_jobs
-- The jobs of these schedules that are not over.
select coalesce(json_agg(id), '[]')::text from sereno.jobs where schedule_id = any(%(ids)s);

-- name: end_runs
-- What became of runs: read from where settling left it, counted on the schedule, and forgotten. A schedule that is
-- being changed keeps its rows for the next look. An interval that counts from the end is planned here; a fire that
-- waited is free now. A page at a time, so that a thousand that are being changed hold up nobody behind them.
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
           -- Failures after the last success.
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
                    then 'disabled after ' || s.disable_after || ' failed runs in a row: ' || coalesce(summed.error, '?')
                    else s.note end,
        next_run_at = case
            when s.state <> 'enabled' then null
            when s.disable_after <= summed.failed_since + case when summed.had_success then 0 else s.failed_in_row end
                then null
            when s.next_run_at is null and s.rule ->> 'count_from' = 'end' and live.schedule_id is null
                then greatest(summed.finished_at + (s.rule ->> 'interval')::double precision * interval '1 second',
                              s.starts_at)
            else s.next_run_at end
    from summed left join live on live.schedule_id = summed.schedule_id
    where s.id = any(array(select id from locked)) and s.id = summed.schedule_id
    returning s.id, s.key, s.state, s.note, s.held_free
)
select (select max(id) from over), (select count(*) from read),
       (select count(*) from counted where held_free),
       coalesce((select json_agg(json_build_array(key, counted.note)) from counted join locked using (id)
                 where locked.state = 'enabled' and counted.state = 'disabled'), '[]')::text;

-- name: lead
-- Take the lease, keep it, or learn who has it. The fence rises when it changes hands. One that ends later than any lease
-- was written before the clock was set back: it is over too.
with clock as materialized (select sereno.now() as now),
mine as (
    insert into sereno.leases as held (name, holder, since, until)
    select 'scheduler', %(holder)s, now, now + make_interval(secs => %(lease)s) from clock
    on conflict (name) do update
        set holder = excluded.holder, until = excluded.until, wakes_at = null,
            fence = held.fence + (held.holder <> excluded.holder)::integer,
            since = case when held.holder <> excluded.holder then excluded.since else held.since end
        where held.until <= (select now from clock) or held.holder = excluded.holder
           or held.until > (select now from clock) + make_interval(secs => 2 * %(lease)s)
    returning fence, zones
)
select (select fence from mine), (select zones from mine),
       exists (select from sereno.schedules
               where next_run_at <= (select now from clock) - make_interval(secs => %(overdue)s));

-- name: look
-- The leader keeps its lease, says how its last tick went and until when it means to sleep, and sees what there is to
-- do: whether it still leads, seconds until the next schedule is due, runs that ended, fires that are free to go, and
-- whether anything waits for a run to end. Fenced.
with clock as materialized (select sereno.now() as now),
upcoming as materialized (
    select extract(epoch from next_run_at - (select now from clock))::double precision as seconds
    from sereno.schedules
    where next_run_at < 'infinity' and next_run_at >= least(sereno.instant(%(floor)s), (select now from clock))
    order by next_run_at limit 1
),
noted as (
    update sereno.leases
    set until = (select now from clock) + make_interval(secs => %(lease)s),
        wakes_at = (select now from clock)
                   + make_interval(secs => greatest(0, least(%(rest)s, (select seconds from upcoming)))),
        ticked_at = coalesce(sereno.instant(%(ticked)s), ticked_at),
        tick_seconds = coalesce(%(seconds)s, tick_seconds), tick_fires = coalesce(%(fires)s, tick_fires)
    where name = 'scheduler' and holder = %(holder)s and fence = %(fence)s
    returning true
)
select exists (select from noted), (select seconds from upcoming),
       exists (select from sereno.schedule_ends),
       exists (select from sereno.schedules where held_at is not null and held_free and state = 'enabled' and planned),
       exists (select from sereno.schedules where state = 'enabled' and next_run_at is null)
       or exists (select from sereno.schedules where held_at is not null and state = 'enabled');

-- name: note_error
-- The leader could not do its work; kept until somebody reads it.
update sereno.leases set error = %(error)s, error_at = sereno.now()
where name = 'scheduler' and holder = %(holder)s and fence = %(fence)s
returning true;

-- name: resign
-- A leader that stops says so, and the next one need not wait for the lease to run out.
with gone as (
    update sereno.leases set until = sereno.now(), wakes_at = null
    where name = 'scheduler' and holder = %(holder)s
    returning true
)
select pg_notify('sereno.schedule', 'lead') from gone;

-- name: set_zones
-- The version of the zone data that instants are worked out with from now on.
update sereno.leases set zones = %(zones)s where name = 'scheduler' and fence = %(fence)s returning true;

-- name: zoned
-- A page of schedules whose instants depend on zone data: what it takes to work out the next one again, which comes after
-- the last one and not before the start.
select coalesce(json_agg(json_build_array(
           id, rule::text, sereno.micros(next_run_at), shift,
           sereno.micros(greatest(last_planned_at, nullif(starts_at, '-infinity') - interval '1 microsecond')))
           order by id), '[]')::text
from (select * from sereno.schedules
      where id > %(after)s and next_run_at < 'infinity' and planned and rule ->> 'tz' is not null
      order by id limit %(limit)s) as page;

-- name: replan
-- Other instants for the same rules; a row that fired or changed meanwhile is left alone.
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
-- Enabled, nothing to come, and nothing that could bring it: planned anew. A fire that waits for nothing: free to go.
-- A job that was removed by hand leaves such. A page of candidates at a time; answers the last one that was looked at, and
-- the keys that were healed.
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
    select schedule_id from sereno.schedule_ends
),
healed as (
    update sereno.schedules
    set held_free = held_at is not null, planned = planned and held_at is not null,
        next_run_at = case when held_at is null then sereno.now() else next_run_at end
    where id = any(array(select id from waiting)) and id <> all(array(select schedule_id from alive))
    returning key
)
select (select max(id) from page), coalesce((select json_agg(key) from healed), '[]')::text;
