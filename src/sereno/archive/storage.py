"""Where archived files lie: a directory, or a bucket of an object store, said by an address.

Credentials come from where the tools of each store look for them: `AWS_*`, `GOOGLE_*`, `AZURE_*` in the environment, or
the role of the machine. An address holds none.
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

# Parts of a large object, and pieces of one that is read back.
CHUNK = 8 * 1024 * 1024
# One request, and all tries of it together. What takes longer is tried again by the next run.
REQUEST = timedelta(seconds=120)
TRIES = timedelta(seconds=60)
MOST_TRIES = 5
CONNECT = timedelta(seconds=10)
# Files that people have asked for lie here; they belong to no batch.
EXTRACTS = "extracts/"
# How the environment names what belongs to each store.
_PREFIXES = {"s3": "AWS", "s3a": "AWS", "gs": "GOOGLE"}
# Of the connection, and said there as well: giving some of these by hand would hide what is said of the others.
_SAID = ("allow_http", "allow_invalid_certificates", "proxy_url", "proxy_ca_certificate", "proxy_excludes")
# Variables whose values nobody may read in an error; shorter values would hide innocent words.
_SECRETS = re.compile(r"(AWS|AZURE|GOOGLE|S3|GCS)_.*(KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL|SAS).*|.*PROXY.*")
_SHORTEST_SECRET = 6


class Storage:
    """A store of objects. Every call blocks; every trouble of the store is ArchiveUnavailable."""

    def __init__(self, address: str, directory: str) -> None:
        """`address`: `disk`, or an URL; `directory`: where `disk` is."""
        self.address, self.local = _resolved(address, directory)
        self._directory = directory
        self._opened: Any = None
        self._synced: set[Path] = set()

    def put(self, name: str, file: Path, said: Callable[[int], None] | None = None) -> None:
        """The whole object or nothing; an object of that name is replaced."""
        with self._trouble("write", name):
            self._obstore.put(self._store(), name, file, chunk_size=CHUNK, max_concurrency=2)
            self._settle(name)
        if said is not None:
            said(file.stat().st_size)

    def put_bytes(self, name: str, content: bytes) -> None:
        with self._trouble("write", name):
            self._obstore.put(self._store(), name, content)
            self._settle(name)

    def get(self, name: str, file: Path) -> tuple[str, int]:
        """Copy an object to a file; answers its SHA-256 and its length, of what was really read."""
        digest, length = hashlib.sha256(), 0
        with self._trouble("read", name), file.open("wb") as target:
            whole = int(self._obstore.head(self._store(), name)["size"])
            # Each piece is a request of its own: as one, a large object would have to come in the time of one.
            for start in range(0, whole, CHUNK):
                end = min(start + CHUNK, whole)
                piece = memoryview(self._obstore.get_range(self._store(), name, start=start, end=end))
                digest.update(piece)
                length += target.write(piece)
        return digest.hexdigest(), length

    def get_bytes(self, name: str) -> bytes:
        """A small object."""
        with self._trouble("read", name):
            return bytes(self._obstore.get(self._store(), name).bytes())

    def length(self, name: str) -> int | None:
        """None where there is no such object."""
        try:
            with self._trouble("look at", name):
                return int(self._obstore.head(self._store(), name)["size"])
        except ObjectNotFound:
            return None

    def names(self, under: str = "") -> Iterator[str]:
        """Every object, or those whose names begin with a folder."""
        with self._trouble("list", under or "everything"):
            for page in self._obstore.list(self._store(), prefix=under or None):
                yield from (each["path"] for each in page)

    def part(self, name: str, start: int, end: int) -> bytes:
        """Some bytes of an object, for programs that read parts of files."""
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
        """Onto the disk itself: rows are dropped on the word that they are there. Other stores see to it themselves."""
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
                # Rows are as private here as in the database.
                self.local.mkdir(mode=0o700, parents=True, exist_ok=True)
                return stores.LocalStore(self.local, mkdir=True)
            prefix = _PREFIXES.get(self.address.partition(":")[0], "AZURE")
            said = {name: os.environ.get(f"{prefix}_{name.upper()}") for name in _SAID}
            return stores.from_url(
                self.address,
                client_options={"timeout": REQUEST, "connect_timeout": CONNECT}
                | {name: value for name, value in said.items() if value},
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
            # Without its cause, which may repeat what a store says of our credentials.
            words = first_line(ArchiveUnavailable(_discreet(str(error))))
            did = f"{doing} {name}".strip()
            raise ArchiveUnavailable(f"the archive at {self.address} could not {did}: {words}") from None


class ObjectNotFound(ArchiveUnavailable):
    """No object of that name."""


def missing(error: ImportError) -> ConfigurationError:
    """What to install."""
    return ConfigurationError(
        f"the archive needs more packages ({error.name} is missing): pip install 'sereno[archive]'"
    )


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _discreet(words: str) -> str:
    """Without what the environment says in confidence: some stores repeat it."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST_SECRET and _SECRETS.fullmatch(name):
            words = words.replace(value, MASK)
    return words


def _resolved(address: str, directory: str) -> tuple[str, Path | None]:
    if address == DISK:
        local = Path(directory).absolute() / "archive"
    elif address.startswith("file://"):
        local = Path(address.removeprefix("file://")).absolute()
    else:
        return address.rstrip("/"), None
    return f"file://{local}", local
