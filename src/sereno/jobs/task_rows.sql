-- Tasks as declared by the code of services.

-- name: declare
-- Store the tasks of a service in the order of their names, so that two starting workers cannot deadlock. An unchanged
-- task is not written. Tasks that the code no longer has stay: another version may still have them.
insert into sereno.tasks as known (name, service, tenants)
select name, %(service)s, tenants
from jsonb_to_recordset(%(tasks)s::text::jsonb) as declared(name text, tenants boolean)
order by name
on conflict (name, service) do update set tenants = excluded.tenants, declared_at = sereno.now()
where known.tenants <> excluded.tenants;

-- name: open_to_tenants
-- If two services declare a task of the same name, it is closed as soon as one of them closes it.
select name, bool_and(tenants) from sereno.tasks group by name order by name;
