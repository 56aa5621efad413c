"""Reads archived files again, all or some of them, and compares them with the database and their manifests.

A broken or missing file is marked; if its rows are still held, the next export writes it again.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from sereno.archive import restore_store
from sereno.archive import store as archive
from sereno.archive.archiver import Archiver, ReportProgress, UnverifiedFile
from sereno.archive.manifest import Manifest, decode, encode
from sereno.archive.parquet import InvalidParquetFile
from sereno.archive.rows import FileSelection
from sereno.archive.scratch import scratch
from sereno.archive.storage import EXTRACTS, ObjectNotFound, Storage
from sereno.database.database import Database
from sereno.errors import ArchiveUnavailable, first_line
from sereno.settings import Settings
from sereno.telemetry.log_events import emit

# Files per query.
PAGE = 500
# Consecutive failures after which the storage counts as down.
DOWN_AFTER = 3
# Unknown objects that are listed by name.
MOST_LISTED = 20


@dataclass(slots=True)
class VerifyResult:
    """What was checked. `unknown`: objects that belong to no batch; `unknown_objects`: the first of them."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    broken: int = 0
    reopened: int = 0
    problems: list[str] = field(default_factory=list)
    unknown: int = 0
    unknown_objects: list[str] = field(default_factory=list)


class ArchiveVerifier:
    """Reads files again. Blocks: meant for a command in the foreground, or a thread."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._archiver = Archiver(database, settings)
        self._silent = 0

    @property
    def place(self) -> Storage:
        return self._archiver.place

    def verify(self, which: FileSelection, sample: int | None, progress: ReportProgress) -> VerifyResult:
        """Check every file, those of a batch or since a moment, or a random sample; then find unknown objects."""
        done = VerifyResult()
        files, length = self._database.run(restore_store.how_many(which))
        total = min(files, sample) if sample is not None else files
        for file in self._files(which, sample):
            progress(min(1.0, done.files / max(total, 1)), f"{done.files:,} of {total:,} files, {done.bytes:,} bytes")
            self._one(file, done)
        if sample is None and which == FileSelection():
            progress(1.0, f"{length:,} bytes are verified; looking for unknown objects")
            self._find_unknown(done)
        return done

    def _files(self, which: FileSelection, sample: int | None) -> Iterator[Manifest]:
        if sample is not None:
            yield from self._database.run(restore_store.sampled(which, sample))
            return
        after = (0, 0)
        while page := self._database.run(restore_store.checkable(which, after, PAGE)):
            yield from page
            after = (page[-1].batch, page[-1].number)

    def _one(self, file: Manifest, done: VerifyResult) -> None:
        done.files += 1
        tries = self._database.run(archive.tries(file.batch, file.number))
        try:
            repaired = self._check(file)
        except (UnverifiedFile, ObjectNotFound, InvalidParquetFile) as error:
            self._silent = 0
            self._broken(file, error, done)
        except ArchiveUnavailable as error:
            # The storage failed: this says nothing about the file.
            done.problems.append(first_line(error))
            self._silent += 1
            if self._silent >= DOWN_AFTER:
                raise
        else:
            self._silent = 0
            done.rows += file.rows
            done.bytes += file.bytes
            done.problems += [repaired] if repaired else []
            self._database.run(archive.verified(file.batch, file.number, file.sha256, since=tries))

    def _check(self, manifest: Manifest) -> str | None:
        """Verify a file. Return what was wrong with its manifest and has been repaired."""
        with scratch("verify") as directory:
            self._archiver.read_back(manifest, directory / "read.parquet")
        try:
            stored = decode(self.place.get_bytes(manifest.name))
        except (ObjectNotFound, msgspec.DecodeError):
            stored = None
        if stored == manifest:
            return None
        self.place.put_bytes(manifest.name, encode(manifest))
        return f"{manifest.name} was missing or differed from the database: it was written again"

    def _broken(self, file: Manifest, error: ArchiveUnavailable, done: VerifyResult) -> None:
        text = first_line(error)
        done.broken += 1
        self._database.run(archive.failed(file.batch, file.number, text))
        if self._database.run(archive.reopen(file.batch, file.number)):
            done.reopened += 1
            text = f"{text}; its rows are still held: the next export writes it again"
        done.problems.append(text)
        emit(logging.ERROR, "archive.unverified", text)

    def _find_unknown(self, done: VerifyResult) -> None:
        names = (name for name in self.place.names() if not name.startswith(EXTRACTS))
        while page := list(islice(names, PAGE)):
            files = {name.removesuffix(".json") for name in page}
            known = self._database.run(restore_store.known(sorted(files)))
            unknown = [name for name in page if name.removesuffix(".json") not in known]
            done.unknown += len(unknown)
            done.unknown_objects += unknown[: MOST_LISTED - len(done.unknown_objects)]
