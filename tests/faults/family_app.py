"""Jobs that kill their whole worker at once, as the kernel does to a container that is out of memory, or never end."""

import os
import signal
import time
from pathlib import Path

from sereno import Context, Sereno

app = Sereno()


@app.task
async def kills_its_family(ctx: Context) -> None:
    """Kill every process between the test and this one, the supervisor first, and then this one."""
    with Path(os.environ["RUN_LOG"]).open("a") as log:  # noqa: ASYNC230 - nothing else runs here
        log.write(f"{ctx.attempt}\n")
    family = [os.getpid()]
    while (parent := parent_of(family[-1])) != int(os.environ["SPARED"]):
        family.append(parent)
    for pid in reversed(family):
        os.kill(pid, signal.SIGKILL)


@app.task
async def innocent() -> None: ...


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


@app.task(isolate=True, timeout=None)
def never_ends() -> None:
    Path(os.environ["RUN_LOG"]).write_text(str(os.getpid()))
    while True:
        time.sleep(1)
