"""The tables of docs/operate/scale.md, from the recorded figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.offered_client import JOBS_PER_CALL as BATCH
from bench.report import amount
from bench.scale.model import Cluster, Costs, Failures, assumptions

DAY = 86_400


@dataclass(frozen=True)
class ScaleTable:
    """`alignment` has one letter for each column: l for left, r for right."""

    alignment: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


# Measured with PostgreSQL and the workers on the same cores; `drain` and `drain_two` are those of that benchmark.
DRAINED = {
    "cores_1": "jobs/s drained by one worker, with PostgreSQL on the same core",
    "cores_2": "jobs/s drained by one worker, with PostgreSQL on the same two cores",
    "drain": "jobs/s drained by one worker on two cores, in the benchmark `drain`",
    "drain_two": "jobs/s drained by two workers on two cores, in the benchmark `drain`",
}

SIMULATED = (
    ("shards_1", "1 shard"),
    ("shards_10", "10 shards"),
    ("shards_100", "100 shards"),
    ("million", "1M jobs/s"),
    ("million_8", "1M jobs/s, PostgreSQL with 8 cores (not measured)"),
    ("million_alone", "1M jobs/s, each enqueued alone"),
)


def tables(figures: Mapping[str, float]) -> list[ScaleTable]:
    """Return what was measured, what the simulation predicts, and how they compare."""
    return [_costs(figures), _volume(figures), _simulated(figures), _checked(figures)]


def assumption_list(figures: Mapping[str, float]) -> str:
    """Return the assumptions of the simulation, with the recorded costs."""
    producer, enqueue, run, worker = (
        figures[name] / 1e6 for name in ("producer_bulk", "enqueue_bulk", "run", "worker")
    )
    costs = Costs(BATCH, producer, enqueue, run, worker, wal=0.0, history=0.0, idle=[figures["idle_p50"] / 1000])
    return "\n".join(f"- {text}" for text in assumptions(costs, Cluster(1), Failures()))


def _costs(figures: Mapping[str, float]) -> ScaleTable:
    postgres = figures["enqueue_bulk"] + figures["run"]
    rows = [
        ("enqueue, 50 jobs in a call", _us(figures["enqueue_bulk"]), _us(figures["producer_bulk"]), "producer"),
        ("enqueue, one job in a call", _us(figures["enqueue_alone"]), _us(figures["producer_alone"]), "producer"),
        ("claim, run and settle", _us(figures["run"]), _us(figures["worker"]), "worker"),
        ("from enqueue to settlement, in calls of 50", _us(postgres), "", ""),
        ("jobs/s of one core of PostgreSQL", f"{_round(1e6 / postgres)}", "", ""),
        *((label, _round(figures[name]), "", "") for name, label in DRAINED.items() if name in figures),
    ]
    return ScaleTable("lrrl", ("for each job", "PostgreSQL", "client", "which client"), rows)


def _volume(figures: Mapping[str, float]) -> ScaleTable:
    """Rows, WAL and disk of a day at some rates."""
    wal, history = figures["wal_enqueue"] + figures["wal_run"], figures["history"]
    rows = [
        (
            f"{rate:,}",
            f"{rate * DAY / 1e6:,.1f} million",
            f"{rate * wal / 1e6:,.2f} MB/s",
            f"{rate * DAY * wal / 1e9:,.0f} GB",
            f"{rate * DAY * history / 1e9:,.1f} GB",
            f"{rate * DAY * 30 * history / 1e9:,.0f} GB",
        )
        for rate in (10, 100, 1_000, 10_000)
    ]
    heads = ("jobs/s", "rows of history a day", "WAL", "WAL a day", "history a day", "history of 30 days")
    return ScaleTable("rrrrrr", heads, rows)


def _simulated(figures: Mapping[str, float]) -> ScaleTable:
    heads = ("", "shards", "workers each", "jobs/s", "p50, p99", "lost", "lowest", "late", "WAL of a shard")
    rows = []
    for name, label in SIMULATED:
        found = {key.removeprefix(f"{name}_"): value for key, value in figures.items() if key.startswith(f"{name}_")}
        rows.append(
            (
                label,
                f"{found['shards']:,.0f}",
                f"{found['workers']:.0f}",
                _round(found["rate"]),
                f"{found['p50']:.1f}, {found['p99']:.1f} ms",
                f"{found['lost']:.3f} %",
                f"{found['lowest']:.0f} %",
                f"{found['late']:.3f} %",
                f"{found['wal']:,.0f} MB/s",
            )
        )
    return ScaleTable("lrrrrrrrr", heads, rows)


def _checked(figures: Mapping[str, float]) -> ScaleTable:
    others = figures["two_shards_others"]
    label = f"jobs/s of both, drained at full speed while other processes used {others:.1f} cores"
    rows = [_compared(figures, label, "two_shards", "jobs/s")]
    for name in ("p50", "p99"):
        if f"two_shards_{name}_measured" in figures:
            label = f"enqueue to start, {name}, at 5,000 jobs/s each"
            rows.append(_compared(figures, label, f"two_shards_{name}", "ms"))
    return ScaleTable("lrrr", ("two shards, two workers", "predicted", "measured", "ratio"), rows)


def _compared(figures: Mapping[str, float], label: str, name: str, unit: str) -> Sequence[str]:
    predicted, measured = figures[f"{name}_predicted"], figures[f"{name}_measured"]
    shown = [_round(each) if unit == "jobs/s" else f"{amount(each)} {unit}" for each in (predicted, measured)]
    return (label, *shown, f"{measured / predicted:.2f}")


def _us(value: float) -> str:
    return f"{value:.0f} µs"


def _round(value: float) -> str:
    """Return a number with three digits."""
    digits = len(str(int(value))) - 3
    return f"{round(value, -max(0, digits)):,.0f}"
