"""An application with an isolated task; its process imports this module."""

import os

from sereno import Sereno

app = Sereno()


@app.task(queue="work", isolate=True, retry=0)
def pid() -> int:
    return os.getpid()
