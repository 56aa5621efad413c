-- Schedules that the code of a service declares: conflicts with their keys, and those that could not be written.

-- name: move_aside
-- Rename tenants' schedules whose key the application declares; everything else about them stays, and they still run.
-- Locked by key, like every change of several schedules. If the new name is taken too, a random one is used, so that no
-- tenant can block it by creating that name as well.
with declared as materialized (
    select * from jsonb_to_recordset(%(rows)s::text::jsonb) as d(key text, tenant text)
),
found as materialized (
    select s.id, s.key, s.tenant
    from sereno.schedules s join declared d on s.key = d.key
    where s.declared_by is null and s.tenant is not null and s.tenant is distinct from d.tenant
    order by s.key
    for update of s
),
renamed as materialized (
    -- A name has at most 500 characters.
    select id, key, tenant, left(key, 240) || '@' || left(tenant, 240) as new_key from found
)
update sereno.schedules s
set key = new_key || case when exists (select from sereno.schedules other where other.key = new_key)
                            or exists (select from renamed other where other.new_key = renamed.new_key and other.id < renamed.id)
                          then '-' || left(gen_random_uuid()::text, 13) else '' end,
    changed_at = sereno.now()
from renamed
where s.id = any(array(select id from found)) and s.id = renamed.id
returning renamed.key, s.key, s.tenant;

-- name: record_refused
-- Declarations of this service that could not be written; replaces the record of its previous start.
with refused as materialized (
    select * from jsonb_to_recordset(%(rows)s::text::jsonb) as r(key text, problem text)
),
gone as (
    delete from sereno.refused_declarations
    where service = %(service)s and key = any(array(
        select key from sereno.refused_declarations
        where service = %(service)s and key <> all(array(select key from refused))
        order by key
        for update))
)
insert into sereno.refused_declarations as before (service, key, problem, refused_at)
select %(service)s, key, problem, sereno.now() from refused order by key
on conflict (service, key) do update
    set problem = excluded.problem, refused_at = excluded.refused_at
    where before.problem <> excluded.problem;
