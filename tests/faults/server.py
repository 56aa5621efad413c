"""A PostgreSQL that loses its power."""

import os
import signal
from pathlib import Path

from sereno.database.embedded import EmbeddedPostgres
from tests.facts import until


def restart(server: EmbeddedPostgres, directory: Path) -> None:
    """As if the machine had lost its power: no checkpoint, no goodbye."""
    pid = int(next(directory.rglob("postmaster.pid")).read_text().split()[0])
    os.kill(pid, signal.SIGQUIT)
    until(lambda: not Path(f"/proc/{pid}").exists())
    server.stop()
    server.start()
