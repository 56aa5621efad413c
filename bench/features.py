"""What each feature costs a job, in microseconds of processor time beyond a plain job.

A plain job has an async handler without a context, and no limit, key, tag or tenant; its success is in the history.
Processor time scatters less than speed, because it does not depend on what else the machine does.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from statistics import median
from typing import Any

from bench import feature_tasks as tasks
from bench.context import BenchContext
from bench.feature_drain import FeatureCost, FeatureLoad, Make, measure
from bench.handlers import LOADS as HANDLERS
from bench.tasks import MONTH, account
from sereno import Limit, Rate
from sereno.jobs.job import NewJob
from sereno.jobs.task_handle import Task

ROUNDS = 3
PLAIN = "plain"
KEYS = 1000
# More than any drain starts in a second: the limit costs its bookkeeping, and no job waits.
AMPLE = 1_000_000

AnyTask = Task[[str, str], Any]


def _of(task: AnyTask) -> Make:
    return lambda number: task.job(account(number), MONTH)


def _keyed(options: Callable[[str], AnyTask]) -> Make:
    """Return a function that creates jobs of a thousand keys; `options` returns the task for a key."""
    task = cache(options)
    return lambda number: task(f"k{number % KEYS}").job(account(number), MONTH)


def _unique(number: int) -> NewJob:
    return tasks.plain.using(unique_key=f"close:{number}").job(account(number), MONTH)


LATER = datetime.now(UTC) + timedelta(days=1)

# In the order of the table. The log writer drops lines when more than 10,000 wait, so jobs with log lines are fewer;
# a retry is logged too. What needs a round trip for each job drains slowly.
FEATURES = {
    PLAIN: FeatureLoad(_of(tasks.plain)),
    "no_history": FeatureLoad(_of(tasks.forgotten), in_history=False),
    "tenant_and_tags": FeatureLoad(_keyed(lambda key: tasks.plain.using(tenant=key, tags=["month", "close"]))),
    "unique_key": FeatureLoad(_unique),
    "expires": FeatureLoad(_of(tasks.plain.using(expires_at=LATER))),
    "context": FeatureLoad(_of(tasks.with_context)),
    "not_sampled": FeatureLoad(_of(tasks.plain), sampling="off"),
    "metered": FeatureLoad(_of(tasks.plain), sampling="metrics"),
    "sampled": FeatureLoad(_of(tasks.plain), sampling="on"),
    "log_line": FeatureLoad(_of(tasks.logging), divisor=12, log_lines=1),
    "progress": FeatureLoad(_of(tasks.reporting)),
    "step": FeatureLoad(_of(tasks.in_steps), divisor=20),
    "transaction": FeatureLoad(_of(tasks.in_transaction), divisor=20),
    "retry": FeatureLoad(_of(tasks.retried), divisor=12, calls=2, log_lines=1),
    "concurrency_key": FeatureLoad(
        _keyed(lambda key: tasks.plain.using(concurrency=Limit(10, key=key, name="concurrency")))
    ),
    "rate_key": FeatureLoad(_keyed(lambda key: tasks.plain.using(rate=Rate(AMPLE, key=key, name="rate"))), divisor=4),
    "order_key": FeatureLoad(_keyed(lambda key: tasks.plain.using(order_key=key)), divisor=4),
    "fair_key": FeatureLoad(_keyed(lambda key: tasks.plain.using(fair_key=key))),
    "sync": HANDLERS["handlers_sync"],
    "batch": HANDLERS["handlers_batch"],
    "isolated": HANDLERS["handlers_isolated"],
}


def run(context: BenchContext) -> None:
    """`feature_plain_worker` and so on for a plain job; for every other feature what it costs beyond that."""
    # Processor time is counted in steps of 10 ms: 0.2 us for each job. The rest of the scatter is the machine's.
    jobs = context.size(60_000, 16_000)
    measured: dict[str, list[FeatureCost]] = {name: [] for name in FEATURES}
    for _ in range(context.size(ROUNDS, 1)):
        for name, load in FEATURES.items():
            measured[name].append(measure(context, load, jobs))
    plain = measured[PLAIN]
    context.report.note(f"{'us/job':<18}{'worker':>10}{'server':>10}{'enqueue':>10}")
    for name, costs in measured.items():
        references = [FeatureCost(0.0, 0.0, 0.0, 0.0)] * len(costs) if name == PLAIN else plain
        beyond = [_beyond(cost, reference) for cost, reference in zip(costs, references, strict=True)]
        worker, server, enqueue = (median(values) for values in zip(*beyond, strict=True))
        for part, value in (("worker", worker), ("server", server), ("enqueue", enqueue)):
            context.report.figure(f"feature_{name}_{part}", value, "us/job")
        sign = "" if name == PLAIN else "+"
        context.report.note(f"{name:<18}{worker:>{sign}10.1f}{server:>{sign}10.1f}{enqueue:>{sign}10.1f}")


def _beyond(cost: FeatureCost, plain: FeatureCost) -> tuple[float, float, float]:
    """Return worker, server and enqueue beyond the plain jobs of the same round."""
    return cost.worker - plain.worker, cost.server - plain.server, cost.enqueue - plain.enqueue
