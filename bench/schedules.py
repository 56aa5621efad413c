"""A million schedules in 500 rules and 20 zones: fires per second, lateness, and CPU. Ten million: the cost of a tick.

One scheduler process and no worker. The clock of the schedules is moved, so that one table serves all parts: no row is
due in two of them, and no row that has fired is due again.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles

import psycopg

from bench import tick_growth
from bench.context import BenchContext
from bench.cpu_time import machine_seconds, server_seconds
from bench.population import Slot, load, load_in_parts, rules, set_clock
from bench.process import processor_seconds
from bench.scheduler_process import SchedulerProcess, fetch_int, running_scheduler
from bench.tasks import MONTH, account, register
from bench.tick_growth import GrowthRounds
from bench.visibility import CommitTimes, record_commits
from bench.workers import BenchmarkFailed
from sereno import Sereno
from sereno.schedules.firing import SECOND
from sereno.schedules.ticker import BATCH

ROWS, ROWS_QUICK = 1_000_000, 100_000
# One row in a hundred is due each second.
SHARE = 100
WINDOW, WINDOW_QUICK = 30, 10
BACKLOG, BACKLOG_QUICK = 300_000, 30_000
# Rows whose tick is measured beside that of a small table, after those of the other parts.
MANY_ROWS = 10_000_000
ROUNDS = GrowthRounds(after_checkpoint=10, ticks_between=50, later=25)
ROUNDS_QUICK = GrowthRounds(after_checkpoint=3, ticks_between=5, later=6)
REGISTERED, REGISTERED_QUICK = 50_000, 10_000
CHUNK = 5_000

# Begin of the parts on the clock of the schedules, in seconds.
WINDOW_AT, BACKLOG_AT = 60, 300
# Time for the scheduler to start, become the leader and go to sleep.
SECONDS_TO_SETTLE = 5
LATE_MS = 1000.0


@dataclass(frozen=True)
class Fires:
    """The fires of a slot: milliseconds from planned to visible and to `fired_at`; microseconds when visible."""

    visible: Sequence[float]
    stamped: Sequence[float]
    visible_at: Sequence[int]

    def rate(self) -> float:
        """Return fires per second between the first commit and the last; the first commit's fires began before it."""
        first, last = min(self.visible_at), max(self.visible_at)
        return sum(moment > first for moment in self.visible_at) / (last - first) * SECOND


