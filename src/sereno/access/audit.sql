-- Manual changes: the audit, pauses, and the jobs that a filter finds. Each change is audited in its own transaction.

-- name: audit
-- Written in the transaction that makes the change, or not at all.
insert into sereno.audit (actor, action, subject, detail)
values (%(actor)s, %(action)s, %(subject)s, %(detail)s::text::jsonb);

-- name: pause
-- The first pause stays on record. But a pause set by a tenant is taken over when an operator without a tenant pauses too, so
-- that the tenant cannot resume it.
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

-- name: matching
-- The next jobs that a filter finds, by id, after the last one seen: a bulk change processes them in batches.
select id from (
    (select id
    from sereno.jobs
    where %(live)s and id > %(after)s
      -- use: jobs.live_filter
    order by id limit %(limit)s)
    union all
    (select id
    from sereno.history
    where %(finished)s and id > %(after)s
      -- use: jobs.finished_filter
    order by id limit %(limit)s)
) as every
order by id
limit %(limit)s;

-- name: tally
-- How many jobs a filter finds, by task, queue and tenant; reads at most the bound of live and of finished jobs.
select task, queue, tenant, count(*) from (
    (select task, queue, tenant
    from sereno.jobs
    where %(live)s
      -- use: jobs.live_filter
    limit %(bound)s + 1)
    union all
    (select task, queue, tenant
    from sereno.history
    where %(finished)s
      -- use: jobs.finished_filter
    limit %(bound)s + 1)
) as found
group by task, queue, tenant
order by count(*) desc, task, queue, tenant;
