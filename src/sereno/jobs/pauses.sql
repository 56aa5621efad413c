-- Pauses of queues, tasks and tenants.

-- name: pause
-- Pauses a queue, task or tenant. The row of the first pause stays, but if an operator pauses what a tenant's user has
-- paused, the row becomes the operator's, so that the tenant's users cannot resume it.
insert into sereno.pauses as p (kind, name, paused_by, note, by_tenant)
values (%(kind)s, %(name)s, %(actor)s, %(note)s, %(by_tenant)s)
on conflict (kind, name) do update
set paused_by = excluded.paused_by, note = excluded.note, paused_at = sereno.now(), by_tenant = excluded.by_tenant
where p.by_tenant and not excluded.by_tenant
returning true;

-- name: resume
-- Notifies idle workers, because the jobs that were paused are ready already.
with gone as (
    delete from sereno.pauses where kind = %(kind)s and name = %(name)s and (by_tenant or not %(by_tenant)s) returning kind, name
)
select pg_notify('sereno.ready', case when kind = 'queue' then name else '' end) from gone;
