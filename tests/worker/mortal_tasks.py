"""A task that only a signal can end, for tests that kill a process."""

import os
from pathlib import Path

from sereno import Sereno

app = Sereno()


@app.task(name="holds_the_interpreter", isolate=True)
async def holds_the_interpreter(path: str) -> None:
    """Write the pids to a file, then count in C for days: no other thread and no Python signal handler can run."""
    unready = Path(path).with_suffix(".unready")
    unready.write_text(f"{os.getpid()} {os.getppid()}")
    unready.rename(path)
    sum(range(10**13))
