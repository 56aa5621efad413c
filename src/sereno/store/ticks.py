"""The tick: take what is due, decide, write it; count the runs that ended; lead."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from sereno.domain.firing import Due
from sereno.domain.stored import encoder
from sereno.store.statement import Operation, Statement, queries

_sql = queries("ticks")
_jobs = queries("jobs")
_fires = queries("fires")
_due = msgspec.json.Decoder(list[Due])
_pairs = msgspec.json.Decoder(list[tuple[int, int]])
_zoned = msgspec.json.Decoder(list[tuple[int, str, int, int, int | None]])
_words = msgspec.json.Decoder(list[str])
_notes = msgspec.json.Decoder(list[tuple[str, str | None]])
_ids = msgspec.json.Decoder(list[int])
_details = msgspec.json.Decoder(dict[int, dict[str, Any]])
_answers = msgspec.json.Decoder(list[dict[str, Any]])


class Taken(NamedTuple):
    rows: list[Due]
    now: int


class Fired(NamedTuple):
    """A common fire, as the statement wants it."""

    id: int
    place: str
    planned: int
    next: int
    bucket: int


class Ended(NamedTuple):
    """A page of runs that ended: how many were read, held fires that are free now, schedules disabled, with why."""

    # The last one of the page; None after the last page.
    reached: int | None
    read: int
    freed: int
    disabled: list[tuple[str, str | None]]


def take(floor: int, limit: int, *, look_at_held: bool) -> Operation[Taken]:
    """Rows that are due, locked until the transaction ends."""
    rows = yield Statement(_sql["take"], {"floor": floor, "limit": limit, "look_at_held": look_at_held})
    return Taken(_due.decode(rows[0][0]), rows[0][1])


def first(floor: int) -> Operation[list[int]]:
    """What a pass of one row takes, by its id alone."""
    rows = yield Statement(_sql["first"], {"floor": floor})
    return _ids.decode(rows[0][0])


def fire(fires: Sequence[Fired]) -> Operation[int]:
    """The common fires, all of them with one statement; answers how many jobs were made."""
    ids, places, planned, following, buckets = zip(*fires, strict=True)
    rows = yield Statement(
        _sql["fire"],
        {
            "ids": _array(ids),
            "places": "{" + ",".join(f'"{place}"' for place in places) + "}",
            "planned": _array(planned),
            "next": _array(following),
            "bucket": _array(buckets),
        },
    )
    return int(rows[0][0])


def record(fires: Sequence[Mapping[str, Any]]) -> Operation[set[tuple[int, int]]]:
    """Fires and skips by (schedule, instant); answers those that nobody had written before."""
    rows = yield Statement(_sql["record"], {"fires": encoder.encode(fires).decode()})
    return set(_pairs.decode(rows[0][0]))


def record_again(fires: Sequence[Mapping[str, Any]]) -> Operation[set[tuple[int, int]]]:
    """Instants that a person wants run, skipped ones too; answers those that nobody has run before."""
    rows = yield Statement(_fires["record_again"], {"fires": encoder.encode(fires).decode()})
    return set(_pairs.decode(rows[0][0]))


def make_jobs(jobs: Sequence[Mapping[str, Any]]) -> Operation[list[tuple[int, bool]]]:
    """The jobs of fires that needed a closer look, in order: ids, and whether they are new."""
    payload = encoder.encode(jobs).decode()
    if any(job.get("unique_key") for job in jobs):
        rows = yield Statement(_jobs["enqueue_keyed"], {"jobs": payload})
        return [(answer["id"], answer["created"]) for answer in _answers.decode(rows[0][0])]
    rows = yield Statement(_jobs["enqueue"], {"jobs": payload})
    return [(made_id, True) for made_id in sorted(_ids.decode(rows[0][0]))]


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


def park(schedules: Collection[int], reason: str) -> Operation[list[str]]:
    """Out of the way of the others; answers the keys."""
    rows = yield Statement(_sql["park"], {"ids": list(schedules), "reason": reason[:2000]})
    return [row[0] for row in rows]


def live_jobs(schedules: Collection[int]) -> Operation[list[int]]:
    rows = yield Statement(_sql["live_jobs"], {"ids": list(schedules)})
    return _ids.decode(rows[0][0])


def end_runs(after: int = 0) -> Operation[Ended]:
    """Count runs that ended: a page of a thousand, after the last one of the page before."""
    rows = yield Statement(_sql["end_runs"], {"after": after})
    reached, read, freed, disabled = rows[0]
    return Ended(reached, read, freed, _notes.decode(disabled))


def end_all_runs() -> Operation[int]:
    """Page after page; answers how many runs were read."""
    read = after = 0
    while (ended := (yield from end_runs(after))).reached is not None:
        after = ended.reached
        read += ended.read
    return read


class Lead(NamedTuple):
    """The fence of a leader; None: somebody else leads. `overdue`: and does not keep up."""

    fence: int | None
    zones: str | None
    overdue: bool


def lead(holder: str, lease: float, overdue: float) -> Operation[Lead]:
    rows = yield Statement(_sql["lead"], {"holder": holder, "lease": lease, "overdue": overdue})
    return Lead(*rows[0])


class Look(NamedTuple):
    """What the leader sees. `next_due`: seconds; `awaits`: something waits for a run to end."""

    leads: bool
    next_due: float | None
    ends: bool
    free: bool
    awaits: bool


class LastTick(NamedTuple):
    """When the last tick was, by the database's clock, how long it took, and how many fires it made."""

    at: int | None = None
    seconds: float | None = None
    fires: int | None = None


def look(holder: str, fence: int, *, lease: float, rest: float, floor: int, last: LastTick) -> Operation[Look]:
    rows = yield Statement(
        _sql["look"],
        {
            "holder": holder,
            "fence": fence,
            "lease": lease,
            "rest": rest,
            "floor": floor,
            "ticked": last.at,
            "seconds": last.seconds,
            "fires": last.fires,
        },
    )
    return Look(*rows[0])


def note_error(holder: str, fence: int, error: str) -> Operation[None]:
    yield Statement(_sql["note_error"], {"holder": holder, "fence": fence, "error": error[:2000]})


def resign(holder: str) -> Operation[None]:
    yield Statement(_sql["resign"], {"holder": holder})


def set_zones(fence: int, version: str) -> Operation[None]:
    yield Statement(_sql["set_zones"], {"zones": version, "fence": fence})


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


def make_partitions() -> Operation[int]:
    rows = yield Statement(_fires["make_partitions"])
    return sum(1 for row in rows if row[0])


def old_partitions(days: int) -> Operation[list[str]]:
    rows = yield Statement(_fires["old_partitions"], {"days": days})
    return [row[0] for row in rows]


def drop_partition(name: str) -> Operation[None]:
    yield Statement(_fires["drop_partition"], {"name": name})


def forget_fires(days: int) -> Operation[int]:
    rows = yield Statement(_fires["forget_fires"], {"days": days})
    return int(rows[0][0])


def _array(values: Sequence[int]) -> str:
    return "{" + ",".join(map(str, values)) + "}"
