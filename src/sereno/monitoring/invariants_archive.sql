-- The invariants of the archive, as in invariants.sql: each query must return no rows, and returns at most twenty.

-- name: archive_tables
-- A batch that is not dropped has its table, and every archive table belongs to a batch. Both are read from the same
-- snapshot; a table and its batch are created in the same transaction.
with held as materialized (
    select relname::text as name from pg_class join pg_namespace on pg_namespace.oid = relnamespace
    where relkind = 'r' and nspname = rtrim('sereno_archive.', '.')
),
batches as materialized (select id, held_in from sereno.archive_batches where dropped_at is null)
select id, 'its table ' || held_in || ' does not exist' as what
from batches where not exists (select from held where held.name = batches.held_in)
union all
select 0, 'the table ' || name || ' of the archive belongs to no batch'
from held where not exists (select from batches where batches.held_in = held.name)
order by 1, 2 limit 20;

-- name: archive_held
-- An archive table holds as many rows as were counted when its files were planned, with the keys and values of its verified
-- files. The newest twenty tables up to the window are checked; without a window, all. A table that is dropped meanwhile, or
-- that this role may not read because it comes from a user's table, is left out.
with held as materialized (
    select id, held_in, rows from sereno.archive_batches
    where dropped_at is null and rows <= coalesce(%(window)s::bigint, rows)
      and has_table_privilege(to_regclass('sereno_archive.' || quote_ident(held_in)), 'select')
    order by id desc limit case when %(window)s::bigint is null then null else 20 end
),
measured as materialized (
    select held.id, held_in, held.rows, sum(found.rows) as found,
           bool_and(file.verified_at is null
                    or (file.keys_hash = found.keys_hash and file.content_hash = found.content_hash)) as is_same
    from held join sereno.archive_files file on file.batch_id = held.id
    cross join lateral sereno.measure_file(held.id, file.number) as found
    group by held.id, held_in, held.rows
)
select id, 'its table ' || held_in || case when found = rows then ' holds other rows than its files'
                                           else ' holds ' || found || ' rows, and ' || rows || ' were counted' end
from measured
where found <> rows or not is_same
order by id limit 20;

-- name: archive_verified
-- A verified or dropped batch has files that are all verified and hold all its rows.
with filed as (
    select batch_id, sum(rows) as rows, bool_and(verified_at is not null) as is_verified
    from sereno.archive_files
    where batch_id in (select id from sereno.archive_batches where verified_at is not null order by id desc limit %(window)s)
    group by batch_id
)
select batch.id, 'it is ' || case when batch.dropped_at is null then 'verified' else 'dropped' end
                 || case when filed.is_verified then ', its files hold ' || filed.rows || ' rows, and it has ' || coalesce(batch.rows::text, 'none')
                         when filed.is_verified is null then ', and has no file'
                         else ', and one of its files is not verified' end
from (select id, rows, dropped_at from sereno.archive_batches where verified_at is not null order by id desc limit %(window)s) as batch
left join filed on filed.batch_id = batch.id
where filed.is_verified is not true or filed.rows is distinct from batch.rows
order by batch.id limit 20;
