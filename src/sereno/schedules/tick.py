"""The statements of a tick: lock due rows, write fires and jobs, count ended runs."""

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
_results = msgspec.json.Decoder(list[dict[str, Any]])


# Page size of the statement `end_runs`.
PAGE_OF_ENDS = 1000


class LockedSchedules(NamedTuple):
    """Due rows that are locked now, and unreadable ones as (id, reason)."""

    rows: list[DueSchedule]
    unreadable: list[tuple[int, str]]
    now: int


class FiredRow(NamedTuple):
    """A fire of the common path, in the form of the statement `fire`."""

    id: int
    place: str
    planned: int
    next: int
    bucket: int


class EndedRun(NamedTuple):
    """A page of ended runs: how many were read, how many held fires it freed, and the schedules it disabled."""

    # Id of the last run of the page, and how many were scanned; None and 0 after the last page.
    reached: int | None
    examined: int
    read: int
    freed: int
    disabled: list[tuple[str, str | None]]


def take(floor: int, limit: int, *, check_held: bool) -> Operation[LockedSchedules]:
    """Lock rows that are due until the transaction ends."""
    found = yield Statement(_sql["take"], {"floor": floor, "limit": limit, "check_held": check_held})
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
    """Return those of these schedules that have a run under way."""
    rows = yield Statement(_sql["busy"], {"ids": list(schedules)})
    return set(_ids.decode(rows[0][0]))


def fire(fires: Sequence[FiredRow]) -> Operation[int]:
    """Fire rows of the common path with one statement. Return how many jobs were made."""
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
        raise AssertionError(f"only {advanced} of {len(fires)} locked schedules were found again: nothing is written")
    return int(made)


def record(fires: Sequence[Mapping[str, Any]]) -> Operation[set[tuple[int, int]]]:
    """Record fires and skips by (schedule, instant). Return those that were not recorded before."""
    rows = yield Statement(_sql["record"], {"fires": encoder.encode(fires).decode()})
    return set(_pairs.decode(rows[0][0]))


def make_jobs(jobs: Sequence[Mapping[str, Any]]) -> Operation[list[tuple[int, bool]]]:
    """Insert the jobs of fires of the careful path. Return (id, created) in the order given."""
    payload = encoder.encode(jobs).decode()
    if any(job.get("unique_key") for job in jobs):
        rows = yield Statement(_jobs["enqueue_keyed"], {"jobs": payload})
        return _keyed(rows[0][0])
    rows = yield Statement(_jobs["enqueue_limited"], {"jobs": payload})
    return [(made_id, True) for made_id in sorted(_ids.decode(rows[0][0]))]


def try_make_jobs(jobs: Sequence[Mapping[str, Any]], timeout: float) -> Operation[list[tuple[int, bool]] | None]:
    """Like make_jobs, but return None if another transaction holds a unique key for longer than `timeout` seconds."""
    if not any(job.get("unique_key") for job in jobs):
        return (yield from make_jobs(jobs))
    params = {"jobs": encoder.encode(jobs).decode(), "timeout": timeout}
    rows = yield Statement(_sql["try_make_jobs"], params)
    return None if rows[0][0] is None else _keyed(rows[0][0])


def _keyed(results: str) -> list[tuple[int, bool]]:
    return [(result["id"], result["created"]) for result in _results.decode(results)]


def savepoint() -> Operation[None]:
    """Set a savepoint, to which `undo_since_savepoint` returns."""
    yield Statement(_sql["savepoint"])


def keep_since_savepoint() -> Operation[None]:
    yield Statement(_sql["keep_since_savepoint"])


def undo_since_savepoint() -> Operation[None]:
    yield Statement(_sql["undo_since_savepoint"])


def link(fires: Sequence[Mapping[str, Any]]) -> Operation[None]:
    """Link jobs of the careful path with their fires."""
    yield Statement(_sql["link"], {"fires": encoder.encode(fires).decode()})


def advance(rows: Sequence[Mapping[str, Any]]) -> Operation[None]:
    """Write the new state of schedules of the careful path."""
    ids = sorted(row["id"] for row in rows)
    yield Statement(_sql["advance"], {"rows": encoder.encode(rows).decode(), "ids": ids})


def details(schedules: Collection[int]) -> Operation[dict[int, dict[str, Any]]]:
    """Return the job details of schedules that leave the common path after they were locked."""
    rows = yield Statement(_sql["details"], {"ids": list(schedules)})
    return _details.decode(rows[0][0])


def park(schedules: Collection[tuple[int, str]]) -> Operation[list[tuple[str, str]]]:
    """Park schedules, given as (id, reason), so that the others can fire. Return (key, reason)."""
    if not schedules:
        return []
    ids, reasons = zip(*sorted(schedules), strict=True)
    rows = yield Statement(_sql["park"], {"ids": list(ids), "reasons": list(reasons)})
    return [(row[0], row[1]) for row in rows]


class LiveRun(NamedTuple):
    """A live job of a schedule; `free`: its row was not locked by another transaction and is now locked by us."""

    schedule: int
    job: int
    free: bool


def lock_runs(schedules: Collection[int]) -> Operation[list[LiveRun]]:
    rows = yield Statement(_sql["lock_runs"], {"ids": list(schedules)})
    return [LiveRun(*run) for run in _runs.decode(rows[0][0])]


def end_runs(after: int = 0) -> Operation[EndedRun]:
    """Count a page of up to 1000 ended runs after the given id."""
    rows = yield Statement(_sql["end_runs"], {"after": after})
    reached, examined, read, freed, disabled = rows[0]
    return EndedRun(reached, examined, read, freed, _notes.decode(disabled))


def end_all_runs() -> Operation[int]:
    """Count all ended runs, page by page. Return how many were read."""
    read = after = 0
    while (ended := (yield from end_runs(after))).reached is not None:
        after = ended.reached
        read += ended.read
        if ended.examined < PAGE_OF_ENDS:
            break
    return read


def zoned(after: int, limit: int) -> Operation[list[tuple[int, str, int, int, int | None]]]:
    """Return a page of (id, rule, next, shift, last instant) whose instants depend on zone data."""
    rows = yield Statement(_sql["zoned"], {"after": after, "limit": limit})
    return _zoned.decode(rows[0][0])


def replan(rows: Sequence[Mapping[str, int]]) -> Operation[int]:
    found = yield Statement(_sql["replan"], {"rows": encoder.encode(rows).decode()})
    return int(found[0][0])


def heal(after: int) -> Operation[tuple[int | None, list[str]]]:
    """Heal a page. Return its last candidate (None after the last page), and the keys that waited for nothing."""
    rows = yield Statement(_sql["heal"], {"after": after})
    return rows[0][0], _words.decode(rows[0][1])
