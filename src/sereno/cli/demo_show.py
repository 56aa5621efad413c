"""What the demo shows while it runs, and what it says at the end."""

import asyncio
import logging
import random
import signal
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

import click

from sereno.app import Sereno
from sereno.cli import demo_tally
from sereno.cli.demo_post import Post, Telling, missing_packages, tell
from sereno.cli.demo_tasks import QUEUES, RESTAURANTS, WORDS, declare, workload
from sereno.cli.options import stdout_is_terminal
from sereno.cli.output import Column, human_seconds, table, terminal
from sereno.domain.job import NewJob
from sereno.store import insights, post_sights
from sereno.store.post_rows import DeliveryFilter, DeliveryLine
from sereno.store.sights import RunningRow, TaskLine

T = TypeVar("T")

# How often the screen is drawn; in a pipe, a line a second is enough.
FRAME = 0.2
LINE = 1.0
# The jobs and events arrive over some five seconds.
PORTIONS = 20
PORTION_EVERY = 0.25
# Handlers get this long when the demo ends early.
GRACE = 1.0
# Slow jobs that are shown, so that everything has room on a small terminal.
MOST_SLOW = 3
# More deliveries than the demo makes.
MOST_DELIVERIES = 5_000
# While one of these is left, there will be more deliveries.
MAKES_DELIVERIES = ("sereno.fan_out", "sereno.escalate")

COLUMNS = (
    Column("task", lambda line: line.task),
    Column("what it shows", lambda line: WORDS.get(line.task, ""), "wide"),
    Column("waiting", lambda line: line.waiting or "", "number"),
    Column("running", lambda line: line.running or "", "number"),
    Column("succeeded", lambda line: line.succeeded, "number"),
    Column("retried", lambda line: line.retried or "", "number"),
    Column("dead", lambda line: line.dead or "", "number"),
    Column("wait p50", lambda line: line.median_wait, "seconds"),
)
SUMMARY = tuple(column for column in COLUMNS if column.name not in ("waiting", "running"))


@dataclass(frozen=True, slots=True)
class Ending:
    """Whether everything was done; a job and a delivery worth looking at."""

    finished: bool
    job: int
    delivery: DeliveryLine | None


