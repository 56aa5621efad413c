"""Writes the schedules that the code declares. One that cannot be written is logged and does not stop the others."""

import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sereno.database.statement import Operation
from sereno.schedules import declaration_rows
from sereno.schedules.rows import UpsertResult
from sereno.schedules.schedule import NewSchedule
from sereno.schedules.ticker import is_a_rows_fault
from sereno.telemetry.log_events import emit

# Characters of an error that are stored for `sereno doctor`.
PROBLEM_LENGTH = 500


@dataclass(slots=True)
class DeclarationResult:
    """The written schedules, the keys that are no longer declared, and the refused ones with the reason, by key."""

    written: list[UpsertResult] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def synchronise(declared: Mapping[str, NewSchedule], service: str) -> Generator[Operation[Any], Any, DeclarationResult]:
    """Write all in one transaction; if one is refused, each in a transaction of its own."""
    done = DeclarationResult()
    schedules = list(declared.values())
    try:
        yield from _write(schedules, service, done)
    except Exception as error:
        if not is_a_rows_fault(error):
            raise
        yield from _one_by_one(schedules, service, done)
    done.left = yield declaration_rows.finish(service, list(declared), done.refused)
    return done


def _one_by_one(
    schedules: Sequence[NewSchedule], service: str, done: DeclarationResult
) -> Generator[Operation[Any], Any, None]:
    for schedule in schedules:
        try:
            yield from _write([schedule], service, done)
        except Exception as error:
            if not is_a_rows_fault(error):
                raise
            problem = _storable(error)
            done.refused[schedule.key] = problem
            text = f"declared schedule {schedule.key} could not be written and will not run: {problem}"
            emit(logging.ERROR, "schedule.refused", text, error=error, schedule=schedule.key)


def _write(
    schedules: Sequence[NewSchedule], service: str, done: DeclarationResult
) -> Generator[Operation[Any], Any, None]:
    if not schedules:
        return
    written, renamed = yield declaration_rows.write(schedules, service)
    done.written += written
    for each in renamed:
        text = f"schedule {each.key} of tenant {each.tenant} has the key of a declared one: renamed to {each.new_key}"
        emit(logging.WARNING, "schedule.renamed", text, schedule=each.new_key)


def _storable(error: Exception) -> str:
    """Return the first line of the error; PostgreSQL adds the row in the others, which may hold personal data."""
    line = str(error).strip().partition("\n")[0] or type(error).__name__
    return line[:PROBLEM_LENGTH].replace("\x00", " ").encode(errors="replace").decode()
