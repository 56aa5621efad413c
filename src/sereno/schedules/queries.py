"""Queries on schedules: pages, search, counts, fires, rules, and the scheduler."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from sereno.database.statement import Operation, Row, Statement, queries
from sereno.jobs.filters import ScheduleFilter
from sereno.schedules.rows import FireRow, ScheduleRow, SchedulerRow
from sereno.search.sql_terms import SearchParams

_sql = queries("schedules/queries")

# A limit above any real number of schedules.
UNBOUNDED = 2**62
# Rows that one search statement scans.
WINDOW = 100_000
# Newest instants of one schedule that a search scans.
FIRES_WINDOW = 1000
# Number fields of one result that are shown.
MOST_COUNTS = 20
# Bytes of arguments shown per schedule in a list; larger arguments are left out.
MOST_SHOWN = 16 * 1024

_rows = msgspec.json.Decoder(list[ScheduleRow])
_instants = msgspec.json.Decoder(list[int])


def page(
    wanted: ScheduleFilter, limit: int, after: str = "", *, most: int | None = None
) -> Operation[list[ScheduleRow]]:
    """Return a page by key; `after` is the last key of the previous page. `most`: bytes of arguments shown, or all."""
    rows = yield Statement(_sql["list"], wanted.params() | {"limit": limit, "after": after, "most": most})
    return _rows.decode(rows[0][0])


def search(
    wanted: ScheduleFilter, limit: int, after: str = "", *, most: int | None = None
) -> Operation[tuple[list[ScheduleRow], str | None]]:
    """Return a page of search results from a bounded scan, and the key at which the scan stopped unless at the end."""
    params = wanted.params()
    start = wanted.search_params.begins.get("key", "") if wanted.search_params is not None else ""
    if params["keys"] is not None:
        return (yield from page(wanted, limit, after, most=most)), None
    bounds = {"limit": limit, "after": after, "start": start, "window": WINDOW}
    rows = yield Statement(_sql["search"], params | bounds | {"most": most})
    found = _rows.decode(rows[0][0])
    if len(found) == limit:
        return found, None
    last = yield Statement(_sql["examined"], {"tenant": params["tenant"], **bounds})
    return found, last[0][0] if last and last[0][0].startswith(start) else None


def soonest(wanted: ScheduleFilter, limit: int) -> Operation[list[ScheduleRow]]:
    """Return schedules by due time; a search scans a bounded number of rows."""
    given = wanted.params() | {"limit": limit, "most": MOST_SHOWN}
    if wanted.search_params is None:
        rows = yield Statement(_sql["soonest"], given)
    else:
        rows = yield Statement(_sql["search_soonest"], given | {"window": WINDOW})
    return _rows.decode(rows[0][0])


def count(wanted: ScheduleFilter, bound: int = UNBOUNDED) -> Operation[dict[str, int]]:
    """Count matching schedules by state, up to a bound."""
    rows = yield Statement(_sql["count"], wanted.params() | {"bound": bound})
    return {row[0]: int(row[1]) for row in rows}


def fires(schedule: int, limit: int, search_params: SearchParams | None = None) -> Operation[list[FireRow]]:
    """Return the newest fires first."""
    given = (
        {"window": limit, "terms": None}
        if search_params is None
        else {"window": FIRES_WINDOW, "terms": search_params.terms}
    )
    rows = yield Statement(_sql["fires"], {"id": schedule, "limit": limit, "fields": MOST_COUNTS, **given})
    return [_fire(row) for row in rows]


def _fire(row: Row) -> FireRow:
    fire = FireRow(*row)
    return fire if fire.counts is None else msgspec.structs.replace(fire, counts=dict(sorted(fire.counts.items())))


def fired_instants(schedule: int, instants: Sequence[int]) -> Operation[set[int]]:
    """Return those of these instants that have already made a job."""
    if not instants:
        return set()
    rows = yield Statement(
        _sql["fired_instants"],
        {"id": schedule, "instants": list(instants), "first": min(instants), "last": max(instants)},
    )
    return set(_instants.decode(rows[0][0]))


def rules(wanted: ScheduleFilter, until: datetime, limit: int) -> Operation[list[tuple[str, int]]]:
    """Return the rules of schedules that may fire until then and how many share each, the most common first."""
    rows = yield Statement(_sql["rules"], wanted.params() | {"until": until, "limit": limit})
    return [(row[0], int(row[1])) for row in rows]


def key_of(schedule: int) -> Operation[str | None]:
    """Return the key of a schedule; None if it does not exist."""
    rows = yield Statement(_sql["key"], {"id": schedule})
    return rows[0][0] if rows else None


def scheduler() -> Operation[SchedulerRow | None]:
    rows = yield Statement(_sql["scheduler"])
    return SchedulerRow(*rows[0]) if rows else None
