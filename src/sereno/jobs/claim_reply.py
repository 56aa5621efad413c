"""Decodes the reply to a claim: all rows at once, or row by row when one of them cannot be decoded.

An undecodable row must not block the other rows of its claim: all would be released and claimed together again. The
worker gets that job with the reason in `unreadable`, and settles it as dead.
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
# What the decoder raises for a value that is nested too deeply, has a wrong type, or is not valid text.
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)

# A job cannot be settled without these. Their columns are NOT NULL and typed, so they always decode.
_NEEDED = frozenset({"id", "attempt", "task", "queue", "priority", "ready_seq"})
# Placeholders for undecodable values; such a job is not run.
_PLACEHOLDERS: dict[str, Any] = {"failures": 0, "crashes": 0, "claimed_at": 0.0, "waited": 0.0, "expired": False}


def decode_claimed(reply: str) -> list[ClaimedJob]:
    """Return the jobs of a claim. A job that cannot be decoded has the reason in `unreadable`."""
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
            # Arguments are decoded later, with the types of the task.
            values[field.name] = msgspec.Raw(text.strip().encode())
            continue
        try:
            values[field.name] = msgspec.json.decode(text, type=field.type)
        except _UNREADABLE as error:
            if field.name in _NEEDED:
                raise
            values[field.name] = _PLACEHOLDERS.get(field.name)
            problems.append(f"{field.name}: {describe(error).message}")
    return ClaimedJob(**values, unreadable="; ".join(problems) or None)


def _elements(array: str) -> Iterator[str]:
    """Yield the text of each element of a JSON array, however deeply it is nested."""
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
