"""The application of the fail-over tests, and the program that enqueues its jobs with a journal of its own.

`python -m tests.faults.failover_app JOURNAL STOP` enqueues until the file STOP exists. A line of the journal is written
after `enqueue` has returned, and synced: it says what was accepted, whatever the database says later.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

from sereno import Backoff, Context, DatabaseUnavailable, Sereno

app = Sereno()
# Jobs that the program enqueues at most, and seconds between two.
MOST_JOBS, EVERY = 20_000, 0.01


@app.task(retry=Backoff(20, delays=["200ms"], jitter=0))
async def effect(ctx: Context, n: int) -> None:
    """Write a row in the transaction that settles the job."""
    async with ctx.transaction() as connection:
        await connection.execute("insert into effects (n) values (%s)", [n])


@app.task(retry=Backoff(20, delays=["200ms"], jitter=0))
async def fired(at: str = "") -> None:
    """The job of a schedule."""


@app.task(retry=Backoff(20, delays=["200ms"], jitter=0))
async def held(ctx: Context, n: int) -> None:
    """Note the start, and end when the file of the log with the suffix `.go` exists."""
    log = Path(os.environ["TEST_LOG"])
    write(log, "start", n, ctx.attempt)
    while not log.with_suffix(".go").exists():  # noqa: ASYNC110 - another process creates the file
        await asyncio.sleep(0.01)
    write(log, "end", n, ctx.attempt)


def write(file: Path, *words: object) -> None:
    """Append one line, durably."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())
    os.fsync(descriptor)
    os.close(descriptor)


def enqueue_until(journal: Path, stop: Path) -> None:
    for n in range(MOST_JOBS):
        if stop.exists():
            return
        try:
            job = effect.enqueue(n)
        except DatabaseUnavailable as error:
            # The commit may have happened: only the reply is missing.
            write(journal, "unknown", n, str(error).replace("\n", " "))
        else:
            write(journal, "accepted", n, job.id, time.monotonic())
        time.sleep(EVERY)


if __name__ == "__main__":
    # Imported as a module too, so that the task has the name that workers know.
    enqueue_until(Path(sys.argv[1]), Path(sys.argv[2]))
