"""The reply to a claim: decoded at once, or row by row when a row in it cannot be read.

A row that cannot be read must not keep the others of its claim: they were claimed with it, and would go back and be
claimed with it again. It is handed to the worker with the reason, which settles it as dead.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from sereno.error_text import describe
from sereno.jobs.job import ClaimedJob

_all = msgspec.json.Decoder(list[ClaimedJob])
_one = msgspec.json.Decoder(ClaimedJob)
_fields = msgspec.structs.fields(ClaimedJob)
# Too deep for the decoder, not of its type, not even text.
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)

# Without these nothing can be said about a job; their columns can hold nothing else.
_NEEDED = frozenset({"id", "attempt", "task", "queue", "priority", "ready_seq"})
# What stands in for a value that cannot be read, in a job that will not run.
_NOTHING: dict[str, Any] = {"failures": 0, "crashes": 0, "claimed_at": 0.0, "waited": 0.0, "expired": False}


def decode_claimed(reply: str) -> list[ClaimedJob]:
    """The jobs of a claim. One that cannot be read says so in `unreadable`."""
    try:
        return _all.decode(reply)
    except _UNREADABLE:
        return [_decode_row(row) for row in _elements(reply)]


def _decode_row(row: str) -> ClaimedJob:
    try:
        return _one.decode(row)
    except _UNREADABLE:
        return _decode_fields(row)


def _decode_fields(row: str) -> ClaimedJob:
    values: dict[str, Any] = {}
    problems: list[str] = []
    for field, text in zip(_fields, _elements(row), strict=False):
        if field.name == "args":
            # Whether they can be read is decided when the task's own types are known.
            values[field.name] = msgspec.Raw(text.strip().encode())
            continue
        try:
            values[field.name] = msgspec.json.decode(text, type=field.type)
        except _UNREADABLE as error:
            if field.name in _NEEDED:
                raise
            values[field.name] = _NOTHING.get(field.name)
            problems.append(f"{field.name}: {describe(error).message}")
    return ClaimedJob(**values, unreadable="; ".join(problems) or None)


def _elements(array: str) -> Iterator[str]:
    """Yield the text of each element of a JSON array, however deep it is nested."""
    depth, start = 0, 0
    for token in _TOKEN.finditer(array):
        mark = token[0][0]
        if mark in "[{":
            depth += 1
            if depth == 1:
                start = token.end()
        elif mark in "]}":
            depth -= 1
            if depth == 0:
                if last := array[start : token.start()].strip():
                    yield last
                return
        elif mark == "," and depth == 1:
            yield array[start : token.start()]
            start = token.end()
