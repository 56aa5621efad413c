"""A task that nothing but a signal ends, for a process that is killed."""

import os
from pathlib import Path

from sereno import Sereno

app = Sereno()


@app.task(name="holds_the_interpreter", isolate=True)
async def holds_the_interpreter(where: str) -> None:
    """Says who runs it, then counts in C for days: no other thread and no signal handler of Python gets a turn."""
    unready = Path(where).with_suffix(".unready")
    unready.write_text(f"{os.getpid()} {os.getppid()}")
    unready.rename(where)
    sum(range(10**13))
