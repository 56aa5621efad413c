"""The storage of archived files: a directory, or a bucket of an object store, given by an address.

Credentials come from where each store's own tools read them: `AWS_*`, `GOOGLE_*`, `AZURE_*` in the environment, or the
role of the machine. An address has none.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from sereno.access.masking import MASK
from sereno.errors import ArchiveUnavailable, ConfigurationError, first_line
from sereno.settings import DISK

# Bytes per part of an upload, and per range of a download.
CHUNK = 8 * 1024 * 1024
# Timeouts of one request and of all its retries. What takes longer is retried by the next run.
REQUEST = timedelta(seconds=120)
TRIES = timedelta(seconds=60)
MOST_TRIES = 5
CONNECT = timedelta(seconds=10)
# Prefix of extracts that people requested; they belong to no batch.
EXTRACTS = "extracts/"
# Prefix of each store's environment variables.
_PREFIXES = {"s3": "AWS", "s3a": "AWS", "gs": "GOOGLE"}
# Connection options, read from the environment too: passing some explicitly would hide the others.
_CONNECTION_OPTIONS = (
    "allow_http",
    "allow_invalid_certificates",
    "proxy_url",
    "proxy_ca_certificate",
    "proxy_excludes",
)
# Variables whose values are masked in errors; shorter values would mask ordinary words.
_SECRETS = re.compile(r"(AWS|AZURE|GOOGLE|S3|GCS)_.*(KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL|SAS).*|.*PROXY.*")
_SHORTEST_SECRET = 6


class Storage:
    """An object store. Every call blocks; every error of the store is an ArchiveUnavailable."""

    def __init__(self, address: str, directory: str) -> None:
        """`address`: `disk`, or a URL; `directory`: the parent directory of `disk`."""
        self.address, self.local = _resolved(address, directory)
        self._directory = directory
        self._opened: Any = None
        self._synced: set[Path] = set()

    def put(self, name: str, file: Path, progress: Callable[[int], None] | None = None) -> None:
        """Write the whole object or nothing; replaces an object of that name."""
        with self._trouble("write", name):
            self._obstore.put(self._store(), name, file, chunk_size=CHUNK, max_concurrency=2)
            self._settle(name)
        if progress is not None:
            progress(file.stat().st_size)

    def put_bytes(self, name: str, content: bytes) -> None:
        with self._trouble("write", name):
            self._obstore.put(self._store(), name, content)
            self._settle(name)

    def get(self, name: str, file: Path) -> tuple[str, int]:
        """Copy an object to a file. Return the SHA-256 and the length of what was actually read."""
        digest, length = hashlib.sha256(), 0
        with self._trouble("read", name), file.open("wb") as target:
            whole = int(self._obstore.head(self._store(), name)["size"])
            # One request per range: a single request for a large object would exceed its timeout.
            for start in range(0, whole, CHUNK):
                end = min(start + CHUNK, whole)
                piece = memoryview(self._obstore.get_range(self._store(), name, start=start, end=end))
                digest.update(piece)
                length += target.write(piece)
        return digest.hexdigest(), length

    def get_bytes(self, name: str) -> bytes:
        """Return the contents of a small object."""
        with self._trouble("read", name):
            return bytes(self._obstore.get(self._store(), name).bytes())

    def length(self, name: str) -> int | None:
        """Return the size of an object; None if it does not exist."""
        try:
            with self._trouble("stat", name):
                return int(self._obstore.head(self._store(), name)["size"])
        except ObjectNotFound:
            return None

    def names(self, under: str = "") -> Iterator[str]:
        """Yield the names of all objects, or of those under a prefix."""
        with self._trouble("list", under or "everything"):
            for page in self._obstore.list(self._store(), prefix=under or None):
                yield from (each["path"] for each in page)

    def part(self, name: str, start: int, end: int) -> bytes:
        """Return a range of bytes of an object."""
        with self._trouble("read", name):
            return bytes(self._obstore.get_range(self._store(), name, start=start, end=end))

    @property
    def _obstore(self) -> Any:
        try:
            import obstore  # noqa: PLC0415 - heavy, and optional
        except ImportError as error:
            raise missing(error) from None
        return obstore

    def _settle(self, name: str) -> None:
        """Sync to disk, because rows are dropped once they are there. Object stores do this themselves."""
        if self.local is None:
            return
        path = self.local / name
        _sync(path)
        _sync(path.parent)
        directory = path.parent
        while directory != self.local and directory not in self._synced:
            _sync(directory.parent)
            self._synced.add(directory)
            directory = directory.parent

    def _store(self) -> Any:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> Any:
        stores = self._obstore.store
        with self._trouble("open", ""):
            if self.local is not None:
                # The files are as private as the database.
                self.local.mkdir(mode=0o700, parents=True, exist_ok=True)
                return stores.LocalStore(self.local, mkdir=True)
            prefix = _PREFIXES.get(self.address.partition(":")[0], "AZURE")
            given = {name: os.environ.get(f"{prefix}_{name.upper()}") for name in _CONNECTION_OPTIONS}
            return stores.from_url(
                self.address,
                client_options={"timeout": REQUEST, "connect_timeout": CONNECT}
                | {name: value for name, value in given.items() if value},
                retry_config={"max_retries": MOST_TRIES, "retry_timeout": TRIES},
            )

    @contextmanager
    def _trouble(self, doing: str, name: str) -> Iterator[None]:
        errors = self._obstore.exceptions
        try:
            yield
        except (errors.BaseError, OSError, ValueError) as error:
            if doing != "write" and isinstance(error, FileNotFoundError | errors.NotFoundError):
                raise ObjectNotFound(f"{name} is not in the archive at {self.address}") from None
            # Without its cause, which may repeat credentials.
            text = first_line(ArchiveUnavailable(_without_secrets(str(error))))
            did = f"{doing} {name}".strip()
            raise ArchiveUnavailable(f"the archive at {self.address} could not {did}: {text}") from None


class ObjectNotFound(ArchiveUnavailable):
    """There is no object of that name."""


def missing(error: ImportError) -> ConfigurationError:
    """Return an error that says what to install."""
    return ConfigurationError(
        f"the archive needs more packages ({error.name} is missing): pip install 'sereno[archive]'"
    )


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _without_secrets(text: str) -> str:
    """Mask secrets of the environment: some stores repeat them in errors."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST_SECRET and _SECRETS.fullmatch(name):
            text = text.replace(value, MASK)
    return text


def _resolved(address: str, directory: str) -> tuple[str, Path | None]:
    if address == DISK:
        local = Path(directory).absolute() / "archive"
    elif address.startswith("file://"):
        local = Path(address.removeprefix("file://")).absolute()
    else:
        return address.rstrip("/"), None
    return f"file://{local}", local