def run(context: BenchContext) -> None:
    """`register`, `tick_growth`, `fires`, `lateness_p50`, `lateness_p99`, `late`, the CPU, `tick_growth_10m`."""
    _register(context)
    rows = context.size(ROWS, ROWS_QUICK)
    # A whole second, and later than now: the clock is only ever moved forward.
    begin = (int(time.time()) + 3600) * SECOND
    seconds = context.size(WINDOW, WINDOW_QUICK)
    ticks = Slot(_rounds(context).rows, begin, SECOND)
    window = Slot(rows // SHARE * seconds, begin + WINDOW_AT * SECOND, seconds * SECOND)
    backlog = Slot(context.size(BACKLOG, BACKLOG_QUICK), begin + BACKLOG_AT * SECOND, SECOND)
    with context.server.fresh("schedules") as url, psycopg.connect(url, autocommit=True) as connection:
        began = time.monotonic()
        load(connection, rows, [ticks, window, backlog])
        context.report.note(
            f"schedules: {rows:,} rows in {len(rules())} rules, written in {time.monotonic() - began:.0f} s"
        )
        set_clock(connection, ticks.end)
        _growth(context, "tick_growth", url, begin)
        # The window is to measure rows that exist, not the cost of having just written them.
        connection.execute("checkpoint")
        _window(context, url, connection, window)
        _backlog(context, url, connection, backlog)
    if not context.quick:
        _growth_of_many(context, begin)


def _rounds(context: BenchContext) -> GrowthRounds:
    return ROUNDS_QUICK if context.quick else ROUNDS


def _register(context: BenchContext) -> None:
    """`register`: schedules written per second, from Python values to the last commit."""
    known = [when for when, _ in rules()]
    total = context.size(REGISTERED, REGISTERED_QUICK)
    with context.server.fresh("schedules_register") as url:
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
    context.report.figure("register", total / seconds, "/s")


def _growth(context: BenchContext, name: str, url: str, begin: int) -> None:
    """A tick compared with one among few rows: `name` between two checkpoints, `name`_checkpoint right after one."""
    first, later = tick_growth.measure(context, url, begin, _rounds(context))
    for suffix, growth in (("", later), ("_checkpoint", first)):
        context.report.figure(f"{name}{suffix}", growth.ratio, "x")
        context.report.figure(f"{name}{suffix}_cpu", growth.processor_ratio, "x")
        for rows, cost in (("all", growth.large), (f"{tick_growth.SMALL:,}", growth.small)):
            context.report.note(
                f"{name}{suffix}, {rows} rows: a tick of {BATCH:,} takes {cost.seconds * 1000:.0f} ms, "
                f"{cost.processor * 1000:.0f} ms of CPU, {cost.log_bytes / 2**20:.1f} MiB of log "
                f"with {cost.pages:,} whole pages"
            )


def _growth_of_many(context: BenchContext, begin: int) -> None:
    """`tick_growth_10m` and `tick_growth_10m_checkpoint`, as for a million rows."""
    ticks = Slot(_rounds(context).rows, begin, SECOND)
    with context.server.fresh("schedules") as url, psycopg.connect(url, autocommit=True) as connection:
        began = time.monotonic()
        load_in_parts(url, MANY_ROWS, [ticks])
        size = fetch_int(connection, "select pg_total_relation_size('sereno.schedules')") / 2**30
        seconds = time.monotonic() - began
        context.report.note(f"schedules: {MANY_ROWS:,} rows, {size:.1f} GiB, written in {seconds:.0f} s")
        set_clock(connection, ticks.end)
        _growth(context, "tick_growth_10m", url, begin)


def _window(context: BenchContext, url: str, connection: psycopg.Connection, window: Slot) -> None:
    """One per cent of the rows is due each second: lateness and CPU."""
    set_clock(connection, window.at - SECONDS_TO_SETTLE * SECOND)
    with record_commits(url) as commits, running_scheduler(url) as scheduler:
        if _now(connection) >= window.at:
            raise BenchmarkFailed("the scheduler became the leader too late: its start would be counted as lateness")
        scheduler.wait_for(lambda: _now(connection) >= window.at, "due")
        before = _spent(scheduler, connection, commits)
        scheduler.wait_for(lambda: _now(connection) >= window.end, "over")
        spent = [now - then for now, then in zip(_spent(scheduler, connection, commits), before, strict=True)]
        scheduler.wait_for(lambda: _fired(connection, window) == window.rows, f"{window.rows} fires")
    fires = _fires(connection, window, commits)
    elapsed, own, database, machine = spent
    p50, p99, latest = _percentiles(fires.visible)
    context.report.figure("lateness_p50", p50, "ms")
    context.report.figure("lateness_p99", p99, "ms")
    context.report.figure("late", sum(late > LATE_MS for late in fires.visible), "fires")
    context.report.figure("schedules_cpu", 100 * own / elapsed, "%")
    context.report.figure("schedules_db_cpu", 100 * database / elapsed, "%")
    stamped = "p50 {:.1f}, p99 {:.1f}, latest {:.0f} ms".format(*_percentiles(fires.stamped))
    others = 100 * (machine - own - database) / elapsed
    context.report.note(
        f"latest {latest:.0f} ms; by fired_at {stamped}; others used {others:.0f} % of a core meanwhile"
    )


def _spent(scheduler: SchedulerProcess, connection: psycopg.Connection, commits: CommitTimes) -> tuple[float, ...]:
    """Return the time, and processor seconds of the scheduler, of PostgreSQL without `commits`, and of the machine."""
    database = server_seconds(connection) - commits.processor_seconds()
    return time.monotonic(), processor_seconds(scheduler.pid), database, machine_seconds()


def _backlog(context: BenchContext, url: str, connection: psycopg.Connection, backlog: Slot) -> None:
    """`fires`: fires per second when all rows of the backlog are due before the scheduler starts."""
    set_clock(connection, backlog.end)
    wanted = _job_numbers(connection) + backlog.rows
    with record_commits(url) as commits, running_scheduler(url) as scheduler:
        # The sequence is read, because counting the fires would cost the server more than firing them.
        scheduler.wait_for(lambda: _job_numbers(connection) >= wanted, f"{backlog.rows} fires")
        scheduler.wait_for(lambda: _fired(connection, backlog) == backlog.rows, f"{backlog.rows} fires")
    context.report.figure("fires", _fires(connection, backlog, commits).rate(), "/s")


def _now(connection: psycopg.Connection) -> int:
    return fetch_int(connection, "select sereno.micros(sereno.now())")


def _job_numbers(connection: psycopg.Connection) -> int:
    """Return the last job id that the sequence has given out."""
    return fetch_int(connection, "select last_value from sereno.jobs_id_seq")


def _fired(connection: psycopg.Connection, slot: Slot) -> int:
    between = f"planned_at >= sereno.instant({slot.at}) and planned_at < sereno.instant({slot.end})"
    return fetch_int(connection, f"select count(*) from sereno.fires where {between}")


def _fires(connection: psycopg.Connection, slot: Slot, commits: CommitTimes) -> Fires:
    """Return the fires of the slot; fail unless every due row has fired exactly once and has made a job."""
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
    visible_at: dict[int, int] = {}
    for transaction in {row[0] for row in rows}:
        moment = commits.visible_at(transaction)
        if moment is None:
            raise BenchmarkFailed("a fire never became visible")
        visible_at[transaction] = moment
    return Fires(
        visible=[(visible_at[transaction] - planned) / 1000 for transaction, planned, _ in rows],
        stamped=[(fired - planned) / 1000 for _, planned, fired in rows],
        visible_at=[visible_at[transaction] for transaction, _, _ in rows],
    )


def _percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the 50th percentile, the 99th, and the largest value."""
    percentiles = quantiles(values, n=100, method="inclusive")
    return percentiles[49], percentiles[98], max(values)
