"""Lists of schedules, rules as text, and bulk changes: a dry run that counts, and the change in batches."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from typing import Any, Literal, TypeAlias

import msgspec

from sereno.bounded_count import BoundedCount
from sereno.database.clock import clock
from sereno.database.statement import Operation, Plan
from sereno.errors import InvalidSchedule
from sereno.jobs.filters import ScheduleFilter
from sereno.schedules import queries, store
from sereno.schedules.operations import PAGE, run_now
from sereno.schedules.rows import ScheduleRow
from sereno.schedules.rules.preview import Instant
from sereno.schedules.rules.when import Once, decode, describe
from sereno.zones import moment, zone

Verb: TypeAlias = Literal["pause", "resume", "disable", "delete", "spread", "run"]

# Rows that a dry run counts at most.
TALLY_BOUND = 100_000


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """One page of a list, when it was read, and the cursor of the next page."""

    items: list[ScheduleRow]
    now: datetime
    next: str | None


@dataclass(frozen=True, slots=True)
class ScheduleTally:
    """What a bulk change would affect."""

    total: BoundedCount
    by_state: dict[str, int]
    by_task: dict[str, int]


@dataclass(frozen=True, slots=True)
class UpcomingFire:
    """When it runs, also in the time zone of the rule. `note`: what is special about it at a change of the clock."""

    at: datetime
    local: str
    zone: str
    note: str | None


def list_schedules(
    wanted: ScheduleFilter, *, limit: int = 50, after: str = "", soonest: bool = False, whole: bool = False
) -> Operation[SchedulePage]:
    """Return a page by key or by due time. A search scans a bounded number of rows; `next` continues from there.

    `whole`: include arguments that are too large for a list.
    """
    most = None if whole else queries.MOST_SHOWN
    now = moment((yield from clock()))
    if soonest:
        return SchedulePage((yield from queries.soonest(wanted, limit)), now, None)
    if wanted.search_params is None:
        found, ended = (yield from queries.page(wanted, limit + 1, after, most=most)), None
    else:
        found, ended = yield from queries.search(wanted, limit + 1, after, most=most)
    page = found[:limit]
    return SchedulePage(page, now, page[-1].key if len(found) > limit else ended)


def tally(wanted: ScheduleFilter, verb: Verb) -> Operation[ScheduleTally]:
    """Count what a change would affect, up to a bound. Writes nothing."""
    by_state: Counter[str] = Counter()
    by_task: Counter[str] = Counter()
    seen, after = 0, ""
    while seen <= TALLY_BOUND and (page := (yield from queries.page(wanted, PAGE, after, most=queries.MOST_SHOWN))):
        seen, after = seen + len(page), page[-1].key
        touched = [row for row in page if _touches[verb](row)]
        by_state.update("paused" if row.state == "enabled" and row.paused_until else row.state for row in touched)
        by_task.update(row.task for row in touched)
    return ScheduleTally(
        BoundedCount(by_state.total(), seen <= TALLY_BOUND), dict(by_state.most_common()), dict(by_task.most_common())
    )


def in_batches(wanted: ScheduleFilter, change: Callable[[ScheduleFilter], Operation[int]]) -> Plan[int]:
    """Change everything that matches in transactions of 1000 rows, so that none blocks the scheduler for long."""
    changed, after = 0, ""
    while page := (yield queries.page(wanted, PAGE, after, most=queries.MOST_SHOWN)):
        after = page[-1].key
        changed += yield change(replace(wanted, keys=[row.key for row in page], pattern=None))
    return changed


def run_all(wanted: ScheduleFilter, *, actor: str | None = None) -> Operation[int]:
    """Run each schedule once, independently of its rule; skip those with an invalid rule. Return how many ran."""
    found = [row for row in (yield from store.lock_page(wanted, PAGE)) if _has_valid_rule(row)]
    for row in found:
        yield from run_now(row.key, actor=actor)
    return len(found)


def _has_valid_rule(row: ScheduleRow) -> bool:
    try:
        decode(row.rule)
    except InvalidSchedule:
        return False
    return True


def in_words(rule: dict[str, Any]) -> str:
    """Return a rule as text for people, or as its stored JSON if it is invalid."""
    try:
        return describe(decode(rule))
    except InvalidSchedule:
        return msgspec.json.encode(rule).decode()


def upcoming_fires(found: Iterable[Instant]) -> list[UpcomingFire]:
    """Return instants as they are written in JSON."""
    return [
        UpcomingFire(each.at, each.local.isoformat(), each.local.strftime("%Z"), each.note or None) for each in found
    ]


def clock_of(rule: dict[str, Any]) -> tzinfo:
    """Return the zone of a rule; UTC if it has none or is invalid."""
    try:
        when = decode(rule)
    except InvalidSchedule:
        return UTC
    return UTC if isinstance(when, Once) else zone(when.tz).info


_touches: dict[Verb, Callable[[ScheduleRow], bool]] = {
    "pause": lambda row: row.state in ("enabled", "paused"),
    "resume": lambda row: row.state != "enabled" or row.paused_until is not None,
    "disable": lambda row: row.state != "disabled",
    "delete": lambda _: True,
    "spread": lambda row: row.rule.get("kind") != "once",
    "run": _has_valid_rule,
}
