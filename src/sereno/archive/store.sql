-- Archiving of old rows: move them into batches, write files, read them back, and finally drop the batches.

-- name: move_day
-- Move a daily partition; returns its batch, if it had any rows.
select sereno.archive_day(%(kind)s, %(name)s);

-- name: move_rows
-- Move a batch of rows of sereno that are older than this.
select sereno.archive_rows(%(part)s, sereno.now() - make_interval(secs => %(age)s), %(most)s);

-- name: move_table
-- Move a batch of rows of a user's table.
select sereno.archive_table(%(name)s, %(moment)s, sereno.now() - make_interval(secs => %(age)s), %(most)s);

-- name: without_children
-- Daily batches whose attempts have not been moved yet, because a run was interrupted.
select id from sereno.archive_batches where not children_moved and dropped_at is null order by id;

-- name: move_children
-- Move a page of the children of a batch; returns how many rows moved, and whether that was the last page.
select moved, is_done from sereno.archive_children(%(batch)s, %(most)s);

-- name: open_batches
-- Unverified batches, oldest first.
select id, kind from sereno.archive_batches where verified_at is null order by id;

-- name: plan
-- Plan the files of a batch; does nothing if they are planned.
select sereno.plan_files(%(batch)s, %(most)s);

-- name: open_files
-- Unverified files; those that failed before come last, so that they do not hold up the others.
select f.batch_id, f.number
from sereno.archive_batches b join sereno.archive_files f on f.batch_id = b.id
where b.verified_at is null and f.verified_at is null
order by f.failed_at is not null, f.batch_id, f.number;

-- name: describe
-- What is known of a file before it is written.
select b.kind, b.source, b.key_columns, b.time_column, b.columns::text, b.schema_version, f.object, b.rows
from sereno.archive_batches b
join sereno.archive_files f on f.batch_id = b.id and f.number = %(number)s
where b.id = %(batch)s and b.dropped_at is null;

-- name: file_query
-- How the rows of a file are read.
select query, columns::text, rising from sereno.file_query(%(batch)s, %(number)s);

-- name: uploaded
-- A file was uploaded but not verified yet. A verified file is not changed.
update sereno.archive_files
set object = %(object)s, rows = %(rows)s, keys_hash = %(keys_hash)s, content_hash = %(content_hash)s,
    first_id = %(first_id)s, last_id = %(last_id)s,
    from_at = %(from_at)s, to_at = %(to_at)s, bytes = %(bytes)s, sha256 = %(sha256)s, uploaded_at = sereno.now(), tries = tries + 1
where batch_id = %(batch)s and number = %(number)s and verified_at is null
returning 1;

-- name: verified
-- The contents read back are those of the table. With `tries`: and the file was not written or found broken meanwhile.
update sereno.archive_files
set verified_at = coalesce(verified_at, sereno.now()), checked_at = sereno.now(), failed_at = null, error = null
where batch_id = %(batch)s and number = %(number)s and sha256 = %(sha256)s
  and (%(tries)s::integer is null or tries = %(tries)s)
returning 1;

-- name: tries
-- How often the file was written or found broken: a verifier compares it before and after it has read the file.
select tries from sereno.archive_files where batch_id = %(batch)s and number = %(number)s;

-- name: failed
-- A file could not be written or verified: recorded until it can.
update sereno.archive_files set failed_at = coalesce(failed_at, sereno.now()), error = %(error)s, tries = tries + 1
where batch_id = %(batch)s and number = %(number)s
returning 1;

-- name: not_written
-- Like `failed`, for a file that is being written: not if another archiver has verified it in the meantime.
update sereno.archive_files set failed_at = coalesce(failed_at, sereno.now()), error = %(error)s, tries = tries + 1
where batch_id = %(batch)s and number = %(number)s and verified_at is null
returning 1;

-- name: reopen
-- A verified file that is missing is written again, as long as its rows are still held.
with held as (
    update sereno.archive_batches set verified_at = null, drop_eligible_at = null
    where id = %(batch)s and dropped_at is null
    returning id
)
update sereno.archive_files set verified_at = null
where batch_id in (select id from held) and number = %(number)s
returning 1;

-- name: settle_batch
-- A batch whose files are all verified may be dropped after its grace period.
update sereno.archive_batches b
set verified_at = sereno.now(), drop_eligible_at = sereno.now() + make_interval(secs => %(grace)s), error = null
where id = %(batch)s and verified_at is null and children_moved
  and not exists (select from sereno.archive_files f where f.batch_id = b.id and f.verified_at is null)
  and exists (select from sereno.archive_files f where f.batch_id = b.id)
returning 1;

-- name: droppable
-- Batches whose grace period is over.
select id from sereno.archive_batches where dropped_at is null and drop_eligible_at <= sereno.now() order by id;

-- name: files_of
-- The files of a batch, as they should be in the storage.
select number, object, bytes, sha256, rows, keys_hash from sereno.archive_files where batch_id = %(batch)s order by number;

-- name: drop_batch
-- Check everything once more, and drop the table.
select sereno.drop_batch(%(batch)s);

-- name: batch_failed
-- Why a batch could not be exported or dropped.
update sereno.archive_batches set error = %(error)s where id = %(batch)s;
