-- Fires are kept by the day, and dropped whole.

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
-- A day of fires that nobody will ask for.
select sereno.drop_fires_partition(%(name)s);

-- name: forget_fires
-- What the default partition took (backfills of long ago), a thousand at a time.
with old as (
    select planned_at, schedule_id from sereno.fires_default
    where fired_at < sereno.now() - make_interval(days => %(days)s)
    limit 1000
),
gone as (
    delete from sereno.fires_default f using old
    where f.planned_at = old.planned_at and f.schedule_id = old.schedule_id
    returning 1
)
select count(*) from gone;
