"""Progress of a long command on stderr: a bar on a terminal, one line per second elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from sereno.cli.output import visible

Report = Callable[[float, str], None]

# Seconds between two lines when stderr is not a terminal.
EVERY = 1.0


@contextmanager
def progress(title: str) -> Iterator[Report]:
    """Yield a function that reports progress: `report(0.5, "half of it")`, with a fraction from 0 to 1 and a text."""
    if sys.stderr.isatty():
        with _bar(title) as report:
            yield report
        return
    last = time.monotonic()

    def line(fraction: float, text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= EVERY:
            last = now
            click.echo(f"{title}: {fraction:4.0%}  {visible(text)}", err=True)

    yield line


@contextmanager
def _bar(title: str) -> Iterator[Report]:
    from rich.console import Console  # noqa: PLC0415 - only on a terminal
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - as above

    columns = (
        TextColumn("{task.fields[title]}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(title, total=1.0, title=title, text="")
        yield lambda fraction, text: shown.update(task, completed=fraction, text=visible(text))
