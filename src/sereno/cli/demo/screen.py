"""The live screen of the demo, and its summary."""

import asyncio
import logging
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import Any

import click

from sereno.cli.demo import database
from sereno.cli.demo.database import DemoJobs
from sereno.cli.demo.processes import DemoProcesses, DemoSystem
from sereno.cli.options import stdout_is_terminal
from sereno.cli.output import Column, table, terminal
from sereno.jobs.filters import DeliveryFilter
from sereno.jobs.queries import jobs as job_queries
from sereno.notifications.deliveries import lists
from sereno.notifications.rows import DeliveryLine

# Seconds between two frames on a terminal, and between two lines in a pipe.
FRAME = 1.0
LINE = 5.0
# Seconds between two checks whether all workers have started.
START = 0.2
# The queries of the counts take at most this share of the time, however long the demo has been running.
COUNTING_SHARE = 0.1
# The first part of the names of sereno's own tasks, which send the messages of all systems.
SERENO = "sereno"
ARRIVED = ("sent", "delivered", "read")
UNDER_WAY = ("pending", "sending")


@dataclass(frozen=True, slots=True)
class DemoFigures:
    """Job and delivery counts of one example system."""

    name: str
    succeeded: int
    running: int
    waiting: int
    retried: int
    dead: int
    arrived: int
    not_arrived: int
    worker: int | None = None
    deaths: int = 0


def _worker(line: DemoFigures) -> str:
    if line.worker is None:
        return ""
    return f"pid {line.worker}" + (f", killed {line.deaths} x" if line.deaths else "")


COLUMNS = (
    Column("system", lambda line: line.name, "name"),
    Column("done", lambda line: line.succeeded, "number"),
    Column("running", lambda line: line.running or "", "number"),
    Column("waiting", lambda line: line.waiting or "", "number"),
    Column("retried", lambda line: line.retried or "", "number"),
    Column("dead", lambda line: line.dead or "", "number"),
    Column("messages", lambda line: line.arrived or "", "number"),
    Column("not sent", lambda line: line.not_arrived or "", "number"),
    Column("worker", _worker),
)


@dataclass(frozen=True, slots=True)
class DemoEnd:
    """The job that failed last and a failed delivery for the user to inspect."""

    job: int | None
    delivery: DeliveryLine | None


