"""Directories for files on their way, of which none stays: not even that of a program that was killed.

Whoever has one holds a lock on it. The next one for the same purpose removes those whose owner is gone; a lock falls
with its process, whoever was killed, and in whichever container.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

# Not those that somebody has just made, and is about to lock.
OLD = 3600.0


@contextmanager
def scratch(purpose: str) -> Iterator[Path]:
    """A directory of our own, gone in the end."""
    prefix = f"sereno-{purpose}-"
    _sweep(prefix)
    with TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as directory, _opened(Path(directory)) as opened:
        # Where locks are not known, nobody can take one either: it is left alone.
        with suppress(OSError):
            _lock(opened)
        yield Path(directory)


def _sweep(prefix: str) -> None:
    for left in Path(gettempdir()).glob(f"{prefix}*"):
        # Its owner is at work, another one was quicker, or it is no directory.
        with suppress(OSError):
            facts = left.lstat()
            # Others of this machine may lay there what they like.
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
