"""The same drain under three conditions: a pinned snapshot, a million future jobs, a million finished jobs."""

from contextlib import ExitStack
from statistics import mean

import psycopg
from psycopg import IsolationLevel

from bench.context import BenchContext
from bench.drain import Drained, Prepare, drain

ROUNDS = 3
ROUNDS_QUICK = 2

FUTURE = """
insert into sereno.jobs (task, args, run_at, state)
select 'noop', jsonb_build_object('account', 'later ' || number, 'month', '2026-12'),
       now() + interval '1 day' + number * interval '1 millisecond', 'scheduled'
from generate_series(1, %s::integer) as number
"""

FINISHED = """
insert into sereno.history (id, session_id, finished_at, started_at, run_at, created_at, attempt, failures, crashes,
                            snoozes, releases, priority, state, queue, task, args)
select nextval(pg_get_serial_sequence('sereno.jobs', 'id')), 0, now(), now(), now(), now(), 1, 0, 0, 0, 0, 5,
       'succeeded', 'default', 'noop', jsonb_build_object('account', 'earlier ' || number, 'month', '2026-10')
from generate_series(1, %s::integer) as number
"""


def run_pinned(context: BenchContext) -> None:
    """`pinned`: another connection holds a snapshot open during the whole drain, so that no dead row can be removed."""
    with ExitStack() as cleanup:

        def pin(connection: psycopg.Connection) -> None:
            pinned = psycopg.connect(connection.info.dsn)
            cleanup.callback(pinned.close)
            pinned.isolation_level = IsolationLevel.REPEATABLE_READ
            pinned.execute("select count(*) from sereno.jobs")

        jobs = context.size(400_000, 60_000)
        for drained in _compare(context, "pinned", jobs, pin):
            rates = ", ".join(f"{rate:,.0f}" for rate in drained.tenths)
            context.report.note(f"pinned: first to last tenth: {rates} jobs/s")


def run_backlog(context: BenchContext) -> None:
    """`backlog`: future jobs that were enqueued before."""
    rows = context.size(1_000_000, 100_000)
    _compare(context, "backlog", context.size(200_000, 40_000), _filled(FUTURE, rows))


def run_history(context: BenchContext) -> None:
    """`history`: finished jobs that are stored in the history."""
    rows = context.size(1_000_000, 100_000)
    _compare(context, "history", context.size(200_000, 40_000), _filled(FINISHED, rows))


def _filled(statement: str, rows: int) -> Prepare:
    def prepare(connection: psycopg.Connection) -> None:
        connection.execute(statement.encode(), [rows])
        connection.execute("vacuum analyze")
        # The drain is to measure rows that exist, not the cost of having just written them.
        connection.execute("checkpoint")

    return prepare


def _compare(context: BenchContext, name: str, jobs: int, prepare: Prepare) -> list[Drained]:
    """Run plain and conditioned drains in turn, and return the conditioned ones."""
    plain: list[Drained] = []
    conditioned: list[Drained] = []
    for _ in range(context.size(ROUNDS, ROUNDS_QUICK)):
        plain.append(drain(context, jobs))
        conditioned.append(drain(context, jobs, prepare=prepare))
    plain_rate = mean(drained.rate for drained in plain)
    context.report.figure(f"{name}_plain", plain_rate, "jobs/s")
    context.report.figure(name, mean(drained.rate for drained in conditioned), "jobs/s", f"{name}_plain", plain_rate)
    return conditioned
