"""How far one PostgreSQL goes, and what many do: measured costs of a job, a simulation, and a check of the simulation.

The absolute speed depends on what else the machine does; the processor time of a job does not, so it is the base.
"""

from collections.abc import Sequence
from dataclasses import replace

from bench.context import BenchContext
from bench.report import Report
from bench.scale import costs, two_shards
from bench.scale.model import Cluster, Failures, Prediction, assumptions, predict, shards_for

# Numbers of shards, and the rate for which shards are counted, in jobs per second.
SHARDS = (1, 10, 100)
MILLION = 1_000_000.0
HEADS = (
    "shards",
    "workers each",
    "jobs/s",
    "capacity",
    "p50 ms",
    "p99 ms",
    "lost",
    "lowest",
    "late",
    "WAL MB/s",
    "GB/day",
)


def run(context: BenchContext) -> None:
    """Measure, simulate, and check one point of the simulation with two shards and two workers."""
    bulk, alone = costs.measure(context)
    costs.measure_cores(context)
    report = context.report
    for text in assumptions(bulk, Cluster(1), Failures()):
        report.note(text)
    predictions = {f"shards_{shards}": predict(bulk, Cluster(shards)) for shards in SHARDS}
    for name, each, cores in (("million", bulk, 2), ("million_8", bulk, 8), ("million_alone", alone, 2)):
        one = Cluster(1, postgres_cores=cores)
        predictions[name] = predict(each, replace(one, shards=shards_for(each, MILLION, one)))
    report.note(" | ".join(("", *HEADS)))
    for name, prediction in predictions.items():
        report.note(" | ".join((name, *cells(prediction))))
    for name, prediction in predictions.items():
        _report(report, name, prediction)
    two_shards.check(context, bulk)
    two_shards.check_latency(context, bulk)


def cells(found: Prediction) -> Sequence[str]:
    """Return the line of a table: rates and megabytes rounded, shares as percentages."""
    return (
        f"{found.shards:,}",
        f"{found.workers}",
        f"{found.rate:,.0f}",
        f"{found.capacity:,.0f}",
        f"{found.p50:.1f}",
        f"{found.p99:.1f}",
        f"{found.lost:.4%}",
        f"{found.lowest:.0%}",
        f"{found.late:.3%}",
        f"{found.wal:,.0f}",
        f"{found.history:,.0f}",
    )


def _report(report: Report, name: str, found: Prediction) -> None:
    units = {
        "shards": "shards", "workers": "workers", "rate": "jobs/s", "capacity": "jobs/s", "p50": "ms", "p99": "ms",
        "wal": "MB/s", "history": "GB/day",
    }  # fmt: skip
    for part, unit in units.items():
        report.figure(f"{name}_{part}", getattr(found, part), unit)
    for part in ("lost", "lowest", "late"):
        report.figure(f"{name}_{part}", getattr(found, part) * 100, "%")
