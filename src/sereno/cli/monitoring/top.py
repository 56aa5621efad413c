"""`sereno top`: queues, rates, workers and the newest failures, live."""

import select
import sys
import termios
import tty
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from sereno.cli.options import context_options, stdout_is_terminal
from sereno.cli.output import Column, table, terminal, visible

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.jobs.queries.rows import FailureRow, SessionRow
    from sereno.monitoring.status import SystemStatus

BLOCKS = " ▁▂▃▄▅▆▇█"
# Number of samples in the sparkline of rates.
SAMPLES = 40

FAILURES = (
    Column("when", lambda line: line.finished_at),
    Column("job", lambda line: str(line.id), "number"),
    Column("task", lambda line: line.task, "name"),
    Column("attempt", lambda line: line.attempt, "number"),
    Column("outcome", lambda line: line.outcome, "state"),
    Column(
        "error", lambda line: ": ".join(p for p in (line.error_type, line.error_message) if p) or line.reason, "wide"
    ),
)


@click.command(epilog="Example: sereno top --every 0.5")
@click.option(
    "--every", default=1.0, show_default=True, type=click.FloatRange(0.1, 60), help="Seconds between updates."
)
@click.option("--seconds", type=click.FloatRange(min=0.1), help="Stop after this many seconds.")
@context_options
def top(context: "CommandContext", every: float, seconds: float | None) -> None:
    """Show live queues, rates, workers and the newest failures. Press q or Ctrl-C to stop."""
    watch = TopScreen(context)
    end = None if seconds is None else monotonic() + seconds
    if not stdout_is_terminal():
        _as_lines(watch, every, end)
        return
    from rich.live import Live  # noqa: PLC0415 - only on a terminal

    with _keys(), Live(console=terminal(), screen=True, auto_refresh=False) as live:
        try:
            while end is None or monotonic() < end:
                watch.refresh()
                live.update(watch.screen(), refresh=True)
                if _key_within(every) in ("q", "Q"):
                    break
        except KeyboardInterrupt:
            # Ctrl-C is the usual way to leave a live screen.
            pass


class TopScreen:
    """The newest status, and the rates of the last samples."""

    def __init__(self, context: "CommandContext") -> None:
        self._context = context
        self._total: tuple[float, int] | None = None
        self._rates: deque[float] = deque(maxlen=SAMPLES)
        self.status: SystemStatus | None = None
        self._failures: list[FailureRow] = []
        self._workers: list[SessionRow] = []

    def refresh(self) -> None:
        from sereno.jobs.queries import jobs as job_queries  # noqa: PLC0415 - see above
        from sereno.monitoring.status import status  # noqa: PLC0415 - slow to import; --help needs none

        self.status = self._context.run(status())
        self._failures = self._context.run(job_queries.newest_failures(8))
        self._workers = [
            line for line in self._context.run(job_queries.sessions()) if line.state in ("alive", "expired")
        ]
        now, total = monotonic(), self._context.run(job_queries.finished_total())
        if self._total is not None:
            self._rates.append(max(0.0, (total - self._total[1]) / (now - self._total[0])))
        self._total = (now, total)

    @property
    def rate(self) -> float:
        """Return jobs finished per second, as a mean of three samples: PostgreSQL updates its counters in steps."""
        recent = list(self._rates)[-3:]
        return sum(recent) / len(recent) if recent else 0.0

    def line(self) -> str:
        """Return the status as one line, for a pipe."""
        assert self.status is not None
        ready = ", ".join(f"{visible(line.queue)} {line.ready}" for line in self.status.queues) or "none"
        return (
            f"{self.rate:,.0f} finished/s; workers: {self.status.workers_alive}; ready: {ready}; "
            f"dead letters: {self.status.dead_letters}"
        )

    def screen(self) -> Any:
        from rich.console import Group  # noqa: PLC0415 - only on a terminal
        from rich.text import Text  # noqa: PLC0415 - only on a terminal

        from sereno.cli.jobs.queues import queue_columns  # noqa: PLC0415 - see above
        from sereno.cli.services.worker_list import COLUMNS as WORKERS  # noqa: PLC0415 - see above

        assert self.status is not None
        parts: list[Any] = [
            self._heading(),
            Text(),
            table(self.status.queues, queue_columns(self.status.queues)),
            Text(),
        ]
        parts += [table(self._workers, WORKERS) if self._workers else Text("No worker is alive.", "yellow"), Text()]
        if self._failures:
            parts.append(table(self._failures, FAILURES))
        return Group(*parts)

    def _heading(self) -> Any:
        """Return the first line; a narrow terminal has fewer samples of the rate, then none of them and no slots."""
        from rich.text import Text  # noqa: PLC0415 - only on a terminal

        assert self.status is not None
        status, rate = self.status, f"{self.rate:,.0f} finished/s  "
        workers, slots = f"  workers {status.workers_alive}, ", f"slots {status.slots}, "
        dead, leave = f"{status.dead_letters} dead", "   q quits"
        room = terminal().width - len("sereno " + rate + workers + slots + dead + leave)
        if room < 0:
            slots = ""
        shown = list(self._rates)[-room:] if room > 0 else []
        return Text.assemble(
            ("sereno ", "bold"),
            rate,
            (sparkline(shown), "cyan"),
            workers + slots,
            (dead, "red" if status.dead_letters.value else ""),
            (leave, "dim"),
            no_wrap=True,
            overflow="ellipsis",
        )


def sparkline(values: Collection[float]) -> str:
    """Return the values as a row of block characters; the highest value fills its cell."""
    highest = max(values, default=0.0)
    if highest <= 0:
        return "▁" * len(values)
    return "".join(BLOCKS[max(1, round(value / highest * (len(BLOCKS) - 1)))] for value in values)


def _as_lines(watch: TopScreen, every: float, end: float | None) -> None:
    while True:
        watch.refresh()
        click.echo(watch.line())
        if end is not None and monotonic() + every > end:
            return
        _pause(every)


def _pause(seconds: float) -> None:
    select.select([], [], [], seconds)


@contextmanager
def _keys() -> Iterator[None]:
    """Read keys one by one without echo; restore the terminal afterwards."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin.fileno())
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _key_within(seconds: float) -> str:
    if not sys.stdin.isatty():
        _pause(seconds)
        return ""
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    return sys.stdin.read(1) if readable else ""
