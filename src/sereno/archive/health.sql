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
