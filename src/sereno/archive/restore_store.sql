-- Restore archived rows, and remove them when their time is over.

-- name: one_at_a_time
-- One restore at a time: without a unique index, duplicates are found by a query, and two restores would race.
select pg_advisory_xact_lock(hashtext('sereno.restore'));

-- name: kind
-- The newest batch of a kind defines its key; no row if the kind was never archived.
select b.kind, b.source, b.key_columns, b.time_column,
       (select format_type(atttypid, -1) from pg_attribute
        where attrelid = sereno.restore_target(b.kind, b.source) and attname = b.key_columns[1] and not attisdropped)
from sereno.archive_batches b where b.kind = %(kind)s order by b.id desc limit 1;

-- name: sources
-- Where wanted rows may be, the newest batch first: pages of a table that is still held, or a file. A batch that has
-- not been measured may have any rows. `moved`: batches that were moved in the same transaction as others.
select b.id, coalesce(f.number, 0), b.kind, b.held_in is not null, coalesce(f.first_block, 0), coalesce(f.last_block, 4294967294),
       case when b.held_in is not null then
           coalesce(pg_relation_size(to_regclass('sereno_archive.' || quote_ident(b.held_in))) / current_setting('block_size')::bigint, 0) end,
       coalesce(f.object, ''), coalesce(f.bytes, 0), coalesce(f.sha256, ''), f.rows, b.key_columns, b.time_column, b.moved_at
from sereno.archive_batches b
left join sereno.archive_files f on f.batch_id = b.id
where b.kind = %(kind)s
  and (b.held_in is not null or f.verified_at is not null)
  and (%(low)s::bigint is null or f.first_id is null or (f.first_id <= %(high)s and f.last_id >= %(low)s))
  and (%(from_at)s::timestamptz is null or f.to_at is null or f.to_at >= %(from_at)s)
  and (%(to_at)s::timestamptz is null or f.from_at is null or f.from_at < %(to_at)s)
  and (%(moved)s::timestamptz[] is null or b.moved_at = any(%(moved)s))
order by b.id desc, f.number;

-- name: rows
-- Restore rows of a file.
select matched, restored, present
from sereno.restore_rows(%(batch)s, %(names)s, %(rows)s::text::jsonb, sereno.now() + make_interval(secs => %(keep)s), %(without)s);

-- name: held
-- Restore rows of a table that is still held.
select matched, restored, present
from sereno.restore_held(%(batch)s, %(first)s, %(last)s, %(numbers)s, %(from_at)s, %(to_at)s,
                         sereno.now() + make_interval(secs => %(keep)s), %(without)s);

-- name: count_held
-- Count the rows that `held` would restore.
select matched from sereno.count_held(%(batch)s, %(first)s, %(last)s, %(numbers)s, %(from_at)s, %(to_at)s);

-- name: marked
-- Which of these rows were restored.
select key from sereno.restored where kind = %(kind)s and key = any(%(keys)s);

-- name: expired_kinds
-- Kinds with expired rows; parents before their children.
select kind from sereno.restored where until <= sereno.now() group by kind order by kind in ('attempts', 'receipts'), kind;

-- name: remove_expired
-- Remove some expired rows of a kind.
select gone, changed from sereno.leave_restored(%(kind)s, %(most)s);

-- name: doubled
-- Keys that may be in two files: of restored rows that were changed, and of rows that are restored now.
select key from sereno.archived_again where kind = %(kind)s
union
select key from sereno.restored where kind = %(kind)s;

-- name: files
-- Files of fully verified batches, oldest first, that overlap a time span.
select b.id, f.number, b.kind, f.object, f.bytes, f.sha256, f.rows, b.key_columns, b.time_column, b.columns::text
from sereno.archive_batches b
join sereno.archive_files f on f.batch_id = b.id
where b.verified_at is not null and f.failed_at is null and f.rows > 0
  and (%(kind)s::text is null or b.kind = %(kind)s)
  and (%(from_at)s::timestamptz is null or f.to_at >= %(from_at)s)
  and (%(to_at)s::timestamptz is null or f.from_at < %(to_at)s)
order by b.id, f.number;

-- name: checkable
-- A page of files that were verified once, with everything that the manifest of each has to say, in its order.
select f.object, b.kind, b.source, f.batch_id, f.number, b.schema_version, b.key_columns, b.time_column, b.columns::text,
       f.rows, f.keys_hash, f.content_hash, f.from_at, f.to_at, f.first_id, f.last_id, f.bytes, f.sha256
from sereno.archive_files f
join sereno.archive_batches b on b.id = f.batch_id
where f.verified_at is not null and (f.batch_id, f.number) > (%(after_batch)s, %(after_number)s)
  and (%(batch)s::bigint is null or f.batch_id = %(batch)s)
  and (%(since)s::timestamptz is null or f.verified_at >= %(since)s)
order by f.batch_id, f.number
limit %(limit)s;

-- name: sampled
-- A random sample of them.
select f.object, b.kind, b.source, f.batch_id, f.number, b.schema_version, b.key_columns, b.time_column, b.columns::text,
       f.rows, f.keys_hash, f.content_hash, f.from_at, f.to_at, f.first_id, f.last_id, f.bytes, f.sha256
from sereno.archive_files f
join sereno.archive_batches b on b.id = f.batch_id
where f.verified_at is not null
  and (%(batch)s::bigint is null or f.batch_id = %(batch)s)
  and (%(since)s::timestamptz is null or f.verified_at >= %(since)s)
order by random()
limit %(limit)s;

-- name: how_many
-- Number and bytes of the files to check.
select count(*), coalesce(sum(bytes), 0)::bigint
from sereno.archive_files
where verified_at is not null
  and (%(batch)s::bigint is null or batch_id = %(batch)s)
  and (%(since)s::timestamptz is null or verified_at >= %(since)s);

-- name: known
-- Which of these objects are files of a batch.
select object from sereno.archive_files where object = any(%(names)s);

-- name: marked_range
-- The range of restored keys.
select min(key::bigint), max(key::bigint) from sereno.restored where kind = %(kind)s;
