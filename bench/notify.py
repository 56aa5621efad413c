"""One event to a million recipients: matching, sending through a local Expo provider, and fetching receipts.

The three parts are timed one after another: the channel is paused during the fan-out. The processor time of the
worker and of PostgreSQL scatters less than the speed, because it does not depend on what else the machine does.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from bench.context import BenchContext
from bench.cpu_time import server_seconds
from bench.notify_app import Tender, declare
from bench.process import processor_seconds
from bench.workers import BenchmarkFailed
from sereno import Sereno

RECIPIENTS, RECIPIENTS_QUICK = 1_000_000, 100_000
# Deliveries that are sent and whose receipts are fetched; sending the rest would give the same rate.
SENT, SENT_QUICK = 100_000, 20_000
SECONDS_BETWEEN_POLLS = 0.05
SECONDS_WITHOUT_PROGRESS = 60
MOST_MEMORY = 200

POPULATION = """
insert into sereno.recipients (key, zone)
select 'user:' || n, 'America/Santiago' from generate_series(1, %(count)s) as n
"""
ADDRESSES = """
insert into sereno.addresses (recipient_id, channel, address)
select id, 'expo', 'ExponentPushToken[' || md5(id::text) || ']' from sereno.recipients
"""
# Twenty different conditions; half of the recipients match this tender.
PREFERENCES = """
insert into sereno.preferences (recipient_id, category, filter, condition)
select id, 'tenders', '{}',
       ('$.region == "' || (array['RM', 'V'])[1 + (id / 10) %% 2] || '" && $.amount >= ' || (id %% 10))::jsonpath
from sereno.recipients
"""

BATCH = 100
# Batches that are left, of a hundred deliveries each: counting deliveries would take longer than sending them.
LEFT = "select count(*) from sereno.batches where purpose = '{}' and due_at < 'infinity'"

TOKENS = """
select sereno.enqueue(%s, '{"channel": "expo", "account": ""}', queue => 'notifications') from generate_series(1, %s)
"""


def run(context: BenchContext) -> None:
    """`fanout` in seconds, `dispatch` and `receipts` per second with their processor time, and the worker's memory."""
    count = context.size(RECIPIENTS, RECIPIENTS_QUICK)
    with context.server.fresh("notify") as url, psycopg.connect(url, autocommit=True) as connection:
        _populate(connection, count)
        with _process("provider") as provider:
            assert provider.stdout is not None
            address = provider.stdout.readline().decode().strip()
            with _process("worker", url, address) as worker:
                _fan_out(context, url, connection, count)
                _dispatch(context, connection, worker.pid, context.size(SENT, SENT_QUICK))
                memory = _memory(worker.pid)
        context.report.figure("memory", memory, "MiB")
        if memory > MOST_MEMORY:
            context.report.note(f"the worker used more than {MOST_MEMORY} MiB")


def _populate(connection: psycopg.Connection, count: int) -> None:
    connection.execute(POPULATION, {"count": count})
    connection.execute(ADDRESSES)
    connection.execute(PREFERENCES, {})
    connection.execute("insert into sereno.channel_pauses (channel, account, reason) values ('expo', '', 'not yet')")
    connection.execute("vacuum analyze")
    connection.execute("checkpoint")


def _fan_out(context: BenchContext, url: str, connection: psycopg.Connection, count: int) -> None:
    app = Sereno(url)
    published = declare(app)
    began = time.monotonic()
    published.notify(Tender("T1", "RM", 100), subject="T1")
    _until(connection, "select matched_at is not null from sereno.events", bool)
    seconds = time.monotonic() - began
    made = connection.execute("select count(*) from sereno.deliveries where state = 'pending'").fetchone()
    if not made or made[0] != count // 2:
        raise BenchmarkFailed(f"{made} deliveries were made for {count // 2} recipients")
    app.close()
    context.report.figure("fanout", seconds, "s")
    context.report.note(f"fanout: {count:,} recipients, {made[0]:,} deliveries")


def _dispatch(context: BenchContext, connection: psycopg.Connection, worker: int, count: int) -> None:
    connection.execute("update sereno.batches set due_at = 'infinity'")
    connection.execute("vacuum analyze sereno.deliveries")
    _until(connection, "select count(*) from sereno.jobs where task = 'sereno.deliver'", lambda found: found == 0)
    connection.execute("delete from sereno.channel_pauses")
    # One batch first: for it, the worker imports aiohttp and opens a connection.
    _send(connection, 1)
    with _measured(context, connection, "dispatch", worker, count - BATCH):
        _send(connection, count // BATCH - 1)
    _check(connection, "sent", count)
    connection.execute("update sereno.batches set due_at = sereno.now() where purpose = 'ask'")
    with _measured(context, connection, "receipts", worker, count):
        connection.execute(TOKENS, ["sereno.receipts", 4])
        _until(connection, LEFT.format("ask"), lambda found: found == 0)
    _check(connection, "delivered", count)


def _send(connection: psycopg.Connection, batches: int) -> None:
    connection.execute(
        "update sereno.batches set due_at = sereno.now() where id in "
        "(select id from sereno.batches where purpose = 'send' order by id limit %s)",
        [batches],
    )
    connection.execute(TOKENS, ["sereno.deliver", 20])
    _until(connection, LEFT.format("send"), lambda found: found == 0)


@contextmanager
def _measured(
    context: BenchContext, connection: psycopg.Connection, name: str, worker: int, count: int
) -> Iterator[None]:
    """Report deliveries per second, and the processor time of each in the worker and in PostgreSQL."""
    spent = [processor_seconds(worker), server_seconds(connection)]
    began = time.monotonic()
    yield
    seconds = time.monotonic() - began
    in_worker, in_server = processor_seconds(worker) - spent[0], server_seconds(connection) - spent[1]
    context.report.figure(name, count / seconds, "/s")
    for figure, cost in (
        (f"{name}_cpu", in_worker + in_server),
        (f"{name}_cpu_worker", in_worker),
        (f"{name}_cpu_server", in_server),
    ):
        context.report.figure(figure, cost * 1e6 / count, "us/delivery")


def _check(connection: psycopg.Connection, state: str, count: int) -> None:
    found = _one(connection, f"select count(*) from sereno.deliveries where state = '{state}'")
    if found != count:
        raise BenchmarkFailed(f"{found} of {count} deliveries are {state}")


def _one(connection: psycopg.Connection, query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    return int(row[0]) if row and row[0] is not None else 0


def _until(connection: psycopg.Connection, query: str, is_done: Callable[[int], bool]) -> None:
    """Poll until the result is as wanted; fail when it has not changed for a minute."""
    last, deadline = -1, time.monotonic() + SECONDS_WITHOUT_PROGRESS
    while not is_done(found := _one(connection, query)):
        if found != last:
            last, deadline = found, time.monotonic() + SECONDS_WITHOUT_PROGRESS
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"no progress for {SECONDS_WITHOUT_PROGRESS} s: {query} returns {found}")
        time.sleep(SECONDS_BETWEEN_POLLS)


def _memory(process: int) -> float:
    """Return the peak memory of a process, in MiB."""
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


@contextmanager
def _process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", "bench.notify_app", *arguments], stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)
