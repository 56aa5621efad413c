"""A module that starts a thread when it is imported, so that its process cannot be forked safely."""

import threading
from pathlib import Path

from sereno import Sereno

app = Sereno("postgresql://unused")

threading.Thread(target=threading.Event().wait, daemon=True).start()


@app.task(isolate=True)
def writes_its_parent(path: str) -> None:
    Path(path).write_text(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[1])
