"""File storage in one directory that all workers share. Untrusted input decides neither path nor size."""

import hashlib
import os
import re
import zlib
from io import BytesIO
from pathlib import Path
from uuid import uuid4
from zipfile import BadZipFile, ZipFile

from reconciliation import settings

# Bytes. A busy month has some 10 MB; the size in a ZIP header may be forged.
MOST_UNPACKED = 64_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\.csv")
_PLACE = re.compile(r"[a-z0-9-]{1,60}/[0-9]{4}-[0-9]{2}/report\.(zip|csv)")


class BadReport(Exception):  # noqa: N818 - named for what happened
    """The file is invalid; a retry would return the same file."""


def store(place: str, content: bytes) -> str:
    """Write or replace a file atomically; return its checksum."""
    path = path_of(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid4().hex}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return hashlib.sha256(content).hexdigest()


def fetch(place: str) -> bytes:
    return path_of(place).read_bytes()


def path_of(place: str) -> Path:
    if not _PLACE.fullmatch(place):
        raise BadReport(f"{place!r:.100} is not a valid storage path")
    return settings.STORAGE / place


def unpack(packed: bytes) -> bytes:
    """Return the one CSV in a ZIP file. Its name is checked and never used; its size is counted, not read from it."""
    try:
        with ZipFile(BytesIO(packed)) as archive:
            names = archive.namelist()
            if len(names) != 1 or not _NAME.fullmatch(names[0]):
                raise BadReport(f"{len(names)} files, the first named {names[:1]!r:.120}: one CSV is expected")
            with archive.open(names[0]) as file:
                content = file.read(MOST_UNPACKED + 1)
    except (BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, zlib.error) as error:
        raise BadReport(f"not a readable ZIP file: {type(error).__name__}") from error
    if len(content) > MOST_UNPACKED:
        raise BadReport(f"more than {MOST_UNPACKED:,} bytes come out of {len(packed):,}")
    return content
