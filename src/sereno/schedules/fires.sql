-- Manual fires, and the daily partitions of fires, which are dropped whole.

-- name: record_again
-- Instants of a manual run: new ones, and skipped ones. Returns those that had not made a job before.
with item as materialized (
    select * from jsonb_to_recordset(%(fires)s::text::jsonb) as i(id bigint, planned bigint)
),
written as (
    insert into sereno.fires as f (planned_at, schedule_id, fired_at)
    select sereno.instant(planned), id, sereno.now() from item
    order by planned, id
    on conflict (planned_at, schedule_id) do update
        set fired_at = excluded.fired_at, reason = null, stands_for = 1
        where f.job_id is null and f.reason is not null
    returning schedule_id, planned_at
)
select coalesce(json_agg(json_build_array(schedule_id, sereno.micros(planned_at))), '[]')::text from written;

-- name: make_partitions
-- One partition of fires a day, today and a week ahead.
select sereno.make_day_partition('fires', 'planned_at', day::date)
from generate_series(date_trunc('day', sereno.now() at time zone 'UTC'),
                     date_trunc('day', sereno.now() at time zone 'UTC') + interval '7 days', interval '1 day') as day;

-- name: old_partitions
-- Whole days of fires that ended before their retention began.
select child.relname
from pg_inherits
join pg_class child on child.oid = inhrelid
where inhparent = 'sereno.fires'::regclass
  and child.relname ~ '^fires_[0-9]{8}$'
  and to_date(right(child.relname, 8), 'YYYYMMDD') + 1 <= ((sereno.now() at time zone 'UTC')::date - %(days)s::integer)
order by child.relname;

-- name: drop_partition
-- Drop a day of fires that is past its retention.
select sereno.drop_fires_partition(%(name)s);

-- name: forget_fires
-- Delete old rows of the default partition (backfills of old instants), one page at a time.
with old as (
    select planned_at, schedule_id from sereno.fires_default
    where fired_at < sereno.now() - make_interval(days => %(days)s)
    limit %(most)s
),
gone as (
    delete from sereno.fires_default f using old
    where f.planned_at = old.planned_at and f.schedule_id = old.schedule_id
    returning 1
)
select count(*) from gone;
