"""A lock between processes (flock on a file)."""

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
        # O_NOFOLLOW: root may open this in a directory where another user could have placed a symbolic link.
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    @classmethod
    @contextmanager
    def held(cls, path: Path) -> Iterator[Self]:
        """Hold the lock exclusively, waiting for it without a timeout."""
        lock = cls(path)
        try:
            fcntl.flock(lock.descriptor, fcntl.LOCK_EX)
            yield lock
        finally:
            lock.release()

    def share(self) -> None:
        """Acquire the lock in shared mode."""
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)

    def try_alone(self) -> bool:
        """Acquire the lock exclusively; return False if another process holds it."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_current(self) -> bool:
        """Return whether the path still names the locked file, and not a new one."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Release the lock, also in forked children that inherited the file."""
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        os.close(self.descriptor)

    def forget(self) -> None:
        """Close the file without releasing the lock of processes that inherited it."""
        os.close(self.descriptor)
