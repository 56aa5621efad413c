"""Enqueue rate: one job at a time compared with a bare INSERT, in bulk compared with COPY of the same rows.

The bare statements write to a table with the same columns and indexes, and start from the same Python values.
"""

import time
from collections.abc import Callable, Mapping

import msgspec
import psycopg

from bench import enqueue_clients
from bench.context import BenchContext
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

# A function that writes the jobs with these numbers.
Write = Callable[[range], None]


def run(context: BenchContext) -> None:
    """`enqueue_one` compared with `insert`, `enqueue_bulk` with `copy`; `--clients` runs `enqueue_clients` instead."""
    if context.clients:
        enqueue_clients.run(context)
        return
    with context.server.fresh("enqueue") as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(BARE_TABLE)
        app = Sereno(url)
        try:
            tasks = register(app)
            _one_at_a_time(context, tasks, connection)
            _in_bulk(context, app, tasks, connection)
        finally:
            app.close()


def _one_at_a_time(context: BenchContext, tasks: Tasks, connection: psycopg.Connection) -> None:
    def enqueue(numbers: range) -> None:
        for number in numbers:
            tasks.noop.enqueue(account(number), MONTH)

    def insert(numbers: range) -> None:
        for number in numbers:
            connection.execute(BARE_INSERT, _row(number)).fetchone()

    # The first calls open connections and prepare statements.
    for write in (enqueue, insert):
        write(range(50))
    rates = _measure_in_turn({"enqueue_one": enqueue, "insert": insert}, context.size(2_000, 500))
    context.report.figure("insert", rates["insert"], "jobs/s")
    context.report.figure("enqueue_one", rates["enqueue_one"], "jobs/s", "insert", rates["insert"])


def _in_bulk(context: BenchContext, app: Sereno, tasks: Tasks, connection: psycopg.Connection) -> None:
    def enqueue(numbers: range) -> None:
        app.enqueue_many(tasks.noop.job(account(number), MONTH) for number in numbers)

    def copy(numbers: range) -> None:
        with connection.cursor() as cursor, cursor.copy(BARE_COPY) as rows:
            for number in numbers:
                rows.write_row(_row(number))

    methods = {f"enqueue_bulk {size}": _chunked(enqueue, size) for size in CHUNKS}
    methods |= {f"copy {size}": _chunked(copy, size) for size in CHUNKS}
    rates = _measure_in_turn(methods, context.size(50_000, 20_000))
    for name, rate in rates.items():
        context.report.note(f"{name} per call: {rate:,.0f} jobs/s")
    copied = max(rates[f"copy {size}"] for size in CHUNKS)
    context.report.figure("copy", copied, "jobs/s")
    best = max(rates[f"enqueue_bulk {size}"] for size in CHUNKS)
    context.report.figure("enqueue_bulk", best, "jobs/s", "copy", copied)


def _measure_in_turn(methods: Mapping[str, Write], jobs: int) -> dict[str, float]:
    """Return jobs per second of each method; the rounds alternate, so that a slow moment of the machine affects all."""
    seconds = dict.fromkeys(methods, 0.0)
    for turn in range(ROUNDS):
        for name, write in methods.items():
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
