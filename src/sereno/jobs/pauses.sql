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

-- name: known_queue
-- Names of queues: with jobs or finished jobs, served by a worker, carried or paused.
select coalesce(array_agg(distinct name), '{}') from (
    select queue as name from sereno.ready_queues() as queue
    union all select queue from (select queue from sereno.jobs order by id desc limit %(window)s) as newest
    union all select queue from (select queue from sereno.history order by id desc limit %(window)s) as finished
    union all select served from (select queues from sereno.sessions order by id desc limit 1000) as latest,
                                 jsonb_object_keys(queues) as served
    union all select queue from sereno.carried_queues
    union all select pauses.name from sereno.pauses where kind = 'queue'
) as known;

-- name: known_task
-- Names of tasks: declared in code, of jobs, or paused.
select coalesce(array_agg(distinct name), '{}') from (
    select tasks.name from sereno.tasks
    union all select task from (select task from sereno.jobs order by id desc limit %(window)s) as newest
    union all select task from (select task from sereno.history order by id desc limit %(window)s) as finished
    union all select pauses.name from sereno.pauses where kind = 'task'
) as known;

-- name: known_tenant
-- Tenants: of jobs, figures, schedules, recipients and tokens, or paused. The wanted one is looked up by index.
select coalesce(array_agg(distinct name), '{}') from (
    select tenant as name from (select tenant from sereno.jobs order by id desc limit %(window)s) as newest
    union all select tenant from (select tenant from sereno.history order by id desc limit %(window)s) as finished
    union all select tenant from (select tenant from sereno.tenant_hours order by hour desc limit %(window)s) as figures
    union all (select tenant from sereno.schedules where tenant = %(name)s limit 1)
    union all (select tenant from sereno.recipients where tenant = %(name)s limit 1)
    union all (select tenant from sereno.tokens where tenant = %(name)s limit 1)
    union all select pauses.name from sereno.pauses where kind = 'tenant'
) as known where name is not null;
