"""Writes the schedules that the code declares. One that cannot be written is logged, and stops nothing else."""

import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sereno.database.statement import Operation
from sereno.schedules import declaration_rows as store
from sereno.schedules.schedule import NewSchedule
from sereno.schedules.store import UpsertResult
from sereno.schedules.ticker import is_a_rows_fault
from sereno.telemetry.log_events import emit

# Characters of an error that are kept for `sereno doctor`.
PROBLEM_LENGTH = 500


@dataclass(slots=True)
class DeclarationResult:
    """What was written, the keys that left the code, and why others were refused, by key."""

    written: list[UpsertResult] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def synchronise(declared: Mapping[str, NewSchedule], service: str) -> Generator[Operation[Any], Any, DeclarationResult]:
    """All of them in one transaction; when one is refused, each in a transaction of its own."""
    done = DeclarationResult()
    schedules = list(declared.values())
    try:
        yield from _write(schedules, service, done)
    except Exception as error:
        if not is_a_rows_fault(error):
            raise
        yield from _one_by_one(schedules, service, done)
    done.left = yield store.finish(service, list(declared), done.refused)
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
            words = f"schedule {schedule.key} of the code could not be written, and does not run: {problem}"
            emit(logging.ERROR, "schedule.refused", words, error=error, schedule=schedule.key)


def _write(
    schedules: Sequence[NewSchedule], service: str, done: DeclarationResult
) -> Generator[Operation[Any], Any, None]:
    if not schedules:
        return
    written, renamed = yield store.write(schedules, service)
    done.written += written
    for each in renamed:
        words = f"schedule {each.key} of tenant {each.tenant} has a key of the application: it is {each.new_key} now"
        emit(logging.WARNING, "schedule.renamed", words, schedule=each.new_key)


def _storable(error: Exception) -> str:
    """The first line of the error; PostgreSQL adds the whole row in others, which may hold personal data."""
    line = str(error).strip().partition("\n")[0] or type(error).__name__
    return line[:PROBLEM_LENGTH].replace("\x00", " ").encode(errors="replace").decode()
