"""Decides from the figures of the days whether anything grows. Pure: no database, no clock.

A series is flat if the median of its last third is at most a factor above the median of its first third. The days in
which the first rows have not reached the end of their retention are left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from tests.soak.figures import DayFigures, DrainShare, RelationFigures

# Rows are retained for three days, and their archive tables for another one: from this day on, as much leaves as comes.
SETTLED = 5
# Days after which tables with a fixed retention are settled: seven days of ended sessions, eight of minutes.
LATER = {"sessions": 9, "minutes": 10, "ten_minutes": 10, "channel_minutes": 10, "channel_codes": 10}
# A partition is created seven days ahead and dropped four days after its day. The next vacuum removes its rows from the
# catalog, and an empty page of an index is used again after the vacuum after that: five days later each. With
# partitions alone, without load, the indexes of the catalog grew slowly until day 36, then not at all until day 180.
CATALOG, CATALOG_SETTLED = "catalog:", 22
# Tables whose rows are retained for longer than a month, by design. They may grow with the load, but not faster.
RETAINED = {
    "tenant_hours": "92 days",
    "delivery_hours": "92 days",
    "delivery_tenant_hours": "92 days",
    "error_hours": "30 days",
    "tries": "30 days",
    "bulk_operations": "90 days",
    "alerts": "90 days",
    "audit": "for good: it proves who changed what",
    "archive_batches": "for good: the index of the archive",
    "archive_files": "for good: the index of the archive",
    "inbox": "until the recipient is deleted",
}
# Largest growth of sizes, rows and sequences, and of memory; smallest speed of the last drains.
GROWTH, MEMORY_GROWTH, SPEED = 1.1, 1.05, 0.95
# Small relations grow by whole pages and single rows.
PAGE, FEW_ROWS = 8192, 10
# Bytes of a row and of an index entry. Between two vacuums a table has up to `threshold` dead ones, so its size differs
# by that much from day to day. More dead rows than autovacuum tolerates are a finding of their own.
ROW, ENTRY = 128, 40
# How far the oldest rows may exceed the age at which PostgreSQL freezes them.
FREEZE_GROWTH = 1.25
# Days at the start and at the end whose drains are compared.
DRAIN_DAYS = 5


@dataclass(frozen=True)
class Finding:
    """Something that grows or changed. `detail` has the numbers."""

    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.detail}"


def judge(days: Sequence[DayFigures], freeze_age: int) -> list[Finding]:
    """Return everything that grows or changed; nothing if the month was steady."""
    return [
        *_relations(days),
        *_sequences(days),
        *_memory(days),
        *_plans(days),
        *_vacuum(days, freeze_age),
        *_drain(days),
    ]


def thirds(values: Sequence[float]) -> tuple[float, float]:
    """Return the medians of the first and of the last third. There must be three values at least."""
    size = len(values) // 3
    return median(values[:size]), median(values[-size:])


def grows(values: Sequence[float], factor: float, slack: float) -> str | None:
    """Return the growth in words if the series is not flat."""
    first, last = thirds(values)
    if last <= factor * first + slack:
        return None
    return f"grew from {first:,.0f} to {last:,.0f}, by days {', '.join(f'{value:,.0f}' for value in values)}"


def _increments(values: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise(values)]


def _settled(days: Sequence[DayFigures], table: str) -> Sequence[DayFigures]:
    after = CATALOG_SETTLED if table.startswith(CATALOG) else LATER.get(table, SETTLED)
    return [figures for figures in days if figures.day >= after]


def _is_enough(days: Sequence[DayFigures]) -> bool:
    """Increments are one fewer than days, and a third of them must be one at least."""
    return len(days) > 3


def _relations(days: Sequence[DayFigures]) -> list[Finding]:
    found = []
    for name in sorted({name for figures in days for name in figures.relations}):
        table = name.partition(".")[0]
        settled = _settled(days, table)
        if not _is_enough(settled):
            continue
        series = [figures.relations.get(name, RelationFigures()) for figures in settled]
        check = _retained if table in RETAINED else _flat
        found += [Finding(name, f"{what} {growth}") for what, growth in check(series, is_table=name == table)]
    return found


def _flat(series: Sequence[RelationFigures], *, is_table: bool) -> list[tuple[str, str]]:
    first = series[0]
    slack = PAGE * first.relations + first.threshold * (ROW if is_table else ENTRY)
    measures: tuple[tuple[str, Callable[[RelationFigures], int], int], ...] = (
        ("number of relations", lambda each: each.relations, 0),
        ("bytes", lambda each: each.bytes, slack),
        ("rows", lambda each: each.rows, FEW_ROWS),
    )
    return [
        (what, growth)
        for what, read, allowed in measures
        if (growth := grows([read(each) for each in series], GROWTH, allowed)) is not None
    ]


def _retained(series: Sequence[RelationFigures], *, is_table: bool) -> list[tuple[str, str]]:
    """Check that the same number of rows is added each day, and that a row needs the same space.

    The indexes are not checked: those of equally active recipients split their pages at the same time, in some days.
    """
    if not is_table or not all(each.rows for each in series):
        return []
    rows = grows(_increments([each.rows for each in series]), GROWTH, FEW_ROWS)
    space = grows([each.bytes / each.rows for each in series], GROWTH, PAGE / series[0].rows)
    return [(what, growth) for what, growth in (("rows a day", rows), ("bytes a row", space)) if growth is not None]


def _sequences(days: Sequence[DayFigures]) -> list[Finding]:
    """Check that a sequence advances by the same amount each day: it grows with the load, but not faster."""
    settled = _settled(days, "")
    if not _is_enough(settled):
        return []
    found = []
    for name in sorted({name for figures in settled for name in figures.sequences}):
        steps = _increments([figures.sequences.get(name, 0) for figures in settled])
        if (growth := grows(steps, GROWTH, FEW_ROWS)) is not None:
            found.append(Finding(f"sequence {name}", f"numbers a day {growth}"))
    return found


def _memory(days: Sequence[DayFigures]) -> list[Finding]:
    settled = _settled(days, "")
    if not _is_enough(settled):
        return []
    return [
        Finding(f"memory of the {name}", f"MiB {growth}")
        for name in settled[0].memory
        if (growth := grows([figures.memory[name] for figures in settled], MEMORY_GROWTH, 0.0)) is not None
    ]


def _plans(days: Sequence[DayFigures]) -> list[Finding]:
    """Compare the plans of each settled day with those of the day before; the first days have the first statistics."""
    found = []
    for before, after in pairwise(_settled(days, "")):
        for name, plan in after.plans.items():
            if plan != before.plans[name]:
                gone = sorted(set(before.plans[name]) - set(plan))
                new = sorted(set(plan) - set(before.plans[name]))
                found.append(Finding(f"plan of {name}", f"changed on day {after.day}: {gone} became {new}"))
    return found


def _vacuum(days: Sequence[DayFigures], freeze_age: int) -> list[Finding]:
    found = [
        Finding(f"vacuum of {table}", f"autovacuum did not reach it on day {figures.day}")
        for figures in days
        for table in figures.behind
    ]
    oldest = max(days, key=lambda figures: figures.frozen_age)
    if oldest.frozen_age > FREEZE_GROWTH * freeze_age:
        age = f"{oldest.frozen_age:,} transactions on day {oldest.day}, frozen at {freeze_age:,}"
        found.append(Finding("age of the oldest rows", age))
    return found


def drains(days: Sequence[DayFigures]) -> tuple[DrainShare, DrainShare]:
    """Return the medians of the drains of the first and of the last days."""
    count = max(1, min(DRAIN_DAYS, len(days) // 2))
    first, last = (
        DrainShare(median(each.speed for each in shares), median(each.processor for each in shares))
        for shares in ([share for figures in part for share in figures.drain] for part in (days[:count], days[-count:]))
    )
    return first, last


def _drain(days: Sequence[DayFigures]) -> list[Finding]:
    first, last = drains(days)
    found = []
    if last.speed < SPEED * first.speed:
        text = f"{last.speed:.2f} of the ceiling in the last days, {first.speed:.2f} in the first ones"
        found.append(Finding("speed of the drain", text))
    if last.processor < SPEED * first.processor:
        text = f"{last.processor:.2f} of the ceiling in the last days, {first.processor:.2f} in the first ones"
        found.append(Finding("processor time of the drain", text))
    return found
