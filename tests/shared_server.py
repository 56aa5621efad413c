"""One PostgreSQL for all processes of a test run, in memory where there is room; the last to leave removes it."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sereno.database.embedded import EmbeddedPostgres
from sereno.database.embedded.file_lock import FileLock

# A disk in memory, where Linux has one, and how much of it must be free for us to work there.
MEMORY = Path("/dev/shm")  # noqa: S108 - only its owner can enter the server's directory in it
ROOM = 4 << 30
# Only the fault tests need what a disk keeps, on servers of their own.
PARAMETERS = {"fsync": "off", "full_page_writes": "off", "max_connections": "300"}


@contextmanager
def shared_server(bin_dir: Path | None) -> Iterator[str]:
    """Its address. Without `bin_dir` it is the embedded one."""
    directory = _quickest_disk() / f"sereno-tests-{os.getuid()}-{'own' if bin_dir else 'embedded'}"
    directory.mkdir(mode=0o755, exist_ok=True)
    with EmbeddedPostgres(directory, bin_dir=bin_dir, parameters=PARAMETERS) as server:
        yield server.url
    _clear(directory)


def _quickest_disk() -> Path:
    """Each test makes and drops six hundred files: in memory that is a small part of the work."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
        return MEMORY
    return Path(tempfile.gettempdir())


def _clear(directory: Path) -> None:
    """Nothing stays in memory when nobody uses it. Whoever comes meanwhile waits for the same lock."""
    with FileLock.held(directory / "start.lock"):
        users = FileLock(directory / "users.lock")
        if users.try_alone() and not (directory / "postgres" / "data" / "postmaster.pid").exists():
            shutil.rmtree(directory / "postgres", ignore_errors=True)
        users.release()
