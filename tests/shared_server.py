"""One PostgreSQL for all processes of a test run, in memory if there is space; the last process deletes it."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sereno.database.embedded import EmbeddedPostgres
from sereno.database.embedded.file_lock import FileLock

# Each checkout has a server of its own: its programs may differ, and may be deleted with it.
CHECKOUT = hashlib.sha256(os.fsencode(Path(__file__).parent)).hexdigest()[:8]
# The memory file system of Linux, and the bytes that must be free there.
MEMORY = Path("/dev/shm")  # noqa: S108 - only its owner can enter the server's directory in it
REQUIRED_BYTES = 4 << 30
# Only the fault tests need durable writes; they start servers of their own. Where PostgreSQL is built with JIT, it
# would compile many searches of empty tables, half a second each.
PARAMETERS = {"fsync": "off", "full_page_writes": "off", "jit": "off", "max_connections": "300"}


@contextmanager
def shared_server(bin_dir: Path | None) -> Iterator[str]:
    """Return its URL. Without `bin_dir` it is the embedded PostgreSQL."""
    directory = _fastest_disk() / f"sereno-tests-{os.getuid()}-{CHECKOUT}-{'own' if bin_dir else 'embedded'}"
    directory.mkdir(mode=0o755, exist_ok=True)
    with EmbeddedPostgres(directory, bin_dir=bin_dir, parameters=PARAMETERS) as server:
        yield server.url
    _clear(directory)


def _fastest_disk() -> Path:
    """Return a directory in memory if possible: each test creates and deletes six hundred files."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > REQUIRED_BYTES:
        return MEMORY
    return Path(tempfile.gettempdir())


def _clear(directory: Path) -> None:
    """Delete the data unless a process uses it. A process that starts meanwhile waits for the same lock."""
    with FileLock.held(directory / "start.lock"):
        users = FileLock(directory / "users.lock")
        if users.try_alone() and not (directory / "postgres" / "data" / "postmaster.pid").exists():
            shutil.rmtree(directory / "postgres", ignore_errors=True)
        users.release()
