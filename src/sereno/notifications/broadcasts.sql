-- Broadcasts: deliveries that become due at a rate, and events that are cancelled.
-- Lock order in every transaction: the event, then batches by id, deliveries by id.

-- name: pace
-- Gives the batches that a step of the fan-out has made, and their deliveries, due times at the rate of the event. What was
-- missed for longer than the tolerance is not caught up. Held deliveries are spread in the same way after their time.
with clock as materialized (select sereno.now() as now),
event as materialized (
    select id, rate, coalesce(paced, 0) as paced,
           case when paced_from + make_interval(secs => paced / rate + %(tolerance)s) >= now then paced_from
                else now - make_interval(secs => coalesce(paced, 0) / rate) end as paced_from
    from sereno.events cross join clock where id = %(event)s
),
placed as materialized (
    select b.id, b.channel, b.account, b.deliveries,
           greatest(b.due_at, event.paced_from)
           + make_interval(secs => (event.paced + sum(cardinality(b.deliveries)) over (order by b.id) - cardinality(b.deliveries)) / event.rate) as due_at
    from sereno.batches b cross join event where b.id = any(%(batches)s::bigint[])
),
batched as (
    update sereno.batches set due_at = placed.due_at from placed
    where batches.id = placed.id and batches.id = any(%(batches)s)
),
delivery as materialized (select unnest(deliveries) as id, due_at from placed),
due as (
    update sereno.deliveries set due_at = delivery.due_at from delivery
    where deliveries.id = delivery.id and deliveries.id = any(array(select id from delivery))
),
kept as (
    update sereno.events
    set paced = event.paced + (select count(*) from delivery), paced_from = event.paced_from
    from event where events.id = event.id
    returning events.paced_from + make_interval(secs => events.paced / events.rate) as due_at
)
select coalesce((select json_agg(json_build_array(channel, account, count, due_in) order by channel, account, due_in)
                 from (select channel, account, ceil(greatest(0, extract(epoch from due_at - (select now from clock)))) as due_in,
                              sum(cardinality(deliveries)) as count
                       from placed group by 1, 2, 3) as waiting), '[]')::text,
       (select extract(epoch from due_at - (select now from clock))::double precision from kept);

-- name: cancel
-- Ends the fan-out of an event, after its current step, and prevents that more of its deliveries are sent. Returns its tenant,
-- and the queue of the service that declares it.
update sereno.events set cancelled_at = sereno.now(), matched_at = coalesce(matched_at, sereno.now())
where id = %(event)s and cancelled_at is null
returning tenant, coalesce((select definition ->> 'queue' from sereno.event_types where name = events.type), 'notifications');

-- name: skip_cancelled
-- Skips the pending deliveries of a cancelled event in the next batches that wait, and removes them from these. What is
-- being claimed meanwhile is skipped by the job that claims it. A delivery that carries others of a digest is not skipped.
with page as materialized (
    select id, deliveries from sereno.batches
    where purpose = 'send' and job_id is null and id > %(after)s order by id limit %(size)s for update skip locked
),
mine as materialized (
    select d.id from sereno.deliveries d
    where d.id = any(array(select unnest(deliveries) from page)) and d.event_id = %(event)s and d.state = 'pending'
      -- By key: `exists` could read all deliveries.
      and (d.digest is null or (select part.id from sereno.deliveries part
                                where part.recipient_id = d.recipient_id and part.digest = d.digest and part.digest_of = d.id limit 1) is null)
    order by d.id for update
),
skipped as (
    update sereno.deliveries set state = 'skipped', reason = 'cancelled', changed_at = sereno.now()
    where id = any(array(select id from mine)) and state = 'pending'
    returning channel, tenant
),
rest as materialized (
    select page.id, array_agg(each.id order by each.place) filter (where mine.id is null) as deliveries
    from page cross join lateral unnest(page.deliveries) with ordinality as each(id, place) left join mine on mine.id = each.id
    group by page.id having count(mine.id) > 0
),
shortened as (
    update sereno.batches set deliveries = rest.deliveries from rest where batches.id = rest.id and rest.deliveries is not null
),
emptied as (
    delete from sereno.batches where id = any(array(select id from rest where deliveries is null))
)
select (select max(id) from page),
       coalesce((select json_agg(json_build_array(channel, (select type from sereno.events where id = %(event)s), tenant, 'skipped', 'cancelled', count))
                 from (select channel, tenant, count(*) as count from skipped group by channel, tenant) as each), '[]')::text;