class Show:
    """One run of the demo."""

    def __init__(self, url: str, count: int, seconds: float | None) -> None:
        self._app = Sereno(url, schema="sereno", grace=GRACE, log_level="error", poll=0.5)
        self._count = count
        self._seconds = seconds
        self._chance = random.Random(7)  # noqa: S311 - the same demo each time
        self._stop = asyncio.Event()
        self._asked = 0
        self._repeats = 0
        self._lines: list[TaskLine] = []
        self._progress: list[RunningRow] = []
        self._deliveries: list[DeliveryLine] = []
        self._more_deliveries = 0

    async def run(self) -> Ending:
        """From the first job to the summary."""
        # The failures are part of the show; their log lines are not.
        logger = logging.getLogger("sereno")
        level = logger.level
        logger.setLevel(logging.CRITICAL)
        try:
            return await self._run()
        finally:
            logger.setLevel(level)

    async def _run(self) -> Ending:
        declare(self._app, self._chance)
        with suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._stop.set)
        jobs = workload(self._app, self._count, self._chance)
        self._asked = len(jobs)
        async with self._providers():
            post = Post(self._app, random.Random(7))  # noqa: S311 - see above
            people, tellings = await post.introduce(), post.tellings()
            click.echo(
                f"{len(RESTAURANTS)} restaurants ask for {len(jobs)} jobs, and tell {people} people of "
                f"{len(tellings)} events.\nOne worker in this process does it all, {sum(QUEUES.values())} at a time.\n"
            )
            finished = await self._work(jobs, tellings)
        await self._look()
        failed = await self._app.database.arun_one(insights.newest_failures(1))
        await self._app.aclose()
        self._show_summary()
        return Ending(finished, failed[0].id if failed else 1, demo_tally.example(self._deliveries))

    def _providers(self) -> AbstractAsyncContextManager[None]:
        if missing := missing_packages():
            click.echo(
                f"Without {' and '.join(missing)} no push and no mail can leave: people are told in the application.\n"
                "To see more: pip install 'sereno[channels]'\n"
            )
            return nullcontext()
        from sereno.cli.demo_providers import providers  # noqa: PLC0415 - an extra

        return providers(self._app)

    async def _work(self, jobs: Sequence[NewJob], tellings: Sequence[Telling]) -> bool:
        async with self._app.working(QUEUES):
            arriving = asyncio.create_task(self._arrive(jobs, tellings))
            finished = await self._watch(arriving)
            arriving.cancel()
            await asyncio.wait([arriving])
        return finished

    async def _arrive(self, jobs: Sequence[NewJob], tellings: Sequence[Telling]) -> None:
        """In portions, so that the waits in the table are those of a worker with room."""
        for number in range(PORTIONS):
            made = await self._app.aenqueue_many(_portion(jobs, number))
            self._repeats += sum(not job.created for job in made)
            for telling in _portion(tellings, number):
                await tell(telling)
            await asyncio.sleep(PORTION_EVERY)

    async def _watch(self, arriving: asyncio.Task[None]) -> bool:
        began = monotonic()
        with self._screen() as live:
            while not self._stop.is_set():
                # Asked first: what arrives while we look is seen the next time.
                has_arrived = arriving.done()
                await self._look()
                elapsed = monotonic() - began
                if live is not None:
                    live.update(self._frame(elapsed), refresh=True)
                else:
                    click.echo(f"{self._words(elapsed)}; {self._post_words()}")
                if has_arrived and self._left() == 0:
                    arriving.result()
                    return True
                if self._seconds is not None and elapsed >= self._seconds:
                    return False
                await self._rest(FRAME if live is not None else LINE)
        return False

    async def _look(self) -> None:
        found = {line.task: line for line in await self._app.database.arun_one(insights.by_task())}
        self._lines = [found[task] for task in WORDS if task in found]
        self._progress = await self._app.database.arun_one(insights.running_now(MOST_SLOW))
        making = [found[task] for task in MAKES_DELIVERIES if task in found]
        self._more_deliveries = sum(line.waiting + line.running for line in making)
        newest = post_sights.deliveries(DeliveryFilter(), before=None, limit=MOST_DELIVERIES)
        self._deliveries = await self._app.database.arun_one(newest)

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    def _left(self) -> int:
        jobs = sum(line.waiting + line.running for line in self._lines)
        return jobs + self._more_deliveries + demo_tally.unsettled(self._deliveries)

    def _words(self, elapsed: float) -> str:
        done = sum(line.succeeded + line.cancelled + line.dead for line in self._lines)
        running = sum(line.running for line in self._lines)
        retried = sum(line.retried for line in self._lines)
        dead = sum(line.dead for line in self._lines)
        return (
            f"{elapsed:4.0f} s  {done} of {self._asked - self._repeats} finished, {running} running, "
            f"{retried} retried, {dead} in the dead letter"
        )

    def _post_words(self) -> str:
        waiting = demo_tally.unsettled(self._deliveries)
        return f"{len(self._deliveries) - waiting} deliveries settled, {waiting} under way"

    def _screen(self) -> AbstractContextManager[Any]:
        if not stdout_is_terminal():
            return nullcontext()
        from rich.live import Live  # noqa: PLC0415 - only on a terminal

        return Live(console=terminal(), auto_refresh=False, transient=True)

    def _frame(self, elapsed: float) -> Any:
        from rich.console import Group  # noqa: PLC0415 - only on a terminal
        from rich.padding import Padding  # noqa: PLC0415 - only on a terminal
        from rich.progress_bar import ProgressBar  # noqa: PLC0415 - only on a terminal
        from rich.text import Text  # noqa: PLC0415 - only on a terminal

        done = sum(line.succeeded + line.cancelled + line.dead for line in self._lines)
        bar = ProgressBar(total=max(1, self._asked - self._repeats), completed=done, width=60)
        slow = [
            Text(
                f"  {row.task}  {row.tenant or '':<10} {'━' * round(row.fraction * 20):╌<20} "
                f"{row.fraction:4.0%}  {row.note or ''}",
                style="dim",
            )
            for row in self._progress
        ]
        return Group(
            table(self._lines, COLUMNS),
            Text(),
            demo_tally.table_of(demo_tally.tally(self._deliveries)),
            Text(),
            Padding(bar, 0),
            Text(self._words(elapsed), style="dim"),
            Text(f"        {self._post_words()}", style="dim"),
            *slow,
        )

    def _show_summary(self) -> None:
        if not stdout_is_terminal():
            click.echo()
        if self._repeats:
            click.echo(
                f"{self._repeats} were asked for again under a unique key that was in use, and not made twice.\n"
            )
        post, skipped = demo_tally.tally(self._deliveries), demo_tally.why_skipped(self._deliveries)
        if stdout_is_terminal():
            terminal().print(table(self._lines, SUMMARY))
            click.echo()
            terminal().print(demo_tally.table_of(post))
        else:
            for line in self._lines:
                wait = f", waited {human_seconds(line.median_wait)} (p50)" if line.median_wait is not None else ""
                click.echo(f"{line.task}: {line.succeeded} succeeded, {line.retried} retried, {line.dead} dead{wait}")
            click.echo()
            for words in demo_tally.spoken_lines(post):
                click.echo(words)
        if skipped:
            click.echo(f"\n{skipped}")


def _portion(items: Sequence[T], number: int) -> Sequence[T]:
    size = -(-len(items) // PORTIONS)
    return items[number * size : (number + 1) * size]
