"""Import of schedules in batches of a thousand; a refused schedule does not stop the others."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import msgspec
import psycopg

from sereno.cli.context import CommandContext
from sereno.cli.output import visible
from sereno.errors import InvalidArguments, SerenoError
from sereno.schedules.bulk_write import DescribedSchedule, described, write
from sereno.schedules.importers.definition import MakeJob

if TYPE_CHECKING:
    from sereno.schedules.importers import ImportedSchedule

CHUNK = 1000


@dataclass(frozen=True, slots=True)
class ImportSource:
    """One schedule to import: its position in the source, and its object or the problem with it."""

    where: str
    line: int | None = None
    value: Any = None
    problem: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class ImportRefusal:
    where: str
    line: int | None
    key: str | None
    problem: str


@dataclass(frozen=True, slots=True)
class AcceptedDefinition:
    source: ImportSource
    wanted: DescribedSchedule


class ScheduleImport:
    """One import and its result."""

    def __init__(
        self, context: CommandContext, make_job: MakeJob, renames: dict[str, str], *, strict: bool, dry_run: bool
    ) -> None:
        self._context = context
        self._make_job = make_job
        self._renames = renames
        self._strict = strict
        self.dry_run = dry_run
        self._keys: dict[str, str] = {}
        self._used: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.changed: list[str] = []
        self.refused: list[ImportRefusal] = []
        self.notes: list[tuple[str, str]] = []

    @property
    def written(self) -> int:
        return self.counts["created"] + self.counts["changed"]

    @property
    def unused_renames(self) -> list[str]:
        return sorted(set(self._renames) - self._used)

    def report(self) -> dict[str, Any]:
        """Return the result for JSON output."""
        return {
            "dry_run": self.dry_run,
            **{what: self.counts[what] for what in ("created", "changed", "unchanged")},
            "changed_keys": self.changed,
            "refused": self.refused,
            "notes": [{"where": where, "note": note} for where, note in self.notes],
        }

    def read(self, sources: Iterable[ImportSource]) -> None:
        """Import all sources. Strict: in one transaction, which the first refusal rolls back."""
        connection = self._context.connection()
        with connection.transaction() if self._strict else nullcontext():
            chunk: list[AcceptedDefinition] = []
            for source in sources:
                accepted = self._accept(source)
                if accepted is not None:
                    chunk.append(accepted)
                if len(chunk) >= CHUNK:
                    self._write(chunk)
                    chunk = []
            self._write(chunk)
        self.refused.sort(key=lambda refusal: refusal.line or 0)

    def _accept(self, source: ImportSource) -> AcceptedDefinition | None:
        if source.note:
            self.notes.append((source.where, source.note))
        if source.problem is not None:
            self._refuse(source, source.problem)
            return None
        try:
            wanted = described(self._renamed(source.value), self._make_job)
        except (SerenoError, RecursionError) as error:
            self._refuse(source, str(error))
            return None
        before = self._keys.setdefault(wanted.schedule.key, source.where)
        if before != source.where:
            self._refuse(source, f"duplicate key: {before} has the same")
            return None
        return AcceptedDefinition(source, wanted)

    def _renamed(self, value: Any) -> Any:
        task = value.get("task") if isinstance(value, dict) else None
        if isinstance(task, str) and task in self._renames:
            self._used.add(task)
            return value | {"task": self._renames[task]}
        return value

    def _write(self, chunk: Sequence[AcceptedDefinition]) -> None:
        """Write a chunk. When the database refuses it, halve it until the refused row is found."""
        if not chunk:
            return
        try:
            with self._context.connection().transaction(force_rollback=self.dry_run):
                found = self._context.run(write([each.wanted for each in chunk]))
        except psycopg.OperationalError:
            raise
        except (SerenoError, psycopg.Error) as error:
            if len(chunk) == 1:
                self._refuse(chunk[0].source, str(error))
                return
            self._write(chunk[: len(chunk) // 2])
            self._write(chunk[len(chunk) // 2 :])
            return
        self.counts.update(each.what for each in found)
        self.changed += [each.key for each in found if each.what == "changed"]

    def _refuse(self, source: ImportSource, problem: str) -> None:
        first_line = visible(problem.strip().split("\n")[0])
        if self._strict:
            raise InvalidArguments(f"{source.where}: {first_line}; nothing was imported")
        key = source.value.get("key") if isinstance(source.value, dict) else None
        self.refused.append(ImportRefusal(source.where, source.line, key if isinstance(key, str) else None, first_line))


def of_lines(file: IO[bytes], advance: Callable[[int], None]) -> Iterator[ImportSource]:
    """Return the lines of an export file; empty lines are ignored."""
    for number, raw in enumerate(file, 1):
        advance(len(raw))
        if not raw.strip():
            continue
        where = f"line {number}"
        try:
            yield ImportSource(where, number, msgspec.json.decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            yield ImportSource(where, number, problem=f"not JSON: {error}")


def of_program(found: Iterable["ImportedSchedule"]) -> Iterator[ImportSource]:
    """Return the schedules that were read from another program's tables."""
    for each in found:
        where = visible(each.key)
        value = each.schedule
        if value is not None and not each.enabled:
            value = {**value, "enabled": False, "note": value.get("note") or each.note}
        yield ImportSource(where, None, value, each.problem, each.note)
