"""Gauges of carried queues. Every child of a supervisor sees the same carriers; the first that reached one counts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec


class CarrierGauges(msgspec.Struct):
    """The state of one carried queue as one worker child last saw it. `jobs`: about how many its messages hold."""

    up: bool = False
    pending: int = 0
    held: int = 0
    redelivered: int = 0
    jobs: int = 0
    bytes: int = 0
    oldest: float = 0.0
    replicas: int = 0
    current: int = 0


# Name, explanation and field of each gauge with the label `queue`; the names of declared queues are bounded.
_GAUGES = (
    ("sereno_carrier_pending_messages", "Messages of a carried queue that no worker holds yet", "pending"),
    ("sereno_carrier_held_messages", "Messages of a carried queue that workers hold", "held"),
    ("sereno_carrier_redelivered_messages", "Held messages that were delivered before", "redelivered"),
    ("sereno_carrier_pending_jobs", "About how many jobs those messages have", "jobs"),
    ("sereno_carrier_bytes", "Bytes that the carrier stores for a queue", "bytes"),
    ("sereno_carrier_oldest_seconds", "Age of the oldest message of a carried queue", "oldest"),
)


def carrier_families(children: Sequence[Mapping[str, CarrierGauges]], gauge: Any) -> Iterable[Any]:
    """Yield the metrics; none for a worker without carried queues."""
    merged: dict[str, CarrierGauges] = {}
    for child in children:
        for queue, found in child.items():
            if queue not in merged or found.up > merged[queue].up:
                merged[queue] = found
    if not merged:
        return
    up = gauge(
        "sereno_carrier_up",
        "1 if the carrier of a queue answers this worker; the other metrics of carriers only then",
        labels=["queue"],
    )
    for queue, found in merged.items():
        up.add_metric([queue], int(found.up))
    yield up
    answering = {queue: found for queue, found in merged.items() if found.up}
    for name, text, field in _GAUGES:
        family = gauge(name, text, labels=["queue"])
        for queue, found in answering.items():
            family.add_metric([queue], getattr(found, field))
        yield family
    nodes = gauge(
        "sereno_carrier_replicas", "Nodes that store a carried queue, wanted and current", labels=["queue", "state"]
    )
    for queue, found in answering.items():
        nodes.add_metric([queue, "wanted"], found.replicas)
        nodes.add_metric([queue, "current"], found.current)
    yield nodes
