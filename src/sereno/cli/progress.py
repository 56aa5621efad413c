"""How far a long command is: a bar on a terminal, a line now and then elsewhere. To the standard error, as words go."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from sereno.cli.output import visible

Said = Callable[[float, str], None]

# Seconds between two lines where nobody watches.
EVERY = 1.0


@contextmanager
def progress(title: str) -> Iterator[Said]:
    """What is called with how far it is, from 0 to 1, and with words: `said(0.5, "half of it")`."""
    if sys.stderr.isatty():
        with _bar(title) as said:
            yield said
        return
    last = time.monotonic()

    def line(fraction: float, words: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= EVERY:
            last = now
            click.echo(f"{title}: {fraction:4.0%}  {visible(words)}", err=True)

    yield line


@contextmanager
def _bar(title: str) -> Iterator[Said]:
    from rich.console import Console  # noqa: PLC0415 - only on a terminal
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - as above

    columns = (
        TextColumn("{task.fields[title]}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[words]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(title, total=1.0, title=title, words="")
        yield lambda fraction, words: shown.update(task, completed=fraction, words=visible(words))
