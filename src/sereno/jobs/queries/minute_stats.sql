-- Job statistics by minute. Workers add to them.

-- name: add
-- Add the ended attempts of a worker.
insert into sereno.minutes as m (minute, queue, task, succeeded, retried, dead, cancelled, other, waits, runs, run_seconds)
select date_trunc('minute', sereno.now()), queue, task, succeeded, retried, dead, cancelled, other, waits, runs, run_seconds
-- use: jobs.figures_added
;

-- name: add_tens
-- The same by ten minutes, for charts of a day or a week.
insert into sereno.ten_minutes as m (minute, queue, task, succeeded, retried, dead, cancelled, other, waits, runs, run_seconds)
select date_bin('10 minutes', sereno.now(), 'epoch'), queue, task, succeeded, retried, dead, cancelled, other, waits, runs, run_seconds
-- use: jobs.figures_added
;

-- name: add_tenants
-- The same by tenant.
insert into sereno.tenant_hours as h (hour, tenant, ended, failed, seconds)
select date_trunc('hour', sereno.now(), 'UTC'), tenant, ended, failed, seconds
from jsonb_to_recordset(%(lines)s::text::jsonb) as s(tenant text, ended integer, failed integer, seconds double precision)
order by tenant
on conflict (hour, tenant) do update
set ended = h.ended + excluded.ended, failed = h.failed + excluded.failed, seconds = h.seconds + excluded.seconds;

-- name: forget
-- Delete a page of minutes older than 8 days and of hours older than 92 days; return the largest number of rows deleted.
with minutes as (
    delete from sereno.minutes
    where ctid = any(array(select ctid from sereno.minutes where minute < sereno.now() - interval '8 days'
                           order by minute limit %(most)s for update skip locked))
    returning minute
),
tens as (
    delete from sereno.ten_minutes
    where ctid = any(array(select ctid from sereno.ten_minutes where minute < sereno.now() - interval '8 days'
                           order by minute limit %(most)s for update skip locked))
    returning minute
),
hours as (
    delete from sereno.tenant_hours
    where ctid = any(array(select ctid from sereno.tenant_hours where hour < sereno.now() - interval '92 days'
                           order by hour limit %(most)s for update skip locked))
    returning hour
)
select greatest((select count(*) from minutes), (select count(*) from tens), (select count(*) from hours));

-- name: forget_deliveries
-- Retains 92 days of hours and 8 days of minutes. Deletes a page of each table; returns the largest number deleted.
with hours as (
    delete from sereno.delivery_hours
    where ctid = any(array(select ctid from sereno.delivery_hours where hour < sereno.now() - interval '92 days'
                           order by hour limit %(most)s for update skip locked))
    returning hour
),
tenants as (
    delete from sereno.delivery_tenant_hours
    where ctid = any(array(select ctid from sereno.delivery_tenant_hours where hour < sereno.now() - interval '92 days'
                           limit %(most)s for update skip locked))
    returning hour
),
minutes as (
    delete from sereno.channel_minutes
    where ctid = any(array(select ctid from sereno.channel_minutes where minute < sereno.now() - interval '8 days'
                           order by minute limit %(most)s for update skip locked))
    returning minute
),
codes as (
    delete from sereno.channel_codes
    where ctid = any(array(select ctid from sereno.channel_codes where minute < sereno.now() - interval '8 days'
                           order by minute limit %(most)s for update skip locked))
    returning minute
)
select greatest((select count(*) from hours), (select count(*) from tenants), (select count(*) from minutes), (select count(*) from codes));

-- name: read
-- Ended attempts by step, of one queue or task or of all.
-- use: jobs.figures_summed
      from sereno.minutes
-- use: jobs.figures_since
;

-- name: read_tens
-- The same from the ten-minute table.
-- use: jobs.figures_summed
      from sereno.ten_minutes
-- use: jobs.figures_since
;

-- name: tenants
-- Ended attempts and run time by tenant, busiest first.
select row_to_json(line)::text
from (select tenant, sum(ended)::bigint as ended, sum(failed)::bigint as failed, sum(seconds) as seconds
      from sereno.tenant_hours
      where hour >= date_trunc('hour', sereno.now() - make_interval(secs => %(since)s), 'UTC')
        and (%(tenant)s::text is null or tenant = %(tenant)s)
      group by tenant order by seconds desc, tenant limit %(most)s) as line;

-- name: run_times
-- Average run time of the attempts that ended lately, by queue.
select queue, sum(run_seconds) / sum(succeeded + retried + dead + cancelled + other)
from sereno.minutes where minute >= sereno.now() - make_interval(secs => %(since)s)
group by queue having sum(succeeded + retried + dead + cancelled + other) > 0;
