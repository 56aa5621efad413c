"""Converts a log record to a line of the central log: bounded, storable, and with likely secrets masked.

Any record yields a line: the conversion may truncate, omit and mask, but it does not raise.
"""

import logging
import math
import traceback
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from sereno.access.masking import MASK, is_secret, without_secrets
from sereno.telemetry.log_events import FIELDS

# Characters of a message, and of a traceback; the end of a longer traceback is stored, because it has the error.
LONGEST_MESSAGE = 10_000
LONGEST_TRACEBACK = 20_000
# Limits of the context: characters in total, of one text, of a name; items of one value, and depth of nesting.
MOST_CONTEXT, LONGEST_TEXT, LONGEST_KEY = 8_000, 2_000, 100
MOST_PARTS, DEEPEST = 50, 5
# Characters; the limit of names of tenants, tasks and queues everywhere.
LONGEST_NAME = 500

LEVELS = ("debug", "info", "warning", "error", "critical")
NAMES = ("tenant", "task", "queue", "trace_id")
NUMBERS = ("job_id", "session")
_MOST_NUMBER = 2**63


def as_line(record: logging.LogRecord, seen: float) -> bytes:
    """Return a JSON object with the columns of sereno.logs. `seen`: time of the record by the monotonic clock."""
    values = dict(getattr(record, FIELDS, None) or {})
    line: dict[str, Any] = {
        "seen": seen,
        "level": level_name(record.levelno),
        "event": _cut(str(getattr(record, "event", record.name)), LONGEST_NAME),
        "message": without_secrets(_cut(_message(record), LONGEST_MESSAGE)),
    }
    for name in NAMES:
        # A name that cannot be stored unchanged could become the name of another tenant: it stays in the context.
        value = values.get(name)
        if isinstance(value, str) and len(value) <= LONGEST_NAME and _storable(value) == value:
            line[name] = values.pop(name)
    for name in NUMBERS:
        if type(values.get(name)) is int and 0 <= values[name] < _MOST_NUMBER:
            line[name] = values.pop(name)
    line["context"] = _LogContext().of({name: value for name, value in values.items() if value is not None})
    if record.exc_info and record.exc_info[0] is not None:
        line["traceback"] = _traceback(record)
    return msgspec.json.encode(line)


def level_name(number: int) -> str:
    """Return the name of the highest level at or below this number."""
    return LEVELS[min(len(LEVELS), max(1, number // 10)) - 1]


class _LogContext:
    """Converts the fields of a record to JSON of bounded size."""

    def __init__(self) -> None:
        self._left = MOST_CONTEXT

    def of(self, value: Any, depth: int = 0) -> Any:
        try:
            return self._of(value, depth)
        except TimeoutError:
            # The deadline of a job, raised in its thread from outside; it must reach the handler of the job.
            raise
        except Exception as error:  # noqa: BLE001 - a value of the user may raise anything when it is converted
            return f"({type(error).__name__} while it was converted)"

    def _of(self, value: Any, depth: int) -> Any:
        match value:
            case None | bool():
                return value
            case int() if abs(value) < _MOST_NUMBER:
                return int(value)
            case float() if math.isfinite(value):
                return float(value)
            case Mapping() if depth < DEEPEST:
                return self._mapping(value, depth)
            case list() | tuple() | set() | frozenset() if depth < DEEPEST:
                return [self.of(part, depth + 1) for part in self._parts(value)]
            case bytes() | bytearray() | memoryview():
                return f"({len(value)} bytes)"
            case Mapping() | list() | tuple() | set() | frozenset():
                return f"({len(value)} parts)"
            case int():
                return f"(a number of {value.bit_length()} bits)"
            case _:
                return self._text(str(value))

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for key in self._parts(value):
            name = _cut(str(key), LONGEST_KEY)
            self._left -= len(name)
            fields[name] = MASK if is_secret(str(key)) else self.of(value[key], depth + 1)
        return fields

    def _parts(self, value: Iterable[Any]) -> Iterable[Any]:
        """Yield the first parts, until the size limit of the context is reached."""
        for part in islice(value, MOST_PARTS):
            if self._left <= 0:
                return
            self._left -= 1
            yield part

    def _text(self, text: str) -> str:
        bounded = without_secrets(_cut(text, min(LONGEST_TEXT, max(0, self._left))))
        self._left -= len(bounded)
        return bounded


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except TimeoutError:
        raise
    except Exception:  # noqa: BLE001 - arguments that do not match the format string, or cannot be formatted
        return f"{record.msg!s:.2000} (its arguments do not match the format)"


def _traceback(record: logging.LogRecord) -> str:
    assert record.exc_info
    text = "".join(traceback.format_exception(*record.exc_info))
    cut = text if len(text) <= LONGEST_TRACEBACK else f"…{text[-LONGEST_TRACEBACK:]}"
    return without_secrets(_storable(cut))


def _cut(text: str, longest: int) -> str:
    return _storable(text if len(text) <= longest else f"{text[:longest]}…")


def _storable(text: str) -> str:
    """Return the text without what PostgreSQL cannot store: NUL bytes and lone surrogates."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()
