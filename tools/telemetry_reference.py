"""Write docs/reference/metrics.md, and the levels of docs/reference/events.md.

    make reference

The page of the metrics comes from the metrics themselves. The events have no texts in the code: their page has a
sentence for each. This program checks that the page and the code have the same events, and writes their levels.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args, get_type_hints

from prometheus_client.parser import text_string_to_metric_families

from sereno.bounded_count import BOUND
from sereno.jobs.attempt import Settlement
from sereno.monitoring.gauges.queries import LARGE_QUEUES, LARGE_TENANTS, MOST_READY
from sereno.telemetry.archive_stats import ArchiveTally
from sereno.telemetry.carrier_gauges import CarrierGauges
from sereno.telemetry.database_gauges import ALL_GAUGES, OTHER
from sereno.telemetry.exposition import exposition
from sereno.telemetry.metrics import BUCKETS, Gauges, MetricTally, SchedulerFigures

ROOT = Path(__file__).parents[1]
METRICS = ROOT / "docs" / "reference" / "metrics.md"
EVENTS = ROOT / "docs" / "reference" / "events.md"
SOURCES = ROOT / "src" / "sereno"

INTRODUCTION = """# Metrics

What `/metrics` of [the health port](../operate/worker-in-production.md#health-and-metrics) shows of one worker, in
the format of Prometheus. This page is generated from the metrics by `make reference`. Upper bounds of the histograms'
buckets, in seconds: BUCKETS.

| metric | kind | labels | meaning |
|---|---|---|---|
"""

GAUGES = f"""
## Gauges of the database

`/metrics` of the worker whose scheduler leads has these too, and so has `/metrics` of
[a server](../operate/worker-in-production.md#gauges-of-the-database). They are read once in
[`gauge_interval`](settings.md#health-and-logs) seconds, with bounded queries. The {LARGE_TENANTS} tenants and
{LARGE_QUEUES} queues with most jobs have lines of their own; the others are summed up as `{OTHER}`. The tenant of
jobs without one is empty. At most {MOST_READY:,} ready jobs are read: of more than {MOST_READY // BOUND} queues, fewer
than {BOUND:,} of each.

| metric | kind | labels | meaning |
|---|---|---|---|
"""

_LEVELS = ("debug", "info", "warning", "error", "critical")
_ROW = re.compile(r"^\| `(?P<event>[a-z]+\.[a-z_]+)` \| (?P<level>[^|]+) \| (?P<meaning>.*) \|$", re.MULTILINE)
# The code computes the level: the page says which ones.
_COMPUTED = "computed"
# Lines that the code of users writes, under their own level.
_OF_USERS = "job.log"


def metrics() -> str:
    """Return the page of the metrics, from a worker that has counted one of everything."""
    tally = MetricTally(archive=ArchiveTally(files={"verified": 1}), fenced=1, claims=1)
    tally.jobs("default", "greet", "succeeded", [0.1], [0.1])
    tally.result("greet", {"found": 1})
    tally.deliveries["email\tsent"] = 1
    gauges = Gauges(busy={"default": 1}, slots={"default": 1}, carriers={"clicks": CarrierGauges(up=True)})
    text = exposition(tally, [gauges], "", SchedulerFigures()).decode()
    rows = []
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        rows.append(f"| `{name}` | {family.type} | {', '.join(labels)} | {family.documentation} |")
    of_database = [
        f"| `{each.name}` | gauge | {', '.join(sorted(each.labels))} | {each.meaning} |" for each in ALL_GAUGES
    ]
    introduction = INTRODUCTION.replace("BUCKETS", ", ".join(f"{bound:g}" for bound in BUCKETS))
    return introduction + "\n".join([*rows, ""]) + GAUGES + "\n".join([*of_database, ""])


def events() -> str:
    """Return the page of the events with their levels. Raises LookupError when it has too few or too many lines."""
    page = EVENTS.read_text()
    found = emitted_events()
    listed = {row["event"] for row in _ROW.finditer(page)}
    if missing := found.keys() - listed:
        raise LookupError(f"{EVENTS} has no line for {', '.join(sorted(missing))}")
    if unknown := listed - found.keys() - {_OF_USERS}:
        raise LookupError(f"{EVENTS} has a line for {', '.join(sorted(unknown))}, which the code does not emit")

    def row(match: re.Match[str]) -> str:
        levels = found.get(match["event"], {_COMPUTED})
        shown = match["level"] if _COMPUTED in levels else ", ".join(sorted(levels, key=_LEVELS.index))
        return f"| `{match['event']}` | {shown} | {match['meaning']} |"

    return _ROW.sub(row, page)


@cache
def emitted_events() -> dict[str, set[str]]:
    """Return every event in the sources with its levels."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text()
        for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
            for event, levels in _events_of(call, text):
                found[event] |= levels
    return dict(found)


def _events_of(call: ast.Call, text: str) -> Iterator[tuple[str, set[str]]]:
    if isinstance(call.func, ast.Name) and call.func.id == "emit":
        match call.args[1]:
            case ast.Constant(value=str(name)):
                yield name, _levels(call.args[0])
            case ast.JoinedStr():
                # f"job.{outcome}", the only name that is built.
                yield from (
                    (f"job.{outcome}", {_COMPUTED}) for outcome in get_args(get_type_hints(Settlement)["outcome"])
                )
            case _:
                # A parameter: every dotted word in the file is an event.
                yield from ((name, {_COMPUTED}) for name in re.findall(r'"([a-z]+\.[a-z_]+)"', text))
    for extra in call.keywords:
        # `ctx.log.info(…, extra={"event": "archive.moved"})`
        if extra.arg == "extra" and isinstance(extra.value, ast.Dict) and isinstance(call.func, ast.Attribute):
            for key, value in zip(extra.value.keys, extra.value.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "event" and isinstance(value, ast.Constant):
                    yield str(value.value), {call.func.attr} & set(_LEVELS) or {_COMPUTED}


def _levels(expression: ast.expr) -> set[str]:
    """Return the levels that an expression such as `logging.INFO if ok else logging.ERROR` can have."""
    names = {node.attr.lower() for node in ast.walk(expression) if isinstance(node, ast.Attribute)}
    return names & set(_LEVELS) or {_COMPUTED}


if __name__ == "__main__":
    METRICS.write_text(metrics())
    EVENTS.write_text(events())
