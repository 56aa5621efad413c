"""The tick: take what is due, decide, write it; count the runs that ended."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, array, queries
from sereno.schedules.firing import DueSchedule

_sql = queries("schedules/tick")
_jobs = queries("jobs/transitions")
_due = msgspec.json.Decoder(DueSchedule)
_pairs = msgspec.json.Decoder(list[tuple[int, int]])
_zoned = msgspec.json.Decoder(list[tuple[int, str, int, int, int | None]])
_words = msgspec.json.Decoder(list[str])
_runs = msgspec.json.Decoder(list[tuple[int, int, bool]])
_notes = msgspec.json.Decoder(list[tuple[str, str | None]])
_ids = msgspec.json.Decoder(list[int])
_details = msgspec.json.Decoder(dict[int, dict[str, Any]])
_answers = msgspec.json.Decoder(list[dict[str, Any]])


# As many as `end_runs` looks at.
PAGE_OF_ENDS = 1000


class LockedSchedules(NamedTuple):
    """Rows that are due; and those that cannot even be read, by id, with why."""

    rows: list[DueSchedule]
    unreadable: list[tuple[int, str]]
    now: int


class FiredRow(NamedTuple):
    """A common fire, as the statement wants it."""

    id: int
    place: str
    planned: int
    next: int
    bucket: int


class EndedRun(NamedTuple):
    """A page of runs that ended: how many were read, held fires that are free now, schedules disabled, with why."""

    # The last one of the page, and how many were looked at; None and none after the last page.
    reached: int | None
    looked_at: int
    read: int
    freed: int
    disabled: list[tuple[str, str | None]]


def take(floor: int, limit: int, *, look_at_held: bool) -> Operation[LockedSchedules]:
    """Rows that are due, locked until the transaction ends."""
    found = yield Statement(_sql["take"], {"floor": floor, "limit": limit, "look_at_held": look_at_held})
    text, now = found[0]
    try:
        return LockedSchedules(_due.decode_lines(text), [], now)
    except (msgspec.MsgspecError, RecursionError):
        rows, unreadable = _one_by_one(text)
        return LockedSchedules(rows, unreadable, now)


def _one_by_one(text: str) -> tuple[list[DueSchedule], list[tuple[int, str]]]:
    rows: list[DueSchedule] = []
    unreadable: list[tuple[int, str]] = []
    for line in text.split("\n"):
        try:
            rows.append(_due.decode(line))
        except (msgspec.MsgspecError, RecursionError) as error:
            unreadable.append((int(line[1 : line.index(",")]), str(error)))
    return rows, unreadable


def busy(schedules: Collection[int]) -> Operation[set[int]]:
    """Those of these schedules that have a run under way."""
    rows = yield Statement(_sql["busy"], {"ids": list(schedules)})
    return set(_ids.decode(rows[0][0]))


def fire(fires: Sequence[FiredRow]) -> Operation[int]:
    """The common fires, all of them with one statement; answers how many jobs were made."""
    ids, places, planned, following, buckets = zip(*fires, strict=True)
    rows = yield Statement(
        _sql["fire"],
        {
            "ids": array(ids),
            "places": "{" + ",".join(f'"{place}"' for place in places) + "}",
            "planned": array(planned),
            "next": array(following),
            "bucket": array(buckets),
        },
    )
    advanced, made, _ = rows[0]
    if advanced != len(fires):
        raise AssertionError(
            f"{advanced} of {len(fires)} schedules were where they had been locked: nothing is written"
        )
    return int(made)


def record(fires: Sequence[Mapping[str, Any]]) -> Operation[set[tuple[int, int]]]:
    """Fires and skips by (schedule, instant); answers those that nobody had written before."""
    rows = yield Statement(_sql["record"], {"fires": encoder.encode(fires).decode()})
    return set(_pairs.decode(rows[0][0]))


def make_jobs(jobs: Sequence[Mapping[str, Any]]) -> Operation[list[tuple[int, bool]]]:
    """The jobs of fires that needed a closer look, in order: ids, and whether they are new."""
    payload = encoder.encode(jobs).decode()
    if any(job.get("unique_key") for job in jobs):
        rows = yield Statement(_jobs["enqueue_keyed"], {"jobs": payload})
        return _keyed(rows[0][0])
    rows = yield Statement(_jobs["enqueue_limited"], {"jobs": payload})
    return [(made_id, True) for made_id in sorted(_ids.decode(rows[0][0]))]


def try_make_jobs(jobs: Sequence[Mapping[str, Any]], patience: float) -> Operation[list[tuple[int, bool]] | None]:
    """The same, and None when a unique key is in an open transaction of somebody else for longer than this."""
    if not any(job.get("unique_key") for job in jobs):
        return (yield from make_jobs(jobs))
    params = {"jobs": encoder.encode(jobs).decode(), "patience": patience}
    rows = yield Statement(_sql["try_make_jobs"], params)
    return None if rows[0][0] is None else _keyed(rows[0][0])


def _keyed(answers: str) -> list[tuple[int, bool]]:
    return [(answer["id"], answer["created"]) for answer in _answers.decode(answers)]


def savepoint() -> Operation[None]:
    """What is written from here on can be taken back."""
    yield Statement(_sql["savepoint"])


def keep_since_savepoint() -> Operation[None]:
    yield Statement(_sql["keep_since_savepoint"])


def undo_since_savepoint() -> Operation[None]:
    yield Statement(_sql["undo_since_savepoint"])


def link(fires: Sequence[Mapping[str, Any]]) -> Operation[None]:
    """Jobs made by hand learn their fire, fires their job."""
    yield Statement(_sql["link"], {"fires": encoder.encode(fires).decode()})


def advance(rows: Sequence[Mapping[str, Any]]) -> Operation[None]:
    """Where schedules stand after a closer look."""
    ids = sorted(row["id"] for row in rows)
    yield Statement(_sql["advance"], {"rows": encoder.encode(rows).decode(), "ids": ids})


def details(schedules: Collection[int]) -> Operation[dict[int, dict[str, Any]]]:
    """Job details of schedules whose common statement does not do."""
    rows = yield Statement(_sql["details"], {"ids": list(schedules)})
    return _details.decode(rows[0][0])


def park(schedules: Collection[tuple[int, str]]) -> Operation[list[tuple[str, str]]]:
    """Out of the way of the others, by (id, why); answers (key, why)."""
    if not schedules:
        return []
    ids, reasons = zip(*sorted(schedules), strict=True)
    rows = yield Statement(_sql["park"], {"ids": list(ids), "reasons": list(reasons)})
    return [(row[0], row[1]) for row in rows]


class Run(NamedTuple):
    """A job of a schedule that is not over; `free`: nobody else is at its row, and now it is locked."""

    schedule: int
    job: int
    free: bool


def lock_runs(schedules: Collection[int]) -> Operation[list[Run]]:
    rows = yield Statement(_sql["lock_runs"], {"ids": list(schedules)})
    return [Run(*run) for run in _runs.decode(rows[0][0])]


def end_runs(after: int = 0) -> Operation[EndedRun]:
    """Count runs that ended: a page of a thousand, after the last one of the page before."""
    rows = yield Statement(_sql["end_runs"], {"after": after})
    reached, looked_at, read, freed, disabled = rows[0]
    return EndedRun(reached, looked_at, read, freed, _notes.decode(disabled))


def end_all_runs() -> Operation[int]:
    """Page after page; answers how many runs were read."""
    read = after = 0
    while (ended := (yield from end_runs(after))).reached is not None:
        after = ended.reached
        read += ended.read
        if ended.looked_at < PAGE_OF_ENDS:
            break
    return read


def zoned(after: int, limit: int) -> Operation[list[tuple[int, str, int, int, int | None]]]:
    """A page of (id, rule, next, shift, after which instant) whose instants depend on zone data."""
    rows = yield Statement(_sql["zoned"], {"after": after, "limit": limit})
    return _zoned.decode(rows[0][0])


def replan(rows: Sequence[Mapping[str, int]]) -> Operation[int]:
    found = yield Statement(_sql["replan"], {"rows": encoder.encode(rows).decode()})
    return int(found[0][0])


def heal(after: int) -> Operation[tuple[int | None, list[str]]]:
    """The last candidate of this page, None after the last one; keys that waited for nothing."""
    rows = yield Statement(_sql["heal"], {"after": after})
    return rows[0][0], _words.decode(rows[0][1])
