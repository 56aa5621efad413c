"""How fast jobs are accepted: one at a time against a bare insert, in bulk against COPY of the same rows.

The bare statements write to a table of the same shape with the same indexes, and start from the same Python values.
"""

import time
from collections.abc import Callable, Mapping

import msgspec
import psycopg

from bench import enqueue_clients
from bench.site import Site
from bench.tasks import MONTH, QUEUE, Tasks, account, register
from sereno import Sereno

ROUNDS = 4
CHUNKS = (1_000, 10_000)
PRIORITY = 5

BARE_TABLE = """
create schema bare;
create sequence bare.ready_seq;
create table bare.jobs (like sereno.jobs including all);
alter table bare.jobs alter column run_at set default now(), alter column created_at set default now(),
    alter column ready_seq set default nextval('bare.ready_seq'), alter column state set default 'ready';
"""
BARE_INSERT = "insert into bare.jobs (task, args, queue, priority) values (%s, %s::text::jsonb, %s, %s) returning id"
BARE_COPY = "copy bare.jobs (task, args, queue, priority) from stdin"

# Writes the jobs with these numbers.
Write = Callable[[range], None]


def run(site: Site) -> None:
    """`enqueue_one` against `insert`, `enqueue_bulk` against `copy`; with many clients, see `enqueue_clients`."""
    if site.clients:
        enqueue_clients.run(site)
        return
    with site.server.fresh("enqueue") as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(BARE_TABLE)
        app = Sereno(url)
        try:
            tasks = register(app)
            _one_at_a_time(site, tasks, connection)
            _in_bulk(site, app, tasks, connection)
        finally:
            app.close()


def _one_at_a_time(site: Site, tasks: Tasks, connection: psycopg.Connection) -> None:
    def enqueue(numbers: range) -> None:
        for number in numbers:
            tasks.noop.enqueue(account(number), MONTH)

    def insert(numbers: range) -> None:
        for number in numbers:
            connection.execute(BARE_INSERT, _row(number)).fetchone()

    # The first calls open connections and prepare statements.
    for write in (enqueue, insert):
        write(range(50))
    rates = _in_turn({"enqueue_one": enqueue, "insert": insert}, site.size(2_000, 500))
    site.report.figure("insert", rates["insert"], "jobs/s")
    site.report.figure("enqueue_one", rates["enqueue_one"], "jobs/s", "insert", rates["insert"])


def _in_bulk(site: Site, app: Sereno, tasks: Tasks, connection: psycopg.Connection) -> None:
    def enqueue(numbers: range) -> None:
        app.enqueue_many(tasks.noop.job(account(number), MONTH) for number in numbers)

    def copy(numbers: range) -> None:
        with connection.cursor() as cursor, cursor.copy(BARE_COPY) as rows:
            for number in numbers:
                rows.write_row(_row(number))

    ways = {f"enqueue_bulk {size}": _chunked(enqueue, size) for size in CHUNKS}
    ways |= {f"copy {size}": _chunked(copy, size) for size in CHUNKS}
    rates = _in_turn(ways, site.size(50_000, 20_000))
    for name, rate in rates.items():
        site.report.note(f"{name} a call: {rate:,.0f} jobs/s")
    copied = max(rates[f"copy {size}"] for size in CHUNKS)
    site.report.figure("copy", copied, "jobs/s")
    best = max(rates[f"enqueue_bulk {size}"] for size in CHUNKS)
    site.report.figure("enqueue_bulk", best, "jobs/s", "copy", copied)


def _in_turn(ways: Mapping[str, Write], jobs: int) -> dict[str, float]:
    """Jobs per second of each way, over all rounds, so that a slow moment of the machine meets all of them."""
    seconds = dict.fromkeys(ways, 0.0)
    for turn in range(ROUNDS):
        for name, write in ways.items():
            began = time.perf_counter()
            write(range(turn * jobs, (turn + 1) * jobs))
            seconds[name] += time.perf_counter() - began
    return {name: jobs * ROUNDS / spent for name, spent in seconds.items()}


def _chunked(write: Write, size: int) -> Write:
    def write_all(numbers: range) -> None:
        for first in range(numbers.start, numbers.stop, size):
            write(range(first, min(numbers.stop, first + size)))

    return write_all


def _row(number: int) -> tuple[str, str, str, int]:
    return ("noop", msgspec.json.encode({"account": account(number), "month": MONTH}).decode(), QUEUE, PRIORITY)
