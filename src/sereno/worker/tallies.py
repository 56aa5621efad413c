"""The counts of a worker, for two readers that read them at different times: /metrics and the minute statistics."""

from collections.abc import Iterable, Mapping

from sereno.telemetry import archive_stats, delivery_counts
from sereno.telemetry.carrier_gauges import CarrierGauges
from sereno.telemetry.metrics import Gauges, MetricTally
from sereno.worker.claiming.slots import QueueSlots
from sereno.worker.executor import Executor


class Tallies:
    """`current`: counts that neither reader has."""

    def __init__(self) -> None:
        self.current = MetricTally()
        self._unserved, self._unwritten = MetricTally(), MetricTally()

    def take_unserved(self, executors: Iterable[Executor]) -> MetricTally:
        """Return the counts since the last call, for the metrics endpoint."""
        self._collect(executors)
        return self._unserved.take()

    def take_unwritten(self, executors: Iterable[Executor]) -> MetricTally:
        """Return the counts since the last call, for the minute statistics."""
        self._collect(executors)
        return self._unwritten.take()

    def _collect(self, executors: Iterable[Executor]) -> None:
        self.current.archive.add(archive_stats.COUNTED.take())
        self.current.reached(delivery_counts.COUNTED.take())
        for executor in executors:
            executor.count_ended()
        counts = self.current.take()
        self._unserved.add(counts)
        self._unwritten.add(counts)


def gauges_of(queues: Mapping[str, QueueSlots], carriers: Mapping[str, CarrierGauges]) -> Gauges:
    """Return how many handlers run in each queue, from PostgreSQL and from its carrier, and how many may."""
    calls = {name: each.calls + (0 if each.beside is None else each.beside.calls) for name, each in queues.items()}
    return Gauges(calls, {name: each.slots for name, each in queues.items()}, dict(carriers))
