"""A lock between processes, kept by the kernel on an open file."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self


class FileLock:
    """An advisory lock on a file. It belongs to the open file, so every process that inherits the file holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # O_NOFOLLOW: root may open this in a directory where somebody else could have planted a link.
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    @classmethod
    @contextmanager
    def held(cls, path: Path) -> Iterator[Self]:
        """Hold the lock alone, waiting for it as long as it takes."""
        lock = cls(path)
        try:
            fcntl.flock(lock.descriptor, fcntl.LOCK_EX)
            yield lock
        finally:
            lock.release()

    def share(self) -> None:
        """Hold the lock together with others."""
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)

    def try_alone(self) -> bool:
        """Hold the lock alone, unless somebody else holds it."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_current(self) -> bool:
        """Whether the path still leads to the file that is locked, and not to a later one."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Give the lock up, also for a child that was forked meanwhile and inherited the file."""
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        os.close(self.descriptor)

    def forget(self) -> None:
        """Close the file but leave the lock to the processes that inherited it."""
        os.close(self.descriptor)
