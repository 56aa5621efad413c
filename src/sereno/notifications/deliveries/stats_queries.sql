-- Statistics of notifications. Rows are written in the order of their keys, the tables in a fixed order, so that two
-- writers cannot deadlock.

-- name: add_hours
-- Adds deliveries by state and reason.
insert into sereno.delivery_hours as h (hour, event, channel, state, reason, count)
select date_trunc('hour', sereno.now(), 'UTC'), event, channel, state, reason, count
from jsonb_to_recordset(%(lines)s::text::jsonb) as s(event text, channel text, state text, reason text, count integer)
order by event, channel, state, reason
on conflict (hour, event, channel, state, reason) do update set count = h.count + excluded.count;

-- name: add_tenants
-- Adds deliveries by tenant.
insert into sereno.delivery_tenant_hours as h (
    tenant, hour, channel, matched, eligible, skipped, sent, accepted, delivered, read, failed)
select tenant, date_trunc('hour', sereno.now(), 'UTC'), channel, coalesce(matched, 0), coalesce(eligible, 0), coalesce(skipped, 0),
       coalesce(sent, 0), coalesce(accepted, 0), coalesce(delivered, 0), coalesce(read, 0), coalesce(failed, 0)
from jsonb_to_recordset(%(lines)s::text::jsonb) as s(
    tenant text, channel text, matched integer, eligible integer, skipped integer, sent integer, accepted integer,
    delivered integer, read integer, failed integer)
order by tenant, channel
on conflict (tenant, hour, channel) do update
set matched = h.matched + excluded.matched, eligible = h.eligible + excluded.eligible, skipped = h.skipped + excluded.skipped,
    sent = h.sent + excluded.sent, accepted = h.accepted + excluded.accepted, delivered = h.delivered + excluded.delivered,
    read = h.read + excluded.read, failed = h.failed + excluded.failed;

-- name: add_minutes
-- Adds channel counts.
insert into sereno.channel_minutes as m (minute, channel, account, sent, accepted, throttled, failed, unknown, receipts)
select date_trunc('minute', sereno.now()), channel, account, sent, accepted, throttled, failed, unknown, receipts
from jsonb_to_recordset(%(lines)s::text::jsonb) as s(
    channel text, account text, sent integer, accepted integer, throttled integer, failed integer, unknown integer,
    receipts integer[])
order by channel, account
on conflict (minute, channel, account) do update
set sent = m.sent + excluded.sent, accepted = m.accepted + excluded.accepted, throttled = m.throttled + excluded.throttled,
    failed = m.failed + excluded.failed, unknown = m.unknown + excluded.unknown,
    receipts = sereno.added(m.receipts, excluded.receipts);

-- name: add_codes
-- Adds error codes of providers.
insert into sereno.channel_codes as c (minute, channel, account, code, count)
select date_trunc('minute', sereno.now()), channel, account, code, count
from jsonb_to_recordset(%(lines)s::text::jsonb) as s(channel text, account text, code text, count integer)
order by channel, account, code
on conflict (minute, channel, account, code) do update set count = c.count + excluded.count;

-- name: hours
-- Deliveries by state and reason, in steps of `step` seconds; of one event type or channel, or of all.
select to_timestamp(floor(extract(epoch from hour) / %(step)s) * %(step)s) as at, state, reason, sum(count)::bigint
from sereno.delivery_hours
where hour >= date_trunc('hour', sereno.now() - make_interval(secs => %(since)s), 'UTC')
  and (%(event)s::text is null or event = %(event)s) and (%(channel)s::text is null or channel = %(channel)s)
group by 1, 2, 3
order by 1, 2, 3;

-- name: tenant_hours
-- Deliveries of one tenant; the empty string selects deliveries without a tenant.
select to_timestamp(floor(extract(epoch from hour) / %(step)s) * %(step)s) as at, sum(matched)::bigint, sum(eligible)::bigint,
       sum(skipped)::bigint, sum(sent)::bigint, sum(accepted)::bigint, sum(delivered)::bigint, sum(read)::bigint,
       sum(failed)::bigint
from sereno.delivery_tenant_hours
where tenant = %(tenant)s and hour >= date_trunc('hour', sereno.now() - make_interval(secs => %(since)s), 'UTC')
  and (%(channel)s::text is null or channel = %(channel)s)
group by 1
order by 1;

-- name: channels
-- Channel counts by account: those that sent most, and those that are paused.
with recent as materialized (
    select * from sereno.channel_minutes
    where minute >= sereno.now() - make_interval(secs => %(since)s) and (%(channel)s::text is null or channel = %(channel)s)
),
busiest as materialized (
    select channel, account, sum(sent)::bigint as sent, sum(accepted)::bigint as accepted, sum(throttled)::bigint as throttled,
           sum(failed)::bigint as failed, sum(unknown)::bigint as unknown, sereno.sum_of(receipts) as receipts
    from recent group by channel, account
    order by sum(sent) desc, channel, account limit %(most)s
),
pause as materialized (
    select channel, account, since, reason from sereno.channel_pauses
    where %(channel)s::text is null or channel = %(channel)s
    order by since desc limit %(most)s
)
select row_to_json(line)::text
from (select coalesce(b.channel, p.channel) as channel, coalesce(b.account, p.account) as account,
             coalesce(b.sent, 0) as sent, coalesce(b.accepted, 0) as accepted, coalesce(b.throttled, 0) as throttled,
             coalesce(b.failed, 0) as failed, coalesce(b.unknown, 0) as unknown, coalesce(b.receipts, '{}') as receipts,
             p.since as paused_since, p.reason as paused_why,
             coalesce((select json_agg(json_build_array(code, count)) from (
                 select c.code, sum(c.count)::bigint as count from sereno.channel_codes c
                 where c.minute >= sereno.now() - make_interval(secs => %(since)s) and c.channel = b.channel and c.account = b.account
                 group by c.code order by sum(c.count) desc, c.code limit %(codes)s) as worst), '[]') as codes,
             coalesce((select json_agg(step order by step.at) from (
                 select to_timestamp(floor(extract(epoch from r.minute) / %(step)s) * %(step)s) as at, sum(r.sent)::bigint as sent,
                        sum(r.accepted)::bigint as accepted, sum(r.throttled)::bigint as throttled, sum(r.failed)::bigint as failed
                 from recent r where r.channel = b.channel and r.account = b.account
                 group by 1) as step), '[]') as steps
      from busiest b full join pause p on p.channel = b.channel and p.account = b.account) as line
order by channel, account;
