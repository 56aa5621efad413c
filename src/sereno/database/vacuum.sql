-- Vacuuming of the tables whose rows are inserted and deleted with every job.

-- name: tables_to_vacuum
-- Tables with many dead rows that the caller may vacuum: as their owner or, since PostgreSQL 17, with the privilege MAINTAIN.
select relname::text from pg_stat_user_tables
where relid = any(array(select to_regclass('sereno.' || name) from unnest(%(tables)s::text[]) as name)::oid[])
  and n_dead_tup > %(most)s::bigint + %(share)s::double precision * n_live_tup
  and case when current_setting('server_version_num')::integer >= 170000 then has_table_privilege(relid, 'maintain')
           else pg_has_role((select relowner from pg_class where oid = relid), 'usage') end
order by n_dead_tup desc;
