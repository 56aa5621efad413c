"""A PostgreSQL server that can be crashed."""

import os
import signal
from pathlib import Path

from sereno.database.embedded import EmbeddedPostgres
from tests.facts import until


def restart(server: EmbeddedPostgres, directory: Path) -> None:
    """Stop the server without a checkpoint, as in a power failure, and start it again."""
    pid = int((directory / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGQUIT)
    until(lambda: not Path(f"/proc/{pid}").exists())
    server.stop()
    server.start()
