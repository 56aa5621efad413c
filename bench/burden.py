"""The same drain with something in its way: a pinned snapshot, a million future jobs, a million finished ones."""

from contextlib import ExitStack
from statistics import mean

import psycopg
from psycopg import IsolationLevel

from bench.drain import Drained, Prepare, drain
from bench.site import Site

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


def run_pinned(site: Site) -> None:
    """`pinned`: another connection keeps a snapshot open for the whole time, so that no dead row can be removed."""
    with ExitStack() as held:

        def pin(connection: psycopg.Connection) -> None:
            pinned = psycopg.connect(connection.info.dsn)
            held.callback(pinned.close)
            pinned.isolation_level = IsolationLevel.REPEATABLE_READ
            pinned.execute("select count(*) from sereno.jobs")

        jobs = site.size(400_000, 60_000)
        for drained in _compare(site, "pinned", jobs, pin):
            rates = ", ".join(f"{rate:,.0f}" for rate in drained.tenths)
            site.report.note(f"pinned: first to last tenth: {rates} jobs/s")


def run_backlog(site: Site) -> None:
    """`backlog`: future jobs that were there first."""
    rows = site.size(1_000_000, 100_000)
    _compare(site, "backlog", site.size(200_000, 40_000), _filled(FUTURE, rows))


def run_history(site: Site) -> None:
    """`history`: finished jobs that are kept."""
    rows = site.size(1_000_000, 100_000)
    _compare(site, "history", site.size(200_000, 40_000), _filled(FINISHED, rows))


def _filled(statement: str, rows: int) -> Prepare:
    def prepare(connection: psycopg.Connection) -> None:
        connection.execute(statement.encode(), [rows])
        connection.execute("vacuum analyze")
        # What is measured is that the rows are there, not that they were just written.
        connection.execute("checkpoint")

    return prepare


def _compare(site: Site, name: str, jobs: int, prepare: Prepare) -> list[Drained]:
    """Plain and burdened drains in turn; answers the burdened ones."""
    plain: list[Drained] = []
    burdened: list[Drained] = []
    for _ in range(site.size(ROUNDS, ROUNDS_QUICK)):
        plain.append(drain(site, jobs))
        burdened.append(drain(site, jobs, prepare=prepare))
    free = mean(drained.rate for drained in plain)
    site.report.figure(f"{name}_plain", free, "jobs/s")
    site.report.figure(name, mean(drained.rate for drained in burdened), "jobs/s", f"{name}_plain", free)
    return burdened
