"""Files: kept in one directory that all workers see. Nothing from outside decides where, or how much."""

import hashlib
import os
import re
import zlib
from io import BytesIO
from pathlib import Path
from uuid import uuid4
from zipfile import BadZipFile, ZipFile

from reconciliation import settings

# A report of a busy month has some 10 MB; one that says so of itself may lie.
MOST_UNPACKED = 64_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\.csv")
_PLACE = re.compile(r"[a-z0-9-]{1,60}/[0-9]{4}-[0-9]{2}/report\.(zip|csv)")


class BadReport(Exception):  # noqa: N818 - named for what happened
    """The file cannot be what was asked for; the same file would come again."""


def keep(place: str, content: bytes) -> str:
    """Written whole or not at all, and over what was there; answers its checksum."""
    path = path_of(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{uuid4().hex}")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return hashlib.sha256(content).hexdigest()


def fetch(place: str) -> bytes:
    return path_of(place).read_bytes()


def path_of(place: str) -> Path:
    if not _PLACE.fullmatch(place):
        raise BadReport(f"{place!r:.100} is no place for a file")
    return settings.STORAGE / place


def unpack(packed: bytes) -> bytes:
    """The one CSV in a ZIP file. Its name is looked at and never used; its size is what comes out, not what it says."""
    try:
        with ZipFile(BytesIO(packed)) as archive:
            names = archive.namelist()
            if len(names) != 1 or not _NAME.fullmatch(names[0]):
                raise BadReport(f"{len(names)} files, the first named {names[:1]!r:.120}: one CSV is expected")
            with archive.open(names[0]) as file:
                content = file.read(MOST_UNPACKED + 1)
    except (BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, zlib.error) as error:
        raise BadReport(f"no ZIP file that can be read: {type(error).__name__}") from error
    if len(content) > MOST_UNPACKED:
        raise BadReport(f"more than {MOST_UNPACKED:,} bytes come out of {len(packed):,}")
    return content
