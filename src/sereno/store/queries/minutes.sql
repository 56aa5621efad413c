-- Figures by the minute: added to by workers, read by whoever looks.

-- name: add
-- What a worker has seen end. In the order of the key, so that two of them never wait for each other in a ring.
insert into sereno.minutes as m (minute, queue, task, succeeded, retried, dead, cancelled, other, waits, runs, run_seconds)
select date_trunc('minute', sereno.now()), queue, task, succeeded, retried, dead, cancelled, other, waits, runs, run_seconds
from jsonb_to_recordset(%(lines)s::text::jsonb) as s(
    queue text, task text, succeeded integer, retried integer, dead integer, cancelled integer, other integer,
    waits integer[], runs integer[], run_seconds double precision)
order by queue, task
on conflict (minute, queue, task) do update
set succeeded = m.succeeded + excluded.succeeded, retried = m.retried + excluded.retried, dead = m.dead + excluded.dead,
    cancelled = m.cancelled + excluded.cancelled, other = m.other + excluded.other,
    waits = sereno.added(m.waits, excluded.waits), runs = sereno.added(m.runs, excluded.runs),
    run_seconds = m.run_seconds + excluded.run_seconds;

-- name: add_tenants
-- The same by tenant.
insert into sereno.tenant_hours as h (hour, tenant, ended, failed, seconds)
select date_trunc('hour', sereno.now()), tenant, ended, failed, seconds
from jsonb_to_recordset(%(lines)s::text::jsonb) as s(tenant text, ended integer, failed integer, seconds double precision)
order by tenant
on conflict (hour, tenant) do update
set ended = h.ended + excluded.ended, failed = h.failed + excluded.failed, seconds = h.seconds + excluded.seconds;

-- name: forget
-- A week of minutes and a quarter of hours are kept.
with minutes as (
    delete from sereno.minutes where minute < sereno.now() - interval '8 days' returning minute
),
hours as (
    delete from sereno.tenant_hours where hour < sereno.now() - interval '92 days' returning hour
)
select (select count(*) from minutes) + (select count(*) from hours);

-- name: read
-- What ended since then, by steps of so many seconds; of one queue or task, or of all.
select row_to_json(line)::text
from (select to_timestamp(floor(extract(epoch from minute) / %(step)s) * %(step)s) as at,
             sum(succeeded)::bigint as succeeded, sum(retried)::bigint as retried, sum(dead)::bigint as dead,
             sum(cancelled)::bigint as cancelled, sum(other)::bigint as other, sereno.sum_of(waits) as waits,
             sereno.sum_of(runs) as runs, sum(run_seconds) as run_seconds
      from sereno.minutes
      where minute >= sereno.now() - make_interval(secs => %(since)s)
        and (%(queue)s::text is null or queue = %(queue)s) and (%(task)s::text is null or task = %(task)s)
      group by 1) as line
order by at;

-- name: tenants
-- Who had how much done for them since then, the busiest first.
select row_to_json(line)::text
from (select tenant, sum(ended)::bigint as ended, sum(failed)::bigint as failed, sum(seconds) as seconds
      from sereno.tenant_hours
      where hour >= date_trunc('hour', sereno.now() - make_interval(secs => %(since)s))
        and (%(tenant)s::text is null or tenant = %(tenant)s)
      group by tenant order by seconds desc, tenant limit %(most)s) as line;
