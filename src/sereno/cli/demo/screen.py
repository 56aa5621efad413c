"""What the demo shows while it runs, and what it says at the end."""

import asyncio
import logging
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import click

from sereno.cli.demo.processes import DemoProcesses, System
from sereno.cli.options import stdout_is_terminal
from sereno.cli.output import Column, table, terminal
from sereno.jobs import queries as job_queries
from sereno.jobs.filters import DeliveryFilter
from sereno.jobs.rows import TaskLine
from sereno.notifications import queries as notification_queries
from sereno.notifications.rows import DeliveryLine

# How often the screen is drawn; in a pipe, a line every five seconds is enough.
FRAME = 0.5
LINE = 5.0
# The newest ones are looked at.
MOST_DELIVERIES = 5_000
ARRIVED = ("sent", "delivered", "read")
UNDER_WAY = ("pending", "sending")


@dataclass(frozen=True, slots=True)
class Figures:
    """How one of the five systems fares."""

    name: str
    succeeded: int
    running: int
    waiting: int
    retried: int
    dead: int
    arrived: int
    not_arrived: int
    worker: int | None
    deaths: int


COLUMNS = (
    Column("system", lambda line: line.name),
    Column("done", lambda line: line.succeeded, "number"),
    Column("running", lambda line: line.running or "", "number"),
    Column("waiting", lambda line: line.waiting or "", "number"),
    Column("retried", lambda line: line.retried or "", "number"),
    Column("dead", lambda line: line.dead or "", "number"),
    Column("messages", lambda line: line.arrived or "", "number"),
    Column("not sent", lambda line: line.not_arrived or "", "number"),
    Column("worker", lambda line: f"pid {line.worker}" + (f", killed {line.deaths} x" if line.deaths else "")),
)


@dataclass(frozen=True, slots=True)
class DemoEnd:
    """A dead job and a message that did not arrive, worth looking at."""

    job: int | None
    delivery: DeliveryLine | None


class DemoScreen:
    """One run of the demo."""

    def __init__(self, url: str, directory: Path, seconds: float | None, port: int | None) -> None:
        self._house = DemoProcesses(url, directory, port)
        self._seconds = seconds
        self._stop = asyncio.Event()
        self._figures: list[Figures] = []
        self._deliveries: list[DeliveryLine] = []

    async def run(self) -> DemoEnd:
        """From the first stand-in to the summary."""
        # The failures are part of the show; their log lines are not.
        logging.getLogger("sereno").setLevel(logging.CRITICAL)
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):
                asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        click.echo("Five systems begin, with the services around them that misbehave a little …")
        async with self._house as house:
            await self._begin()
            self._introduce()
            await self._watch()
            failed = await house.app.database.arun_one(job_queries.newest_failures(1))
        self._sum_up()
        return DemoEnd(failed[0].id if failed else None, _example(self._deliveries))

    async def _begin(self) -> None:
        """Until every worker has begun."""
        while not self._stop.is_set() and not all(system.pid for system in self._house.systems):
            for system in self._house.systems:
                await system.look()
            await self._rest(FRAME)

    def _introduce(self) -> None:
        url = self._house.serving.url
        click.echo(f"\nThe dashboard: {click.style(url, bold=True)}\n\nLook at:")
        for system in self._house.systems:
            for words, path in system.show.LOOK:
                click.echo(f"  {system.name}: {words}\n    {url}{path.lstrip('/')}")
        first = self._house.systems[0]
        click.echo(
            "\nTry:\n"
            f"  kill -9 {first.pid}    what runs the jobs of {first.name}: they are back at once, and none is lost\n"
            f"\nWhat the workers say: {self._house.logs}\nCtrl-C ends it.\n"
        )

    async def _watch(self) -> None:
        began = monotonic()
        with self._screen() as live:
            while not self._stop.is_set():
                await self._look()
                elapsed = monotonic() - began
                if live is not None:
                    live.update(self._frame(elapsed), refresh=True)
                else:
                    click.echo(self._words(elapsed))
                if self._seconds is not None and elapsed >= self._seconds:
                    return
                left = LINE if self._seconds is None else max(0.0, self._seconds - elapsed)
                await self._rest(min(left, FRAME if live is not None else LINE))

    async def _look(self) -> None:
        for system in self._house.systems:
            if await system.look():
                click.echo(f"The worker of {system.name} was killed; another one is at work (pid {system.pid}).")
        await self._house.lend_a_hand()
        lines = await self._house.app.database.arun_one(job_queries.by_task())
        newest = notification_queries.deliveries(DeliveryFilter(), before=None, limit=MOST_DELIVERIES)
        self._deliveries = await self._house.app.database.arun_one(newest)
        self._figures = [_figures(system, lines, self._deliveries) for system in self._house.systems]

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    def _words(self, elapsed: float) -> str:
        done, dead, told = (
            sum(getattr(line, name) for line in self._figures) for name in ("succeeded", "dead", "arrived")
        )
        return f"{elapsed:4.0f} s  {done} jobs done, {dead} in the dead letter, {told} messages sent"

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


def _figures(system: System, lines: Sequence[TaskLine], deliveries: Sequence[DeliveryLine]) -> Figures:
    """By the names of its tasks and events, which begin with its own."""
    own = [line for line in lines if line.task.startswith(f"{system.name}.")]
    states = Counter(each.state for each in deliveries if (each.event or "").startswith(f"{system.name}."))
    arrived = sum(states[state] for state in ARRIVED)
    return Figures(
        name=system.name,
        succeeded=sum(line.succeeded for line in own),
        running=sum(line.running for line in own),
        waiting=sum(line.waiting for line in own),
        retried=sum(line.retried for line in own),
        dead=sum(line.dead for line in own),
        arrived=arrived,
        not_arrived=states.total() - arrived - sum(states[state] for state in UNDER_WAY),
        worker=system.pid,
        deaths=system.deaths,
    )


def _example(deliveries: Sequence[DeliveryLine]) -> DeliveryLine | None:
    """One worth looking at: to an address that is gone, or any that was not sent."""
    for state in ("invalid", "dead", "skipped"):
        for each in deliveries:
            if each.state == state:
                return each
    return None
