-- What a person may change: pauses, and the jobs that a filter finds. Each change goes into the audit with it.

-- name: audit
-- Written in the transaction that makes the change, or not at all.
insert into sereno.audit (actor, action, subject, detail)
values (%(actor)s, %(action)s, %(subject)s, %(detail)s::text::jsonb);

-- name: pause
-- Who paused first stays on the record; but what a tenant's own people have paused becomes the house's when that pauses
-- it too, so that they cannot lift it.
insert into sereno.pauses as p (kind, name, paused_by, note, by_tenant)
values (%(kind)s, %(name)s, %(actor)s, %(note)s, %(by_tenant)s)
on conflict (kind, name) do update
set paused_by = excluded.paused_by, note = excluded.note, paused_at = sereno.now(), by_tenant = excluded.by_tenant
where p.by_tenant and not excluded.by_tenant
returning true;

-- name: resume
-- Sleeping workers are told, because what was held back is ready already.
with gone as (
    delete from sereno.pauses where kind = %(kind)s and name = %(name)s and (by_tenant or not %(by_tenant)s) returning kind, name
)
select pg_notify('sereno.ready', case when kind = 'queue' then name else '' end) from gone;

-- name: matching
-- The next jobs that a filter finds, by id, after the last one seen: a bulk change walks them in batches.
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
-- How many a filter finds, by task, queue and tenant; no more than the bound are looked at on either side.
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
