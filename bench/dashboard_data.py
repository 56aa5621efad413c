"""A large data set for the dashboard: jobs, schedules and deliveries of a thousand tenants, with their statistics."""

import time
from collections.abc import Callable

import psycopg

from bench.population import Slot, load

DAYS = 30
TENANTS = 1000
TASKS = 20
# One job in this number is dead.
DEAD = 2000
# Events for all recipients without a tenant, and as many for those of each tenant.
EVENTS = 10
ERROR_GROUPS = 100

PARTITIONS = """
select sereno.make_history_partition((now() at time zone 'UTC')::date - day) from generate_series(1, %(days)s) as day
"""
# In the order of time, as real jobs would have finished.
FINISHED = """
insert into sereno.history (id, session_id, finished_at, started_at, run_at, created_at, attempt, failures, crashes,
                            snoozes, releases, priority, state, queue, task, tenant, trace, args, error_type,
                            error_message, fingerprint, schedule_id, planned_at)
select number, 1, at, at - interval '2 seconds', at - interval '3 seconds', at - interval '4 seconds', 1, 0, 0, 0, 0, 5,
       case when number %% %(dead)s = 0 then 'dead' else 'succeeded' end, 'queue' || number %% 5,
       'task' || number %% %(tasks)s, 't' || number %% %(tenants)s, 'trace-' || number,
       jsonb_build_object('account', number),
       case when number %% %(dead)s = 0 then 'ValueError' end,
       case when number %% %(dead)s = 0 then 'no such account' end,
       case when number %% %(dead)s = 0 then 'error' || number / %(dead)s %% %(groups)s end,
       case when number %% 2 = 0 then 1 + number %% %(schedules)s end,
       case when number %% 2 = 0 then at - interval '4 seconds' end
from (select number, now() - interval '1 second' * ((%(rows)s - number) * (%(days)s * 86400.0 - 3600) / %(rows)s) as at
      from generate_series(1, %(rows)s::bigint) as number) as n
"""
SEQUENCE = "select setval(pg_get_serial_sequence('sereno.jobs', 'id'), %(rows)s)"
WAITING = """
insert into sereno.jobs (task, queue, tenant, args, run_at, state)
select 'task' || number %% %(tasks)s, 'queue' || number %% 5, 't' || number %% %(tenants)s, '{}',
       now() + interval '1 day', 'scheduled'
from generate_series(1, %(waiting)s::integer) as number
"""
MINUTES = """
insert into sereno.minutes (minute, queue, task, succeeded, retried, dead, waits, runs, run_seconds)
select minute, 'queue' || task %% 5, 'task' || task, 50 + task, task %% 3, 0,
       array_fill(3, array[17]), array_fill(2, array[17]), 30
from generate_series(date_trunc('minute', now()) - interval '7 days', now(), interval '1 minute') as minute,
     generate_series(1, %(tasks)s) as task
"""
TENS = """
insert into sereno.ten_minutes
select date_bin('10 minutes', minute, 'epoch'), queue, task, sum(succeeded), sum(retried), sum(dead), 0, 0,
       sereno.sum_of(waits), sereno.sum_of(runs), sum(run_seconds)
from sereno.minutes group by 1, 2, 3
"""
HOURS = """
insert into sereno.tenant_hours (hour, tenant, ended, failed, seconds)
select hour, 't' || tenant, 100 + tenant %% 50, tenant %% 3, tenant %% 97
from generate_series(date_trunc('hour', now()) - interval '30 days', now(), interval '1 hour') as hour,
     generate_series(0, %(tenants)s - 1) as tenant
"""
ERRORS = """
insert into sereno.error_groups (fingerprint, task, error_type, message, frame, first_at, last_at, count, last_job_id)
select 'error' || number, 'task' || number %% %(tasks)s, 'ValueError', 'no such account', 'accounts.py:' || number,
       now() - interval '30 days', now(), 5000, %(rows)s / %(dead)s * %(dead)s
from generate_series(0, %(groups)s - 1) as number
"""
ERROR_HOURS = """
insert into sereno.error_hours (fingerprint, hour, tenant, count)
select 'error' || number, hour, 't' || (number * 7 + tenant * 31) %% %(tenants)s, 1 + number %% 3
from generate_series(0, %(groups)s - 1) as number,
     generate_series(date_trunc('hour', now()) - interval '7 days', now(), interval '1 hour') as hour,
     generate_series(1, 10) as tenant
on conflict do nothing
"""
LOG_LINES = """
insert into sereno.logs (at, level, event, message, tenant, job_id, task, queue, trace_id)
select now() - interval '0.1 seconds' * (%(lines)s - number), case when number %% 50 = 0 then 'warning' else 'info' end,
       'job.succeeded', 'job ' || number || ' has succeeded', 't' || number %% %(tenants)s, number,
       'task' || number %% %(tasks)s, 'queue' || number %% 5, 'trace-' || number
from generate_series(1, %(lines)s::integer) as number
"""
# Half of the recipients have no tenant.
RECIPIENTS = """
insert into sereno.recipients (key, tenant, zone)
select 'user:' || n, case when n %% 2 = 0 then 't' || n / 2 %% %(tenants)s else '' end, 'UTC'
from generate_series(1, %(count)s) as n
"""
EVENT_ROWS = """
insert into sereno.events (type, tenant, subject, payload, channels, matched_at)
select 'tender.awarded', coalesce('t' || nullif(tenant, %(tenants)s), ''), 'tender ' || n, '{"amount": 1}', '{expo}',
       now()
from generate_series(1, %(events)s) as n, generate_series(0, %(tenants)s) as tenant
order by n, tenant
"""
DELIVERY_ROWS = """
insert into sereno.deliveries (event_id, recipient_id, tenant, channel, state, due_at, sent_at, provider_id)
select e.id, r.id, e.tenant, 'expo',
       (array['delivered', 'delivered', 'read', 'skipped', 'sent', 'failed'])[1 + (r.id + e.id) %% 6],
       now(), now(), 'ticket-' || e.id || '-' || r.id
from sereno.events as e join sereno.recipients as r on r.tenant = e.tenant
order by e.id, r.id
"""
DELIVERY_HOURS = """
insert into sereno.delivery_hours (hour, event, channel, state, reason, count)
select hour, 'tender.awarded', 'expo', state, case when state = 'skipped' then 'quiet hours' else '' end, 200
from generate_series(date_trunc('hour', now()) - interval '30 days', now(), interval '1 hour') as hour,
     unnest(array['delivered', 'read', 'skipped', 'sent', 'failed']) as state
"""
DELIVERY_TENANT_HOURS = """
insert into sereno.delivery_tenant_hours (tenant, hour, channel, matched, eligible, skipped, sent, accepted, delivered)
select 't' || tenant, hour, 'expo', 3, 3, 1, 2, 2, 2
from generate_series(date_trunc('hour', now()) - interval '30 days', now(), interval '1 hour') as hour,
     generate_series(0, %(tenants)s - 1) as tenant
"""
CHANNEL_MINUTES = """
insert into sereno.channel_minutes (minute, channel, account, sent, accepted, failed, receipts)
select minute, 'expo', '', 20, 19, 1, array_fill(1, array[17])
from generate_series(date_trunc('minute', now()) - interval '7 days', now(), interval '1 minute') as minute
"""
# In an order in which each finds the rows that it needs.
STATEMENTS = (
    PARTITIONS,
    FINISHED,
    SEQUENCE,
    WAITING,
    MINUTES,
    TENS,
    HOURS,
    ERRORS,
    ERROR_HOURS,
    LOG_LINES,
    RECIPIENTS,
    EVENT_ROWS,
    DELIVERY_ROWS,
    DELIVERY_HOURS,
    DELIVERY_TENANT_HOURS,
    CHANNEL_MINUTES,
)


def fill(
    connection: psycopg.Connection, *, history: int, schedules: int, deliveries: int, note: Callable[[str], None]
) -> dict[str, object]:
    """Write the rows straight into the tables, and return the ids of a job and a trace that exist."""
    began = time.monotonic()
    sizes = {
        "tasks": TASKS,
        "tenants": TENANTS,
        "days": DAYS,
        "dead": DEAD,
        "rows": history,
        "waiting": 50_000,
        "lines": history // 20,
        "schedules": schedules,
        "events": EVENTS,
        "groups": ERROR_GROUPS,
        "count": deliveries // EVENTS,
    }
    for statement in STATEMENTS:
        connection.execute(statement, sizes)
    now = int(time.time() * 1_000_000)
    load(connection, schedules, [Slot(schedules // 100, now + 60_000_000, 60_000_000)], TENANTS)
    connection.execute("vacuum analyze")
    connection.execute("checkpoint")
    took = time.monotonic() - began
    rows = f"{history:,} finished jobs, {schedules:,} schedules, {deliveries:,} deliveries"
    note(f"{rows} of {TENANTS:,} tenants, in {took:.0f} s")
    return {"job": history - DEAD, "trace": f"trace-{history - 77}"}
