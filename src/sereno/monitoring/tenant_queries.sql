-- Tenants, as far as something was done for them lately: who has how much of the house, and how one of them stands.

-- name: list
-- Who had work done, was told something, or is stopped; with what else is known of those on the page. Schedules are counted
-- up to a bound, and only for them. `house`: seconds of work for everybody, also without a tenant.
with clock as materialized (
    select date_trunc('hour', sereno.now() - make_interval(secs => %(since)s), 'UTC') as begun
),
work as materialized (
    select tenant, sum(ended)::bigint as ended, sum(failed)::bigint as failed, sum(seconds) as seconds
    from sereno.tenant_hours where hour >= (select begun from clock) group by tenant
),
post as materialized (
    select tenant, sum(matched)::bigint as deliveries
    from sereno.delivery_tenant_hours where hour >= (select begun from clock) and tenant <> '' group by tenant
),
stopped as materialized (
    select name as tenant, paused_at from sereno.pauses where kind = 'tenant'
),
house as materialized (
    select greatest((select coalesce(sum(run_seconds), 0) from sereno.minutes where minute >= (select begun from clock)),
                    (select coalesce(sum(seconds), 0) from work)) as seconds
),
every as (
    select tenant, coalesce(ended, 0) as ended, coalesce(failed, 0) as failed, coalesce(seconds, 0) as seconds,
           coalesce(deliveries, 0) as deliveries, paused_at
    from work full join post using (tenant) full join stopped using (tenant)
),
page as materialized (
    select *
    from every
    where (%(pattern)s::text is null or tenant ilike %(pattern)s)
-- use: search.terms_begin
               when 'tenant' then tenant like any(patterns)
               when 'paused' then case when paused_at is null then 'no' else 'yes' end like any(patterns)
               when 'jobs' then ended >= low and ended < high
               when 'failed' then failed >= low and failed < high
               when 'seconds' then floor(seconds) >= low and floor(seconds) < high
               when 'deliveries' then deliveries >= low and deliveries < high
               else tenant ilike any(patterns)
-- use: search.terms_end
    order by case %(sort)s::text when 'failed' then failed when 'deliveries' then deliveries
                  when 'jobs' then ended when 'name' then 0 else seconds end desc, tenant
    offset %(skip)s limit %(limit)s
)
select row_to_json(line)::text
from (select page.*, house.seconds as house, weights.weight,
             (select count(*) from (select from sereno.schedules where schedules.tenant = page.tenant
                                    limit %(bound)s + 1) as counted) as schedules
      from page cross join house left join sereno.weights on weights.key = page.tenant
      order by case %(sort)s::text when 'failed' then failed when 'deliveries' then deliveries
                    when 'jobs' then ended when 'name' then 0 else page.seconds end desc, page.tenant) as line;

-- name: hours
-- Seconds of work by the hour for those who had most, or for one; and for everybody, which has no name.
with clock as materialized (
    select date_trunc('hour', sereno.now() - make_interval(secs => %(since)s), 'UTC') as begun
),
top as materialized (
    select tenant from sereno.tenant_hours
    where hour >= (select begun from clock) and (%(tenant)s::text is null or tenant = %(tenant)s)
    group by tenant order by sum(seconds) desc, tenant limit %(most)s
)
select date_trunc('hour', hour, 'UTC'), tenant, sum(seconds)
from sereno.tenant_hours
where hour >= (select begun from clock) and tenant = any(array(select tenant from top))
group by 1, 2
union all
select date_trunc('hour', minute, 'UTC'), null, sum(run_seconds)
from sereno.minutes where minute >= (select begun from clock) group by 1
order by 1, 2;

-- name: states
-- Jobs of one tenant by state: among the newest that live, that are dead, and that ended otherwise.
select state, count(*)
from ((select state, tenant from sereno.jobs order by id desc limit %(window)s)
      union all
      (select state, tenant from sereno.history where state = 'dead' order by id desc limit %(window)s)
      union all
      (select state, tenant from sereno.history where state in ('succeeded', 'cancelled')
       order by id desc limit %(window)s)) as newest
where tenant = %(tenant)s
group by state;

-- name: standing
-- Whether it is stopped, by whom and why, and what it weighs.
select row_to_json(line)::text
from (select pauses.paused_at, pauses.paused_by, pauses.note, weights.weight
      from (values (%(tenant)s::text)) as wanted(tenant)
      left join sereno.pauses on pauses.kind = 'tenant' and pauses.name = wanted.tenant
      left join sereno.weights on weights.key = wanted.tenant) as line;

-- name: limiters
-- Its own part of the limits that are kept by tenant; also of those that it has not used yet.
with clock as materialized (select sereno.now() as now),
kept as materialized (
    select * from sereno.limits where key = '{tenant}' order by name limit %(most)s
)
select row_to_json(line)::text
from (select kept.name, kept.kind, kept.slots, kept.units, kept.period, kept.burst, coalesce(sereno.slots_taken(limiter.held), 0) as taken,
             case when limiter.closed_until > clock.now then limiter.closed_until end as closed_until
      from clock cross join kept left join sereno.limiters limiter on limiter.id = sereno.limiter_of(kept.name, %(tenant)s)
      order by kept.name) as line;
