"""Runs the simulated days: the clock moves by an hour, and the work of that hour is created and done."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg

from sereno.database.statement import run
from sereno.monitoring.verify import verify
from tests.facts import advance, one, until, until_at_rest
from tests.soak import measure
from tests.soak.drain import drain
from tests.soak.figures import DayFigures
from tests.soak.hot_plans import plans
from tests.soak.load import HOURS, Load, LoadGenerator
from tests.soak.services import SETTINGS, Services, services

HOUR, DAY = 3600.0, 86400.0
# What is left to do, each with its number; nothing once the hour is over.
LEFT = """
select name, count from (values
    ('jobs', (select count(*) from sereno.jobs where state <> 'scheduled' or run_at <= sereno.now())),
    ('schedules', (select count(*) from sereno.schedules where next_run_at <= sereno.now())),
    ('events', (select count(*) from sereno.events where matched_at is null)),
    ('deliveries', (select count(*) from sereno.deliveries where state in ('pending', 'sending'))),
    ('receipts', (select count(*) from sereno.batches where purpose = 'ask' and due_at <= sereno.now())),
    ('duties', (select count(*) from unnest(array['housekeeping', 'fires']) as duty
                where not exists (select from sereno.duties where name = duty and done_at >= %(moved_at)s))),
    ('maintenance', (select count(*) from pg_stat_activity
                     where application_name in ('sereno housekeeping', 'sereno scheduler housekeeping')))
) as work (name, count)
where count > 0
"""
# Attempts of this hour that are not in the statistics yet, which workers write with each heartbeat. Tasks without a
# history are counted there only.
UNCOUNTED = """
select (select count(*) from sereno.history where finished_at >= %(moved_at)s and state in ('succeeded', 'dead'))
     + (select count(*) from sereno.attempts where finished_at >= %(moved_at)s)
     - (select coalesce(sum(succeeded + retried + dead + cancelled + other), 0) from sereno.minutes
        where minute >= date_trunc('minute', %(moved_at)s::timestamptz))
"""
ARCHIVED = """
select count(*) from sereno.history
where task = any(%s) and state = 'succeeded' and finished_at >= %s
"""
ARCHIVE_TASKS = ["sereno.archive_move", "sereno.archive_export"]

Report = Callable[[DayFigures], None]


class SoakFailed(Exception):  # noqa: N818 - named for what happened
    """A part of sereno did not do its work."""


class Simulation:
    """The days, one after another."""

    def __init__(self, running: Services, load: Load, rounds: int, show: Callable[[str], None]) -> None:
        self._running = running
        self._load = load
        self._rounds = rounds
        self._show = show
        self._connection = psycopg.connect(running.url, autocommit=True)
        self._work = LoadGenerator(running.url, running.http, load)
        self._moved_at = one(self._connection, "select sereno.now()")

    def close(self) -> None:
        self._work.close()
        self._connection.close()

    def prepare(self) -> None:
        """Create what lasts, and begin the first day at midnight."""
        self._work.prepare()
        now = one(self._connection, "select sereno.now()").timestamp()
        self._move(2 * DAY - now % DAY - HOUR)
        self._wait()

    def day(self, number: int) -> DayFigures:
        """Simulate a day and return its figures."""
        began = time.monotonic()
        midnight = one(self._connection, "select date_trunc('day', sereno.now() + interval '1 hour', 'UTC')")
        jobs = self._last_job()
        for hour in range(HOURS):
            self._show(f"day {number}, {hour:02}:00")
            self._move(HOUR)
            self._work.hour(number, hour)
            self._wait()
        done = one(self._connection, ARCHIVED, ARCHIVE_TASKS, midnight)
        if done != len(ARCHIVE_TASKS):
            raise SoakFailed(f"day {number}: {done} of {len(ARCHIVE_TASKS)} archive jobs succeeded")
        self._show(f"day {number}, measure")
        # The scheduler counts them when it wakes up, as it does when the clock is set.
        advance(self._connection, 1.0)
        until(lambda: one(self._connection, "select count(*) from sereno.schedule_ends") == 0)
        behind = measure.behind(self._connection)
        figures = DayFigures(
            day=number,
            seconds=0.0,
            jobs=self._last_job() - jobs,
            relations=measure.relations(self._connection),
            sequences=measure.sequences(self._connection),
            memory=self._running.memory(),
            plans=plans(self._running.url),
            frozen_age=measure.frozen_age(self._connection),
            vacuums=measure.vacuums(self._connection),
            behind=behind,
            drain=[],
        )
        self._show(f"day {number}, drain")
        figures.drain = drain(self._running.database, self._running.url, self._load.drained, self._rounds)
        figures.seconds = time.monotonic() - began
        return figures

    def check(self) -> None:
        """Check every invariant of sereno."""
        with self._connection.transaction():
            found = run(self._connection, verify(lease=float(SETTINGS["SERENO_LEASE"]), window=None))
        broken = [check for check in found if not check.holds]
        if broken:
            raise SoakFailed(f"invariants do not hold: {broken}")

    def _move(self, seconds: float) -> None:
        # Read before the move: a duty may be done between the move and the next statement.
        self._moved_at = one(self._connection, "select sereno.now()") + timedelta(seconds=seconds)
        advance(self._connection, seconds)

    def _wait(self) -> None:
        """Wait until the work of this hour is done, maintenance included."""

        def left() -> list[tuple[str, int]]:
            return self._connection.execute(LEFT, {"moved_at": self._moved_at}).fetchall()

        until_at_rest(lambda: not left(), left)
        moved_at = {"moved_at": self._moved_at}
        until(lambda: self._connection.execute(UNCOUNTED, moved_at).fetchall()[0][0] <= 0)

    def _last_job(self) -> int:
        return int(one(self._connection, "select coalesce(pg_sequence_last_value('sereno.jobs_id_seq'), 0)"))


@contextmanager
def scratch(parent: Path | None) -> Iterator[Path]:
    """Return a new directory that PostgreSQL can use, also if this process is root."""
    directory = Path(tempfile.mkdtemp(prefix="sereno-soak-", dir=parent))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def simulate(
    days: int,
    load: Load,
    rounds: int,
    report: Report,
    show: Callable[[str], None] = lambda _: None,
    parent: Path | None = None,
) -> list[DayFigures]:
    """Simulate the days and return their figures; each is reported when it has ended. `parent`: for all data."""
    found = []
    with scratch(parent) as directory, services(directory) as running:
        simulation = Simulation(running, load, rounds, show)
        try:
            simulation.prepare()
            for number in range(1, days + 1):
                found.append(simulation.day(number))
                report(found[-1])
            simulation.check()
        finally:
            simulation.close()
    return found
