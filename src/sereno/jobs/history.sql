-- Partitions of finished jobs: created ahead of time, dropped after retention.

-- name: make_partitions
-- One partition a day, today and a week ahead.
select sereno.make_history_partition(day::date)
from generate_series(date_trunc('day', sereno.now() at time zone 'UTC'),
                     date_trunc('day', sereno.now() at time zone 'UTC') + interval '7 days', interval '1 day') as day;

-- name: old_partitions
-- Whole days that ended before the retention began.
select child.relname
from pg_inherits
join pg_class child on child.oid = inhrelid
where inhparent = 'sereno.history_done'::regclass
  and child.relname ~ '^history_done_[0-9]{8}$'
  and to_date(right(child.relname, 8), 'YYYYMMDD') + 1 <= ((sereno.now() at time zone 'UTC')::date - %(days)s::integer)
order by child.relname;

-- name: drop_partition
-- The attempts of its jobs are dropped with their own partitions: see attempt_partitions.sql.
select sereno.drop_history_partition(%(name)s);

-- name: forget_dead
-- Delete a page of expired dead letters. Runs only if keep_dead_days is set, which is not the default. Uses the index on
-- finished_at, so that newer rows are not read.
with old as (
    select id from sereno.history_dead
    where finished_at < sereno.now() - make_interval(days => %(days)s)
    order by finished_at limit 1000 for update skip locked
),
gone as (delete from sereno.history_dead where id = any(array(select id from old)) returning id),
tries as (delete from sereno.attempts where job_id = any(array(select id from gone)))
select count(*) from gone;
