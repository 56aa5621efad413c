"""Drains of sync, isolated and batch handlers, each compared with a drain of async handlers of the same round.

Sync handlers run in threads, isolated ones in processes beside the worker, and a batch handler gets up to a hundred
jobs in one call.
"""

from statistics import median

from bench.context import BenchContext
from bench.feature_drain import FeatureCost, FeatureLoad, measure
from bench.feature_tasks import batched, isolated, plain, threaded
from bench.tasks import MONTH, account

ROUNDS = 5
REFERENCE = "handlers_async"

LOADS = {
    REFERENCE: FeatureLoad(lambda number: plain.job(account(number), MONTH)),
    "handlers_sync": FeatureLoad(lambda number: threaded.job(account(number), MONTH)),
    # A call takes a trip to another process and back.
    "handlers_isolated": FeatureLoad(lambda number: isolated.job(account(number), MONTH), divisor=10),
    "handlers_batch": FeatureLoad(lambda number: batched.job(f"{account(number)}, {MONTH}")),
}


def run(context: BenchContext) -> None:
    """`handlers_async`, `handlers_sync`, `handlers_isolated` and `handlers_batch`, and the processor time of each."""
    jobs = context.size(60_000, 20_000)
    measured: dict[str, list[FeatureCost]] = {name: [] for name in LOADS}
    for _ in range(context.size(ROUNDS, 1)):
        for name, load in LOADS.items():
            measured[name].append(measure(context, load, jobs))
    for name, costs in measured.items():
        _report(context, name, costs, measured[REFERENCE])


def _report(context: BenchContext, name: str, costs: list[FeatureCost], references: list[FeatureCost]) -> None:
    report, rates = context.report, [cost.rate for cost in costs]
    spent = [cost.worker + cost.server for cost in costs]
    if name == REFERENCE:
        report.figure(name, median(rates), "jobs/s")
        report.figure(f"{name}_cpu", median(spent), "us/job")
    else:
        report.rounds(name, rates, "jobs/s", REFERENCE, [cost.rate for cost in references])
        report.rounds(
            f"{name}_cpu", spent, "us/job", f"{REFERENCE}_cpu", [cost.worker + cost.server for cost in references]
        )
    report.figure(f"{name}_cpu_worker", median(cost.worker for cost in costs), "us/job")
    report.figure(f"{name}_cpu_server", median(cost.server for cost in costs), "us/job")
    report.note(f"{name}: {', '.join(f'{rate:,.0f}' for rate in rates)}")
