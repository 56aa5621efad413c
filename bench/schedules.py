"""A million schedules in 500 rules and 20 zones: how fast they fire, how late, and at what cost.

One scheduler process; nobody works off the jobs that it makes. The clock of the schedules is moved, so that one table
serves all parts: no row is due in two of them, and none that has fired is due again.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles

import psycopg

from bench import growth
from bench.population import Slot, load, rules, set_clock
from bench.process import processor_seconds
from bench.processors import machine_seconds, server_seconds
from bench.schedulers import SchedulerProcess, answer, scheduling
from bench.sight import Sight, watching
from bench.site import Site
from bench.tasks import MONTH, account, register
from bench.workers import BenchmarkFailed
from sereno import Sereno
from sereno.schedules.firing import SECOND

ROWS, ROWS_QUICK = 1_000_000, 100_000
# One row in a hundred is due each second.
SHARE = 100
WINDOW, WINDOW_QUICK = 30, 10
BACKLOG, BACKLOG_QUICK = 300_000, 30_000
TURNS, TURNS_QUICK = 25, 8
TURNS_AFTER_CHECKPOINT = 10
REGISTERED, REGISTERED_QUICK = 50_000, 10_000
CHUNK = 5_000

# Where the parts lie on the clock of the schedules: seconds after its beginning.
WINDOW_AT, BACKLOG_AT = 60, 300
# The scheduler has started, taken the lead and gone to sleep.
SECONDS_TO_SETTLE = 5
LATE = 1000.0


@dataclass(frozen=True)
class Fires:
    """What the fires of a slot say: milliseconds from planned to visible and to stamped, and when they were seen."""

    visible: Sequence[float]
    stamped: Sequence[float]
    seen: Sequence[int]

    def rate(self) -> float:
        """Fires per second between the first commit and the last; those of the first had begun before."""
        first, last = min(self.seen), max(self.seen)
        return sum(moment > first for moment in self.seen) / (last - first) * SECOND


def run(site: Site) -> None:
    """`register`, `tick_growth`, `fires`, `lateness_p50`, `lateness_p99`, `late`, and what the window cost."""
    _register(site)
    rows = site.size(ROWS, ROWS_QUICK)
    turns = site.size(TURNS + TURNS_AFTER_CHECKPOINT, TURNS_QUICK)
    # A whole second, and later than now: clocks are only ever moved forward.
    begin = (int(time.time()) + 3600) * SECOND
    seconds = site.size(WINDOW, WINDOW_QUICK)
    ticks = Slot(growth.rows_for(turns), begin, SECOND)
    window = Slot(rows // SHARE * seconds, begin + WINDOW_AT * SECOND, seconds * SECOND)
    backlog = Slot(site.size(BACKLOG, BACKLOG_QUICK), begin + BACKLOG_AT * SECOND, SECOND)
    with site.server.fresh("schedules") as url, psycopg.connect(url, autocommit=True) as connection:
        began = time.monotonic()
        load(connection, rows, [ticks, window, backlog])
        site.report.note(
            f"schedules: {rows:,} rows in {len(rules())} rules, written in {time.monotonic() - began:.0f} s"
        )
        set_clock(connection, ticks.end)
        _growth(site, url, begin)
        # What is measured is that the rows are there, not that they were just written.
        connection.execute("checkpoint")
        _window(site, url, connection, window)
        _backlog(site, url, connection, backlog)


def _register(site: Site) -> None:
    """Schedules written per second, from Python values to the last commit."""
    known = [when for when, _ in rules()]
    total = site.size(REGISTERED, REGISTERED_QUICK)
    with site.server.fresh("schedules_register") as url:
        app = Sereno(url)
        try:
            task, new = register(app).noop, app.schedules.new
            app.schedules.upsert_many([new("first", task.job(account(0), MONTH), known[0])])
            began = time.perf_counter()
            for first in range(0, total, CHUNK):
                app.schedules.upsert_many(
                    new(f"close:{number}", task.job(account(number), MONTH), known[number % len(known)])
                    for number in range(first, first + CHUNK)
                )
            seconds = time.perf_counter() - began
        finally:
            app.close()
    site.report.figure("register", total / seconds, "/s")


def _growth(site: Site, url: str, begin: int) -> None:
    """`tick_growth` between two checkpoints, and a note on how it is right after one."""
    large, small, ratio = growth.measure(site, url, begin, site.size(TURNS, TURNS_QUICK), after_checkpoint=False)
    site.report.note(f"a tick of 2,000: {large * 1000:.0f} ms, with {growth.SMALL:,} rows {small * 1000:.0f} ms")
    site.report.figure("tick_growth", ratio, "x")
    if not site.quick:
        _, _, ratio = growth.measure(site, url, begin, TURNS_AFTER_CHECKPOINT, after_checkpoint=True)
        site.report.figure("tick_growth_checkpoint", ratio, "x")


def _window(site: Site, url: str, connection: psycopg.Connection, window: Slot) -> None:
    """One per cent of the rows each second: how late, and what it cost."""
    set_clock(connection, window.at - SECONDS_TO_SETTLE * SECOND)
    with watching(url) as sight, scheduling(url) as scheduler:
        if _now(connection) >= window.at:
            raise BenchmarkFailed("the scheduler leads only now: its start would pass for lateness")
        scheduler.wait_for(lambda: _now(connection) >= window.at, "due")
        before = _spent(scheduler, connection, sight)
        scheduler.wait_for(lambda: _now(connection) >= window.end, "over")
        spent = [now - then for now, then in zip(_spent(scheduler, connection, sight), before, strict=True)]
        scheduler.wait_for(lambda: _fired(connection, window) == window.rows, f"{window.rows} fires")
    fires = _fires(connection, window, sight)
    elapsed, own, database, machine = spent
    p50, p99, latest = _percentiles(fires.visible)
    site.report.figure("lateness_p50", p50, "ms")
    site.report.figure("lateness_p99", p99, "ms")
    site.report.figure("late", sum(late > LATE for late in fires.visible), "fires")
    site.report.figure("schedules_cpu", 100 * own / elapsed, "%")
    site.report.figure("schedules_db_cpu", 100 * database / elapsed, "%")
    stamped = "p50 {:.1f}, p99 {:.1f}, latest {:.0f} ms".format(*_percentiles(fires.stamped))
    others = 100 * (machine - own - database) / elapsed
    site.report.note(f"latest {latest:.0f} ms; by fired_at {stamped}; others used {others:.0f} % of a core meanwhile")


def _spent(scheduler: SchedulerProcess, connection: psycopg.Connection, sight: Sight) -> tuple[float, ...]:
    """Seconds that passed, and processor time: of the scheduler, of the server but for our looking, of the machine."""
    database = server_seconds(connection) - sight.processor_seconds()
    return time.monotonic(), processor_seconds(scheduler.pid), database, machine_seconds()


def _backlog(site: Site, url: str, connection: psycopg.Connection, backlog: Slot) -> None:
    """`fires`: so many rows are due when the scheduler starts; how fast they are gone."""
    set_clock(connection, backlog.end)
    wanted = _job_numbers(connection) + backlog.rows
    with watching(url) as sight, scheduling(url) as scheduler:
        # Counting the fires meanwhile would cost the server more than firing them.
        scheduler.wait_for(lambda: _job_numbers(connection) >= wanted, f"{backlog.rows} fires")
        scheduler.wait_for(lambda: _fired(connection, backlog) == backlog.rows, f"{backlog.rows} fires")
    site.report.figure("fires", _fires(connection, backlog, sight).rate(), "/s")


def _now(connection: psycopg.Connection) -> int:
    return answer(connection, "select sereno.micros(sereno.now())")


def _job_numbers(connection: psycopg.Connection) -> int:
    """How many have been given out."""
    return answer(connection, "select last_value from sereno.jobs_id_seq")


def _fired(connection: psycopg.Connection, slot: Slot) -> int:
    between = f"planned_at >= sereno.instant({slot.at}) and planned_at < sereno.instant({slot.end})"
    return answer(connection, f"select count(*) from sereno.fires where {between}")


def _fires(connection: psycopg.Connection, slot: Slot, sight: Sight) -> Fires:
    """Each instant once, and each with a job: a fire that was lost or made twice is no fire."""
    rows = connection.execute(
        """
        select fires.xmin::text::bigint, sereno.micros(fires.planned_at), sereno.micros(fired_at)
        from sereno.fires join sereno.jobs on jobs.id = fires.job_id
        where fires.planned_at >= sereno.instant(%s) and fires.planned_at < sereno.instant(%s)
        """,
        [slot.at, slot.end],
    ).fetchall()
    if len(rows) != slot.rows:
        raise BenchmarkFailed(f"{slot.rows} rows were due, but {len(rows)} fires made a job")
    seen: dict[int, int] = {}
    for transaction in {row[0] for row in rows}:
        moment = sight.seen(transaction)
        if moment is None:
            raise BenchmarkFailed("a fire was never seen")
        seen[transaction] = moment
    return Fires(
        visible=[(seen[transaction] - planned) / 1000 for transaction, planned, _ in rows],
        stamped=[(fired - planned) / 1000 for _, planned, fired in rows],
        seen=[seen[transaction] for transaction, _, _ in rows],
    )


def _percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The 50th, the 99th, and the largest."""
    found = quantiles(values, n=100, method="inclusive")
    return found[49], found[98], max(values)
