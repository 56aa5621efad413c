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
select date_trunc('hour', sereno.now(), 'UTC'), tenant, ended, failed, seconds
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
-- What ended since then, by steps of so many seconds; of one queue or task, or of all. Each bucket is summed by name: an
-- aggregate of our own over arrays takes ten times as long.
select row_to_json(line)::text
from (select to_timestamp(floor(extract(epoch from minute) / %(step)s) * %(step)s) as at,
             sum(succeeded)::bigint as succeeded, sum(retried)::bigint as retried, sum(dead)::bigint as dead,
             sum(cancelled)::bigint as cancelled, sum(other)::bigint as other, sum(run_seconds) as run_seconds,
             array[sum(waits[1]), sum(waits[2]), sum(waits[3]), sum(waits[4]), sum(waits[5]), sum(waits[6]),
                   sum(waits[7]), sum(waits[8]), sum(waits[9]), sum(waits[10]), sum(waits[11]),
                   sum(waits[12]), sum(waits[13]), sum(waits[14]), sum(waits[15]), sum(waits[16]),
                   sum(waits[17])] as waits,
             array[sum(runs[1]), sum(runs[2]), sum(runs[3]), sum(runs[4]), sum(runs[5]), sum(runs[6]),
                   sum(runs[7]), sum(runs[8]), sum(runs[9]), sum(runs[10]), sum(runs[11]), sum(runs[12]),
                   sum(runs[13]), sum(runs[14]), sum(runs[15]), sum(runs[16]), sum(runs[17])] as runs
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
      where hour >= date_trunc('hour', sereno.now() - make_interval(secs => %(since)s), 'UTC')
        and (%(tenant)s::text is null or tenant = %(tenant)s)
      group by tenant order by seconds desc, tenant limit %(most)s) as line;
