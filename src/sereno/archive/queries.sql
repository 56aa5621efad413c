-- Read models of the archive. Only its catalogue is read, one row per batch or file; never their contents.

-- name: kinds
-- One row per kind: moved but not verified, in files, in the grace period, dropped.
select b.kind, count(*), max(b.source),
       count(*) filter (where b.verified_at is null),
       coalesce(sum(b.rows) filter (where b.verified_at is null), 0)::bigint,
       count(*) filter (where b.verified_at is null and b.rows is null),
       coalesce(sum(f.rows), 0)::bigint, coalesce(sum(f.bytes), 0)::bigint, coalesce(sum(f.files), 0)::bigint,
       count(*) filter (where b.verified_at is not null and b.dropped_at is null),
       coalesce(sum(b.rows) filter (where b.verified_at is not null and b.dropped_at is null), 0)::bigint,
       min(b.drop_eligible_at) filter (where b.dropped_at is null),
       count(*) filter (where b.dropped_at is not null),
       coalesce(sum(b.rows) filter (where b.dropped_at is not null), 0)::bigint,
       coalesce(sum(f.failed), 0)::bigint + count(*) filter (where b.error is not null),
       min(b.moved_at) filter (where b.verified_at is null), max(b.moved_at), max(b.verified_at), max(b.dropped_at)
from sereno.archive_batches b
left join (
    select batch_id, sum(rows) filter (where verified_at is not null) as rows, sum(bytes) filter (where verified_at is not null) as bytes,
           count(*) filter (where verified_at is not null) as files, count(*) filter (where failed_at is not null) as failed
    from sereno.archive_files
    group by batch_id
) as f on f.batch_id = b.id
group by b.kind
order by b.kind;

-- name: kind_names
-- Every kind that was ever archived.
select distinct kind from sereno.archive_batches order by kind;

-- name: failures
-- Files that could not be written or verified, those that have waited longest first.
select f.batch_id, f.number, f.kind, f.object, f.tries, f.failed_at, f.error, b.dropped_at is null
from sereno.archive_files f
join sereno.archive_batches b on b.id = f.batch_id
where f.failed_at is not null
order by f.failed_at, f.batch_id, f.number
limit %(limit)s;

-- name: restored
-- Number of restored rows, up to a bound, and when the first of them may leave.
select kind, count(*), min(until) from (select kind, until from sereno.restored order by until limit %(bound)s) as found
group by kind
order by kind;

-- name: batches
-- Batches, newest first. A failure takes precedence over every other state.
-- `from_at`: limited to what clients can represent.
select b.id, b.kind, b.source,
       case when f.failed > 0 or b.error is not null then 'failed' when b.dropped_at is not null then 'dropped'
            when b.verified_at is not null then 'verified' else 'moved' end as state,
       b.rows, f.files, f.verified, f.failed, f.bytes,
       case when f.from_at is not null then greatest(f.from_at, timestamptz '0001-01-02 00:00Z') end,
       case when f.to_at is not null then least(f.to_at, timestamptz '9999-12-30 00:00Z') end,
       b.moved_at, b.verified_at, b.drop_eligible_at, b.dropped_at, coalesce(b.error, f.error)
from sereno.archive_batches b
cross join lateral (
    select count(*) as files, count(*) filter (where verified_at is not null) as verified,
           count(*) filter (where failed_at is not null) as failed, coalesce(sum(bytes) filter (where verified_at is not null), 0)::bigint as bytes,
           min(from_at) as from_at, max(to_at) as to_at, min(error) as error
    from sereno.archive_files where batch_id = b.id
) as f
where (%(kind)s::text is null or b.kind = %(kind)s)
  and (%(before)s::bigint is null or b.id < %(before)s)
  and (%(number)s::bigint is null or b.id = %(number)s)
  and (%(state)s::text is null or %(state)s = case
      when f.failed > 0 or b.error is not null then 'failed' when b.dropped_at is not null then 'dropped'
      when b.verified_at is not null then 'verified' else 'moved' end)
order by b.id desc
limit %(limit)s;

-- name: about
-- The details of a batch beyond its row in the list.
select held_in, key_columns, time_column, schema_version, coalesce(columns, '[]')::text, children_moved
from sereno.archive_batches where id = %(batch)s;

-- name: files
-- The files of a batch.
select number, object,
       case when failed_at is not null then 'failed' when verified_at is not null then 'verified'
            when uploaded_at is not null then 'uploaded' else 'planned' end,
       rows, bytes, sha256, keys_hash, first_id, last_id,
       case when from_at is not null then greatest(from_at, timestamptz '0001-01-02 00:00Z') end,
       case when to_at is not null then least(to_at, timestamptz '9999-12-30 00:00Z') end,
       uploaded_at, verified_at, checked_at, tries, failed_at, error
from sereno.archive_files
where batch_id = %(batch)s and number > %(after)s
order by number
limit %(limit)s;

-- name: days
-- The days that the files of a kind cover. `rows` and `bytes` are those of files that begin on the day; a file that has
-- not been measured yet has its first day in its name.
select day::date, kind, coalesce(sum(rows) filter (where begins = day), 0)::bigint,
       coalesce(sum(bytes) filter (where begins = day), 0)::bigint, count(*),
       case when bool_or(failed) then 'failed' when bool_or(waits) then 'waiting' else 'archived' end
from (
    select kind, rows, bytes, failed_at is not null as failed, verified_at is null as waits,
           coalesce(date_trunc('day', from_at at time zone 'UTC'), to_date(substring(object from '/(\d{4}/\d\d/\d\d)/'), 'YYYY/MM/DD')) as begins,
           date_trunc('day', to_at at time zone 'UTC') as ends
    from sereno.archive_files
    where (%(kind)s::text is null or kind = %(kind)s)
) as file
cross join lateral generate_series(greatest(begins, %(first)s::date::timestamp),
                                   least(coalesce(ends, begins), %(last)s::date::timestamp), interval '1 day') as day
group by day, kind
order by day, kind;

-- name: whereabouts
-- Files whose range of ids includes this one, the newest batch first, and batches that have not been measured yet.
-- A table that is still held is searched; a row in a file only may be there.
select kind, batch, number, object, state, held from (
    select f.kind, f.batch_id as batch, f.number, f.object,
           case when f.failed_at is not null then 'failed' when f.verified_at is not null then 'verified' else 'waiting' end as state,
           b.dropped_at is null as held, b.held_in, b.key_columns
    from sereno.archive_files f
    join sereno.archive_batches b on b.id = f.batch_id
    where f.kind = %(kind)s and f.first_id <= %(id)s and f.last_id >= %(id)s
    union all
    select b.kind, b.id, null, null, 'waiting', true, b.held_in, b.key_columns
    from sereno.archive_batches b
    where b.kind = %(kind)s and b.verified_at is null
      and not exists (select from sereno.archive_files f where f.batch_id = b.id and f.first_id is not null)
) as candidate
where not held or sereno.is_held(held_in, key_columns[1], %(id)s)
order by batch desc, number
limit %(limit)s;
