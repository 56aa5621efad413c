"""A large data set for the dashboard: ten million finished jobs, a million schedules, a million deliveries, stats."""

import time
from collections.abc import Callable

import psycopg

from bench.population import Slot, load

DAYS = 30
TENANTS = 1000
TASKS = 20
# One job in this number is dead.
DEAD = 2000
EVENTS = 10

PARTITIONS = """
select sereno.make_history_partition((now() at time zone 'UTC')::date - day) from generate_series(1, %(days)s) as day
"""
# In the order of time, as real jobs would have finished.
FINISHED = """
insert into sereno.history (id, session_id, finished_at, started_at, run_at, created_at, attempt, failures, crashes,
                            snoozes, releases, priority, state, queue, task, tenant, trace, args, error_type,
                            error_message)
select number, 1, at, at - interval '2 seconds', at - interval '3 seconds', at - interval '4 seconds', 1, 0, 0, 0, 0, 5,
       case when number %% %(dead)s = 0 then 'dead' else 'succeeded' end, 'queue' || number %% 5,
       'task' || number %% %(tasks)s, 't' || number %% %(tenants)s, 'trace-' || number,
       jsonb_build_object('account', number),
       case when number %% %(dead)s = 0 then 'ValueError' end,
       case when number %% %(dead)s = 0 then 'no such account' end
from (select number, now() - interval '1 second' * ((%(rows)s - number) * (%(days)s * 86400.0 - 3600) / %(rows)s) as at
      from generate_series(1, %(rows)s::bigint) as number) as n
"""
SEQUENCE = "select setval(pg_get_serial_sequence('sereno.jobs', 'id'), %(rows)s)"
WAITING = """
insert into sereno.jobs (task, queue, tenant, args, run_at, state)
select 'task' || number %% %(tasks)s, 'queue' || number %% 5, 't' || number %% %(tenants)s, '{}',
       now() + interval '1 day', 'scheduled'
from generate_series(1, %(rows)s::integer) as number
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
     generate_series(1, %(tenants)s) as tenant
"""
RECIPIENTS = """
insert into sereno.recipients (key, zone) select 'user:' || n, 'UTC' from generate_series(1, %(count)s) as n
"""
EVENT_ROWS = """
insert into sereno.events (type, subject, payload, channels, matched_at)
select 'tender.awarded', 'tender ' || n, '{"amount": 1}', '{expo}', now() from generate_series(1, %(events)s) as n
"""
DELIVERY_ROWS = """
insert into sereno.deliveries (event_id, recipient_id, channel, state, due_at, sent_at, provider_id)
select e.id, r.id, 'expo',
       (array['delivered', 'delivered', 'read', 'skipped', 'sent', 'failed'])[1 + (r.id + e.id) %% 6],
       now(), now(), 'ticket-' || e.id || '-' || r.id
from sereno.events as e, sereno.recipients as r
order by e.id, r.id
"""


def fill(
    connection: psycopg.Connection, *, history: int, schedules: int, deliveries: int, note: Callable[[str], None]
) -> dict[str, object]:
    """Write the rows straight into the tables, and return the ids of a job and a trace that exist."""
    began = time.monotonic()
    sizes = {"tasks": TASKS, "tenants": TENANTS, "days": DAYS, "dead": DEAD, "rows": history}
    connection.execute(PARTITIONS, sizes)
    connection.execute(FINISHED, sizes)
    connection.execute(SEQUENCE, sizes)
    connection.execute(WAITING, sizes | {"rows": 50_000})
    connection.execute(MINUTES, sizes)
    connection.execute(TENS)
    connection.execute(HOURS, sizes)
    connection.execute(RECIPIENTS, {"count": deliveries // EVENTS})
    connection.execute(EVENT_ROWS, {"events": EVENTS})
    connection.execute(DELIVERY_ROWS, {})
    now = int(time.time() * 1_000_000)
    load(connection, schedules, [Slot(schedules // 100, now + 60_000_000, 60_000_000)])
    connection.execute("vacuum analyze")
    connection.execute("checkpoint")
    took = time.monotonic() - began
    note(f"{history:,} finished jobs, {schedules:,} schedules, {deliveries:,} deliveries, in {took:.0f} s")
    return {"job": history - DEAD, "trace": f"trace-{history - 77}"}
