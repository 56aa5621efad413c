-- Tenants with recent activity: the share of each in the total work, and the state of one.

-- name: list
-- Tenants with jobs or deliveries in the span, or with a pause. Schedules are counted up to a bound, only for the tenants on
-- the page. `share`: of the seconds of work of all jobs, also of those without a tenant.
with clock as materialized (
    select date_trunc('hour', sereno.now() - make_interval(secs => %(since)s), 'UTC') as begun
),
work as materialized (
    select tenant, sum(ended)::bigint as ended, sum(failed)::bigint as failed, sum(seconds) as seconds
    from sereno.tenant_hours where hour >= (select begun from clock) group by tenant
),
notified as materialized (
    select tenant, sum(matched)::bigint as deliveries
    from sereno.delivery_tenant_hours where hour >= (select begun from clock) and tenant <> '' group by tenant
),
stopped as materialized (
    select name as tenant, paused_at from sereno.pauses where kind = 'tenant'
),
total as materialized (
    select greatest((select coalesce(sum(run_seconds), 0) from sereno.ten_minutes where minute >= (select begun from clock)),
                    (select coalesce(sum(seconds), 0) from work)) as seconds
),
every as (
    select tenant, coalesce(ended, 0) as ended, coalesce(failed, 0) as failed, coalesce(seconds, 0) as seconds,
           coalesce(deliveries, 0) as deliveries, paused_at
    from work full join notified using (tenant) full join stopped using (tenant)
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
from (select page.*, case when total.seconds > 0 then least(1, page.seconds / total.seconds) else 0 end as share,
             coalesce(weights.weight, 1) as weight,
             (select count(*) from (select from sereno.schedules where schedules.tenant = page.tenant
                                    limit %(bound)s + 1) as counted) as schedules
      from page cross join total left join sereno.weights on weights.key = page.tenant
      order by case %(sort)s::text when 'failed' then failed when 'deliveries' then deliveries
                    when 'jobs' then ended when 'name' then 0 else page.seconds end desc, page.tenant) as line;

-- name: hours
-- Seconds of work by hour for the tenants with most work, or for one; and in total, with a null tenant.
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
from sereno.ten_minutes where minute >= (select begun from clock) group by 1
order by 1, 2;

-- name: states
-- Jobs of one tenant by state, among the newest live, dead and otherwise finished jobs.
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
-- The pause of a tenant, if any, and its weight.
select row_to_json(line)::text
from (select pauses.paused_at, pauses.paused_by, pauses.note, weights.weight
      from (values (%(tenant)s::text)) as wanted(tenant)
      left join sereno.pauses on pauses.kind = 'tenant' and pauses.name = wanted.tenant
      left join sereno.weights on weights.key = wanted.tenant) as line;

-- name: limiters
-- The limiters of a tenant in limits that count by tenant; including those that it has not used yet.
with clock as materialized (select sereno.now() as now),
by_tenant as materialized (
    select * from sereno.limits where key = '{tenant}' order by name limit %(most)s
)
select row_to_json(line)::text
from (select by_tenant.name, by_tenant.kind, by_tenant.slots, by_tenant.units, by_tenant.period, by_tenant.burst, coalesce(sereno.slots_taken(limiter.held), 0) as taken,
             case when limiter.closed_until > clock.now then limiter.closed_until end as closed_until
      from clock cross join by_tenant left join sereno.limiters limiter on limiter.id = sereno.limiter_of(by_tenant.name, %(tenant)s)
      order by by_tenant.name) as line;
