"""Decodes the reply to a claim: a list for each column, which PostgreSQL builds faster than an array for each row.

Most jobs have no failure, no trace, no expiry and no schedule: those fields are sent for the other jobs only.

A value that cannot be decoded must not block the other jobs of its claim: all would be released and claimed together
again. The worker gets that job with the reason in `unreadable`, and settles it as dead.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import msgspec

from sereno.error_text import describe
from sereno.jobs.job import ClaimedJob, FireInfo


class UnusualFields(msgspec.Struct, array_like=True, gc=False):
    """The fields of a job that most jobs do not have."""

    id: int
    failures: int = 0
    crashes: int = 0
    trace: str | None = None
    expired: bool = False
    fire: FireInfo | None = None


class _Columns(msgspec.Struct, array_like=True):
    ids: list[int]
    attempts: list[int]
    tasks: list[str]
    queues: list[str]
    priorities: list[int]
    ready_seqs: list[int]
    tenants: list[str | None]
    args: list[msgspec.Raw]
    claimed_at: float
    waited: list[float]
    unusual: list[UnusualFields] | None
    # Jobs of groups, and jobs that others wait for.
    linked: list[int] | None
    links: list[int] | None


_columns = msgspec.json.Decoder(_Columns)
_unusual = msgspec.json.Decoder(UnusualFields)
_fields = msgspec.structs.fields(UnusualFields)
# What the decoder raises for a value that is nested too deeply, has a wrong type, or is not valid text.
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)


def decode_claimed(reply: str | None) -> list[ClaimedJob]:
    """Return the jobs of a claim. A job that cannot be decoded has the reason in `unreadable`."""
    if reply is None:
        return []
    problems: dict[int, str] = {}
    try:
        columns = _columns.decode(reply)
    except _UNREADABLE:
        columns = _decode_apart(reply, problems)
    # All in C: there is no loop in Python for the usual jobs.
    jobs = list(
        map(
            ClaimedJob,
            columns.ids,
            columns.attempts,
            columns.tasks,
            columns.queues,
            columns.priorities,
            columns.ready_seqs,
            columns.tenants,
            columns.args,
            repeat(columns.claimed_at),
            columns.waited,
        )
    )
    if columns.unusual:
        by_id = {job.id: job for job in jobs}
        for each in columns.unusual:
            job = by_id[each.id]
            job.failures, job.crashes, job.trace = each.failures, each.crashes, each.trace
            job.expired, job.fire, job.unreadable = each.expired, each.fire, problems.get(each.id)
    if columns.linked and columns.links:
        linked: Iterable[ClaimedJob] = jobs
        # All of them, as in a large group, or some.
        if len(columns.linked) < len(jobs):
            by_id = {job.id: job for job in jobs}
            linked = [by_id[job_id] for job_id in columns.linked]
        for job, link in zip(linked, columns.links, strict=True):
            job.link = link
    return jobs


def _decode_apart(reply: str, problems: dict[int, str]) -> _Columns:
    """Decode each value by itself. The columns of plain numbers and names always decode: their types are checked."""
    *plain, args, claimed_at, waited, unusual, linked, links = _elements(reply)
    values: list[Any] = [msgspec.json.decode(column) for column in plain]
    # Arguments are decoded later, with the types of the task.
    raw = [msgspec.Raw(text.strip().encode()) for text in _elements(args)]
    found = None if unusual.strip() == "null" else [_decode_unusual(row, problems) for row in _elements(unusual)]
    rest = [msgspec.json.decode(column) for column in (claimed_at, waited)]
    return _Columns(*[*values, raw, *rest, found, msgspec.json.decode(linked), msgspec.json.decode(links)])


def _decode_unusual(row: str, problems: dict[int, str]) -> UnusualFields:
    try:
        return _unusual.decode(row)
    except _UNREADABLE:
        values: dict[str, Any] = {}
        refused: list[str] = []
        for field, text in zip(_fields, _elements(row), strict=True):
            try:
                values[field.name] = msgspec.json.decode(text, type=field.type)
            except _UNREADABLE as error:
                refused.append(f"{field.name}: {describe(error).message}")
        problems[values["id"]] = "; ".join(refused)
        return UnusualFields(**values)


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
