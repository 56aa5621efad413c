-- Whether the archive keeps up. Each query is bounded: it costs the same on a small installation and on a large one.

-- name: failed
-- Files that could not be written or verified and batches that could not be dropped, up to a bound, and the first one.
with found as (
    (select failed_at, error from sereno.archive_files
     where failed_at is not null order by failed_at limit %(most)s)
    union all
    (select coalesce(verified_at, moved_at), error from sereno.archive_batches
     where dropped_at is null and error is not null order by id limit %(most)s)
)
select count(*), min(failed_at), (array_agg(error order by failed_at))[1] from found;

-- name: batches
-- Whether anything was ever archived, and how many seconds the oldest batch has waited to be verified.
select exists (select from sereno.archive_batches),
       (select extract(epoch from sereno.now() - moved_at)::double precision from sereno.archive_batches
        where verified_at is null order by id limit 1);

-- name: oldest
-- The oldest row of each table of sereno, from the names of partitions and the first entries of indexes.
-- Restored rows do not count: they are old on purpose.
select 'jobs', min(to_date(right(child.relname, 8), 'YYYYMMDD'))::timestamp at time zone 'UTC'
from pg_inherits
join pg_class child on child.oid = inhrelid
where inhparent = 'sereno.history_done'::regclass and child.relname ~ '^history_done_[0-9]{8}$'
union all
select 'fires', min(to_date(right(child.relname, 8), 'YYYYMMDD'))::timestamp at time zone 'UTC'
from pg_inherits
join pg_class child on child.oid = inhrelid
where inhparent = 'sereno.fires'::regclass and child.relname ~ '^fires_[0-9]{8}$'
union all
select 'dead', min(finished_at) from (select id, finished_at from sereno.history_dead order by finished_at limit 1000) as early
where not exists (select from sereno.restored r where r.kind = 'jobs' and r.key = early.id::text)
union all
select 'logs', min(at) from (select id, at from sereno.logs order by at limit 1000) as early
where not exists (select from sereno.restored r where r.kind = 'logs' and r.key = early.id::text)
union all
select 'deliveries', (select created_at from sereno.deliveries order by id limit 1)
union all
select 'events', (select created_at from sereno.events order by id limit 1);
