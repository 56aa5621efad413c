-- Sizes of tables from the statistics of PostgreSQL; no rows are counted.

-- name: tables
-- Tables of sereno with their indexes, largest first; daily partitions are summed into one table.
with own as materialized (
    select child.oid, child.reltuples,
           case when child.relname ~ '_([0-9]{8}|default)$' then coalesce(parent.relname, child.relname) else child.relname end as name
    from pg_class child
    left join pg_inherits on inhrelid = child.oid
    left join pg_class parent on parent.oid = inhparent
    where child.relkind = 'r'
      and child.relnamespace = (select relnamespace from pg_class where oid = 'sereno.jobs'::regclass)
)
select name::text, count(*)::integer, coalesce(sum(pg_total_relation_size(own.oid)), 0)::bigint,
       coalesce(sum(greatest(own.reltuples, n_live_tup, 0)), 0)::bigint, coalesce(sum(n_dead_tup), 0)::bigint,
       max(greatest(last_autovacuum, last_vacuum))
from own left join pg_stat_user_tables on relid = own.oid
group by name
order by 3 desc, 1;

-- name: days
-- The days of the history, with the estimated number of jobs and the size in bytes.
select to_date(right(child.relname, 8), 'YYYYMMDD'), greatest(child.reltuples, n_live_tup, 0)::bigint,
       coalesce(pg_total_relation_size(child.oid), 0)
from pg_inherits
join pg_class child on child.oid = inhrelid
left join pg_stat_user_tables on relid = child.oid
where inhparent = 'sereno.history_done'::regclass and child.relname ~ '^history_done_[0-9]{8}$'
order by 1;

-- name: today
-- The day of the history that is being written.
select (sereno.now() at time zone 'UTC')::date;

