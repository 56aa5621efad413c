"""A process that archives and kills itself at a given step. Each order runs in its own forked process."""

import asyncio
import json
import os
import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sereno import Sereno
from sereno.archive import archiver as module
from sereno.archive import parquet
from sereno.archive.archiver import Archiver
from tests.archive.archive_steps import TENDERS, archiver

# Rows in a file: few, so that batches have several files.
FILE_ROWS = 40


def report_steps(
    watched: Callable[[str], None], working: Archiver, app: Sereno, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Call `watched` after every step: with the name of the transaction, or of the operation on a file."""
    run, write = app.database.arun, parquet.write

    async def arun(operation: Any) -> Any:
        name = operation.gi_code.co_name
        result = await run(operation)
        watched(name)
        return result

    def reporting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def act(*given: Any) -> Any:
            result = function(*given)
            watched(name)
            return result

        return act

    monkeypatch.setattr(app.database, "arun", arun)
    monkeypatch.setattr(parquet, "write", reporting("write", write))
    for name in ("put", "get", "put_bytes", "get_bytes", "length"):
        monkeypatch.setattr(working.place, name, reporting(name, getattr(working.place, name)))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def archive(url: str, place: str, step: str | None, within: float | None) -> None:
    """Archive, and die at `step` (name and occurrence, such as `put 2`) or at a random time `within` these seconds."""
    app = Sereno(url)
    working = archiver(app, Path(place), TENDERS)
    module.FILE_ROWS = FILE_ROWS
    if step is not None:
        name, _, times = step.partition(" ")
        counted: Counter[str] = Counter()

        def watched(done: str) -> None:
            counted[done] += 1
            if done == name and counted[done] == int(times or 1):
                die()

        report_steps(watched, working, app, pytest.MonkeyPatch())
    if within is not None:
        threading.Timer(random.uniform(0, within), die).start()
    moved = await working.move()
    exported = await working.export()
    if moved.problems or moved.waiting or exported.problems:
        raise SystemExit(f"{moved} {exported}")


def main() -> None:
    """Read orders as lines and print exit codes. Each order runs in a forked process, which loads no code again."""
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            asyncio.run(archive(**order))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
