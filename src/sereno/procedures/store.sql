-- Stored procedures that jobs may call, their signatures in the catalogue, and the results of calls.

-- name: allow
-- Replaces an earlier entry. Returns whether there was one.
with before as materialized (select true as was from sereno.procedures where target = %(target)s and name = %(name)s)
insert into sereno.procedures (target, name, signature, given, timeout, lock_timeout, note, allowed_by)
values (%(target)s, %(name)s, %(signature)s::text::jsonb, %(given)s::text::jsonb, %(timeout)s, %(lock_timeout)s, %(note)s, %(actor)s)
on conflict (target, name) do update
set signature = excluded.signature, given = excluded.given, timeout = excluded.timeout,
    lock_timeout = excluded.lock_timeout, note = excluded.note, allowed_by = excluded.allowed_by,
    allowed_at = excluded.allowed_at
returning row_to_json(procedures)::text, (select count(*) from before);

-- name: revoke
-- Stop jobs from calling it; the results of earlier calls stay.
delete from sereno.procedures where target = %(target)s and name = %(name)s returning row_to_json(procedures)::text;

-- name: find
-- One allowed procedure.
select row_to_json(procedures)::text from sereno.procedures where target = %(target)s and name = %(name)s;

-- name: list
-- All allowed procedures, each with its newest successful call.
select row_to_json(p)::text, row_to_json(last)::text
from (select * from sereno.procedures order by target, name limit %(most)s) as p
left join lateral (
    select job_id, attempt, seconds, finished_at from sereno.procedure_runs as r
    where r.target = p.target and r.name = p.name
    order by finished_at desc limit 1
) as last on true
order by p.target, p.name;

-- name: runs
-- The newest successful calls of a procedure.
select row_to_json(r)::text
from (select job_id, attempt, seconds, finished_at, sereno.shown(result) as result from sereno.procedure_runs
      where target = %(target)s and name = %(name)s
      order by finished_at desc limit %(most)s) as r;

-- name: keep_run
-- Written only by the attempt that holds the job. A few expired rows are deleted with it, so that no other process has
-- to clean up this table.
with old as materialized (
    select job_id, attempt from sereno.procedure_runs
    where finished_at < sereno.now() - make_interval(days => %(days)s)
    order by finished_at limit %(sweep)s
    for update skip locked
),
forgotten as (
    delete from sereno.procedure_runs
    where job_id = any(array(select job_id from old)) and (job_id, attempt) in (select job_id, attempt from old)
)
insert into sereno.procedure_runs (job_id, attempt, target, name, seconds, result)
select id, attempt, %(target)s, %(name)s, %(seconds)s, %(result)s::text::jsonb
from sereno.jobs where id = %(id)s and attempt = %(attempt)s and session_id = %(session)s
on conflict (job_id, attempt) do update set result = excluded.result
returning job_id;

-- name: resolve
-- Every function and procedure of exactly this name, callable or not. The first type is the return type, the others are
-- those of the parameters, written independently of the search path.
select json_build_object(
    'kind', p.prokind, 'definer', case when p.prosecdef then pg_get_userbyid(p.proowner) end, 'returns_set', p.proretset,
    'names', coalesce(p.proargnames, '{}'), 'modes', coalesce(p.proargmodes::text[], '{}'), 'defaults', p.pronargdefaults,
    'types', typed.types)::text
from pg_catalog.pg_proc p
join pg_catalog.pg_namespace n on n.oid = p.pronamespace
cross join lateral (
    select json_agg(json_build_object(
        'category', t.typcategory, 'kind', t.typtype, 'is_json', coalesce(nullif(t.typbasetype, 0), t.oid) in (114, 3802),
        'type', case when coalesce(e.typnamespace, t.typnamespace) = 'pg_catalog'::regnamespace then format_type(t.oid, -1)
                     else quote_ident(s.nspname) || '.' || quote_ident(coalesce(e.typname, t.typname))
                          || case when e.oid is null then '' else '[]' end end) order by place) as types
    from unnest(p.prorettype || coalesce(p.proallargtypes, p.proargtypes::oid[])) with ordinality as argument(type, place)
    join pg_catalog.pg_type t on t.oid = argument.type
    left join pg_catalog.pg_type e on e.oid = t.typelem and t.typcategory = 'A' and t.typlen = -1 and e.typarray = t.oid
    join pg_catalog.pg_namespace s on s.oid = coalesce(e.typnamespace, t.typnamespace)
) as typed
where n.nspname = %(schema)s and p.proname = %(name)s and p.prokind in ('f', 'p')
order by p.oid
limit 100;

-- name: login
-- The login, and what it can do that no procedure should be able to, itself or through a role that it can become:
-- `SET ROLE` and `RESET ROLE` are available to every procedure that it calls.
with mine as materialized (
    select oid, rolname, rolsuper, rolcreaterole, rolreplication, rolbypassrls
    from pg_catalog.pg_roles where pg_has_role(session_user, oid, 'member')
)
select session_user::text,
       (select rolname::text from mine where rolsuper order by rolname = session_user desc, rolname limit 1),
       (select rolname::text from mine
        where rolcreaterole or rolreplication or rolbypassrls
           or rolname in ('pg_read_all_data', 'pg_write_all_data', 'pg_read_server_files', 'pg_write_server_files',
                          'pg_execute_server_program', 'pg_signal_backend', 'pg_maintain')
        order by rolname limit 1),
       (select quote_ident(nspname) || '.' || quote_ident(relname)
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace, mine
        where nspname = any(%(schemas)s::text[]) and relkind in ('r', 'p', 'v', 'm')
          and (relowner = mine.oid or has_any_column_privilege(mine.oid, c.oid, 'select, insert, update')
               or has_table_privilege(mine.oid, c.oid, 'delete, truncate, trigger')
               or has_schema_privilege(mine.oid, n.oid, 'create'))
        order by 1 limit 1);

-- name: may_execute
-- Whether the login may call a procedure of this name and use its schema.
select has_schema_privilege(n.oid, 'usage') and bool_or(has_function_privilege(p.oid, 'execute'))
from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
where n.nspname = %(schema)s and p.proname = %(name)s
group by n.oid;