class DemoScreen:
    """One run of the demo."""

    def __init__(self, url: str, directory: Path, seconds: float | None, port: int | None) -> None:
        self._processes = DemoProcesses(url, directory, port)
        self._seconds = seconds
        self._stop = asyncio.Event()
        self._figures: list[DemoFigures] = []
        # When the jobs and deliveries are counted again.
        self._count_at = 0.0

    async def run(self) -> DemoEnd:
        """Run the demo until it is stopped, print the summary, and return examples to inspect."""
        # The failures are intended; their log lines would disturb the screen.
        logging.getLogger("sereno").setLevel(logging.CRITICAL)
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):
                asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        click.echo("Starting five example systems, with simulated services that sometimes fail …")
        async with self._processes as processes:
            await self._begin()
            self._introduce()
            await self._watch()
            failed = await processes.app.database.arun_one(job_queries.newest_failures(1))
            delivery = await self._example()
        self._sum_up()
        return DemoEnd(failed[0].id if failed else None, delivery)

    async def _begin(self) -> None:
        """Wait until every worker has started."""
        while not self._stop.is_set() and not all(system.pid for system in self._processes.systems):
            await self._processes.check()
            await self._rest(START)

    def _introduce(self) -> None:
        url = self._processes.serving.url
        click.echo(f"\nThe dashboard: {click.style(url, bold=True)}\n\nPages to open:")
        for system in self._processes.systems:
            for text, path in system.show.LINKS:
                click.echo(f"  {system.name}: {text}\n    {url}{path.lstrip('/')}")
        first = self._processes.systems[0]
        click.echo(
            "\nTry:\n"
            f"  kill -9 {first.pid}    kills the worker of {first.name}: its jobs resume at once, and none is lost\n"
            f"  export SERENO_DIRECTORY={quote(str(self._processes.directory))}    "
            "in another terminal, and then sereno top, sereno job list, sereno doctor\n"
            f"\nLogs of the workers: {self._processes.logs}\nPress Ctrl-C to stop.\n"
        )

    async def _watch(self) -> None:
        began = monotonic()
        with self._screen() as live:
            while not self._stop.is_set():
                await self._refresh()
                elapsed = monotonic() - began
                if live is not None:
                    live.update(self._frame(elapsed), refresh=True)
                else:
                    click.echo(self._words(elapsed))
                if self._seconds is not None and elapsed >= self._seconds:
                    return
                left = LINE if self._seconds is None else max(0.0, self._seconds - elapsed)
                await self._rest(min(left, FRAME if live is not None else LINE))

    async def _refresh(self) -> None:
        for system in await self._processes.check():
            click.echo(f"The worker of {system.name} was killed; a new one is running (pid {system.pid}).")
        await self._processes.act_as_operator()
        if monotonic() < self._count_at:
            return
        began = monotonic()
        jobs = await self._processes.app.database.arun_one(database.jobs())
        deliveries = await self._processes.app.database.arun_one(database.deliveries())
        self._count_at = monotonic() + (monotonic() - began) / COUNTING_SHARE
        self._figures = figures(self._processes.systems, jobs, deliveries)

    async def _example(self) -> DeliveryLine | None:
        """Return a delivery that was not sent, if any: first one to an address that is gone."""
        for state in ("invalid", "dead", "skipped"):
            wanted = lists.deliveries(DeliveryFilter(states=[state]), before=None, limit=1)
            for each in await self._processes.app.database.arun_one(wanted):
                return each
        return None

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    def _words(self, elapsed: float) -> str:
        done, dead, sent = (
            sum(getattr(line, name) for line in self._figures) for name in ("succeeded", "dead", "arrived")
        )
        return f"{elapsed:4.0f} s  {done} jobs done, {dead} dead, {sent} messages sent"

    def _screen(self) -> AbstractContextManager[Any]:
        if not stdout_is_terminal():
            return nullcontext()
        from rich.live import Live  # noqa: PLC0415 - only on a terminal

        return Live(console=terminal(), auto_refresh=False, transient=True)

    def _frame(self, elapsed: float) -> Any:
        from rich.console import Group  # noqa: PLC0415 - only on a terminal
        from rich.text import Text  # noqa: PLC0415 - only on a terminal

        return Group(table(self._figures, COLUMNS), Text(), Text(self._words(elapsed), style="dim"))

    def _sum_up(self) -> None:
        click.echo()
        if stdout_is_terminal():
            terminal().print(table(self._figures, COLUMNS))
            return
        for line in self._figures:
            click.echo(
                f"{line.name}: {line.succeeded} done, {line.retried} retried, {line.dead} dead, "
                f"{line.arrived} messages sent, {line.not_arrived} not"
            )


def figures(
    systems: Sequence[DemoSystem], jobs: Mapping[str, DemoJobs], deliveries: Sequence[tuple[str, str, int]]
) -> list[DemoFigures]:
    """Return the figures of each system, whose tasks and events begin with its name, and of sereno's own jobs."""
    lines = []
    for system in systems:
        states: Counter[str] = Counter()
        for event, state, count in deliveries:
            if event.startswith(f"{system.name}."):
                states[state] += count
        arrived = sum(states[state] for state in ARRIVED)
        lines.append(
            DemoFigures(
                name=system.name,
                **jobs.get(system.name, DemoJobs())._asdict(),
                arrived=arrived,
                not_arrived=states.total() - arrived - sum(states[state] for state in UNDER_WAY),
                worker=system.pid,
                deaths=system.deaths,
            )
        )
    return [*lines, DemoFigures(name=SERENO, **jobs.get(SERENO, DemoJobs())._asdict(), arrived=0, not_arrived=0)]
