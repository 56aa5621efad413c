-- Tasks as rows: what the code declares of them.

-- name: declare
-- What the code of a service says, in the order of the names, so that two workers that start never wait for each other in
-- a ring. Said again unchanged, nothing is written. What the code no longer has stays: another version may still have it.
insert into sereno.tasks as known (name, service, tenants)
select name, %(service)s, tenants
from jsonb_to_recordset(%(tasks)s::text::jsonb) as said(name text, tenants boolean)
order by name
on conflict (name, service) do update set tenants = excluded.tenants, declared_at = sereno.now()
where known.tenants <> excluded.tenants;

-- name: open_to_tenants
-- Where two services have a task of the same name, it is closed as soon as one of them says so.
select name, bool_and(tenants) from sereno.tasks group by name order by name;
