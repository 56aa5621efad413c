-- Tasks as declared by the code of services.

-- name: declare
-- Store the tasks of a service in the order of their names, so that two starting workers cannot deadlock. An unchanged
-- task is not written. Tasks that the code no longer has stay: another version may still have them.
insert into sereno.tasks as known (name, service, tenants, queue, priority, version, parameters)
select name, %(service)s, tenants, queue, priority, version, parameters
from jsonb_to_recordset(%(tasks)s::text::jsonb) as declared(
    name text, tenants boolean, queue text, priority smallint, version integer, parameters jsonb)
order by name
on conflict (name, service) do update set
    tenants = excluded.tenants, queue = excluded.queue, priority = excluded.priority, version = excluded.version,
    parameters = excluded.parameters, declared_at = sereno.now()
where (known.tenants, known.queue, known.priority, known.version, known.parameters)
      is distinct from (excluded.tenants, excluded.queue, excluded.priority, excluded.version, excluded.parameters);

-- name: open_to_tenants
-- If two services declare a task of the same name, it is closed as soon as one of them closes it.
select name, bool_and(tenants) from sereno.tasks group by name order by name;

-- name: declared
-- The newest declaration of each task, closed to tenants as soon as one service closes it.
select jsonb_build_object(
    'name', name, 'queue', (array_agg(queue order by declared_at desc))[1],
    'priority', (array_agg(priority order by declared_at desc))[1],
    'version', (array_agg(version order by declared_at desc))[1],
    'tenants', bool_and(tenants),
    'parameters', (array_agg(parameters order by declared_at desc))[1],
    'services', array_agg(service order by declared_at desc))::text
from sereno.tasks
where (name = %(name)s or %(name)s::text is null) and not starts_with(name, %(own)s)
group by name order by name;

-- name: keys_for
-- Limit, order and fair keys by the rules that the code has stored.
select nullif(sereno.keys_for(%(task)s, %(queue)s, %(tenant)s, %(args)s::text::jsonb), '{}'::jsonb)::text;
