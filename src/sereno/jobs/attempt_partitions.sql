-- Attempts are stored in daily partitions, which are dropped after the history partition of the same day. Attempts of jobs
-- that still exist (live, dead, or finished on a later day) are moved before: to the day on which the job finished, or to
-- today.

-- name: make_partitions
-- One partition a day, today and a week ahead.
select sereno.make_day_partition('attempts', 'partition_at', day::date)
from generate_series(date_trunc('day', sereno.now() at time zone 'UTC'),
                     date_trunc('day', sereno.now() at time zone 'UTC') + interval '7 days', interval '1 day') as day;

-- name: old_partitions
-- Whole days that ended before the retention began, up to the first one whose history is still there.
select name from (
    select child.relname as name,
           bool_and(to_regclass('sereno.history_done_' || right(child.relname, 8)) is null) over (order by child.relname) as may_go
    from pg_inherits
    join pg_class child on child.oid = inhrelid
    where inhparent = 'sereno.attempts'::regclass
      and child.relname ~ '^attempts_[0-9]{8}$'
      and to_date(right(child.relname, 8), 'YYYYMMDD') + 1 <= ((sereno.now() at time zone 'UTC')::date - %(days)s::integer)
) as old
where may_go
order by name;

-- name: drop_partition
-- Drop a day after the attempts of existing jobs were moved out of it.
select sereno.drop_attempts_partition(%(name)s);

-- name: carry
-- Move the attempts of existing jobs from one page of a day to a later day; return how many rows were read. The position
-- is stored, so that any worker can continue. Deleted and inserted instead of updated: a concurrent delete of the same row
-- would fail with an error that it was moved to another partition.
with clock as materialized (select sereno.now() as now),
begin as materialized (
    select coalesce(max(place[2]::bigint), -1) as job_id, coalesce(max(place[3]::integer), -1) as number
    from sereno.duties where name = 'attempts' and place[1] = %(name)s
),
page as materialized (
    select job_id, number from sereno.attempts
    where partition_at >= %(begins)s and partition_at < %(ends)s
      and (job_id, number) > ((select job_id from begin), (select number from begin))
    order by job_id, number limit %(most)s
),
found as materialized (
    select job_id, number,
           (select finished_at from sereno.history_done where history_done.id = job_id limit 1) as finished_at,
           coalesce((select true from sereno.jobs where jobs.id = job_id),
                    (select true from sereno.history_dead where history_dead.id = job_id limit 1)) as stays
    from page
),
owned as materialized (
    select job_id, number, case when finished_at >= %(ends)s then finished_at else (select now from clock) end as partition_at
    from found where stays or finished_at is not null
),
gone as (
    delete from sereno.attempts
    where attempts.partition_at >= %(begins)s and attempts.partition_at < %(ends)s
      and job_id = any(array(select job_id from owned)) and (job_id, number) in (select job_id, number from owned)
    returning *
),
carried as (
    insert into sereno.attempts (job_id, number, session_id, started_at, finished_at, outcome, reason, error_type,
                                 error_message, traceback, fingerprint, partition_at)
    select job_id, number, session_id, started_at, finished_at, outcome, reason, error_type, error_message, traceback,
           fingerprint, owned.partition_at
    from gone join owned using (job_id, number)
),
noted as (
    insert into sereno.duties (name, done_at, place)
    select 'attempts', (select now from clock), array[%(name)s, job_id::text, number::text]
    from page order by job_id desc, number desc limit 1
    on conflict (name) do update set done_at = excluded.done_at, place = excluded.place
)
select count(*) from page;

-- name: carry_strays
-- Move one page of old attempts out of the default partition, which holds rows whose daily partition was missing; rows
-- restored from the archive stay. Attempts of existing jobs move to today. The rest is deleted, or moved to today as well
-- if there is an archive, which takes it from there. Return how many rows were read.
with clock as materialized (select sereno.now() as now),
page as materialized (
    select job_id, number, partition_at from sereno.attempts_default
    where partition_at < (select now from clock) - make_interval(days => %(days)s)
      and not exists (select from sereno.restored
                      where kind = 'attempts' and key = job_id::text || chr(9) || number::text)
    limit %(most)s
),
gone as (
    delete from sereno.attempts_default
    where job_id = any(array(select job_id from page)) and (job_id, number, partition_at) in (select * from page)
    returning *
),
carried as (
    insert into sereno.attempts (job_id, number, session_id, started_at, finished_at, outcome, reason, error_type,
                                 error_message, traceback, fingerprint, partition_at)
    select job_id, number, session_id, started_at, finished_at, outcome, reason, error_type, error_message, traceback,
           fingerprint, (select now from clock)
    from gone
    where %(all)s or (select true from sereno.jobs where jobs.id = job_id)
       or (select true from sereno.history where history.id = job_id limit 1)
)
select count(*) from page;
