"""File storage by URL: a directory, or a bucket of an object store. Untrusted input decides neither path nor size."""

import asyncio
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, from_url

from reconciliation import settings
from reconciliation.errors import BadReport

_PATH = re.compile(r"[a-z0-9-]{1,60}/[0-9]{4}-[0-9]{2}/[0-9]{1,19}\.csv(\.gz)?")

# Directories whose own entries are on disk.
_SYNCED: set[Path] = set()


class StorageError(Exception):
    """The storage is unavailable, or a file is missing."""


def path_of(account: str, competence: str, run: int) -> str:
    """Return the path of the CSV of a run; the file as it was received is beside it, with the suffix `.gz`."""
    path = f"{account}/{competence}/{run}.csv"
    if not _PATH.fullmatch(path):
        raise BadReport(f"{path!r:.100} is not a valid storage path")
    return path


async def put(path: str, content: bytes) -> str:
    """Write or replace a file, whole or not at all; return its checksum."""
    with _trouble("write", path):
        store, directory = _opened(settings.STORAGE)
        await obstore.put_async(store, path, content)
        if directory is not None:
            await asyncio.to_thread(_sync, directory / path)
    return hashlib.sha256(content).hexdigest()


async def get(path: str) -> bytes:
    with _trouble("read", path):
        store, _ = _opened(settings.STORAGE)
        found = await obstore.get_async(store, path)
        return bytes(await found.bytes_async())


async def delete(path: str) -> None:
    """Delete a file, if it is there."""
    with _trouble("delete", path):
        store, _ = _opened(settings.STORAGE)
        try:
            await obstore.delete_async(store, path)
        except FileNotFoundError:
            return


@lru_cache
def _opened(url: str) -> tuple[Any, Path | None]:
    """Return the store of a URL, and its directory if it is local. Credentials come from the environment (`AWS_*`)."""
    if "://" in url and not url.startswith("file://"):
        return from_url(url), None
    directory = Path(unquote(urlsplit(url).path) if "://" in url else url).absolute()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return LocalStore(directory, mkdir=True), directory


def _sync(path: Path) -> None:
    """Sync a file to disk, and the directories that it may have created: the database refers to it from now on."""
    month = path.parent
    for each in (path, month) if month in _SYNCED else (path, month, *month.parents[:2]):
        opened = os.open(each, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
    _SYNCED.add(month)


@contextmanager
def _trouble(doing: str, path: str) -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        # Without its cause: errors of some stores repeat addresses and credentials.
        raise StorageError(f"storage: could not {doing} {path}: {type(error).__name__}") from None
