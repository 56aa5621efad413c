"""Temporary directories that are always removed, even those of killed processes.

The owner holds a lock on its directory. The next user with the same purpose removes directories without a lock; the
kernel releases a lock when its process ends, in any container.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

# Age in seconds from which on a directory is removed; a younger one may be new and not locked yet.
OLD = 3600.0


@contextmanager
def scratch(purpose: str) -> Iterator[Path]:
    """Yield a new directory and remove it at the end."""
    prefix = f"sereno-{purpose}-"
    _sweep(prefix)
    with TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as directory, _opened(Path(directory)) as opened:
        # On a file system without locks, other processes cannot lock it either: they leave it alone.
        with suppress(OSError):
            _lock(opened)
        yield Path(directory)


def _sweep(prefix: str) -> None:
    for left in Path(gettempdir()).glob(f"{prefix}*"):
        # Its owner is alive, another process removes it, or it is not a directory.
        with suppress(OSError):
            facts = left.lstat()
            # Other users of the host may create entries with this prefix.
            if facts.st_uid == os.geteuid() and facts.st_mtime < time.time() - OLD:
                with _opened(left) as opened:
                    _lock(opened)
                    shutil.rmtree(left)


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
