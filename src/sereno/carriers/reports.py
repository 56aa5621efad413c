"""Reports of workers about the carriers of their queues: every process reads the state of a carrier from there."""

from collections.abc import Sequence

from sereno.carriers.contract import CarrierState
from sereno.carriers.message import UndecodableMessage, decode
from sereno.database.statement import Operation, Statement, queries
from sereno.error_text import storable
from sereno.errors import CarrierUnavailable
from sereno.jobs.carried import CarriedQueue

_sql = queries("carriers/reports")

# Seconds for which the report of another worker counts as fresh: about half of the time between two reports.
FRESH = 2.5
# Bytes that a stream adds to the body of a message: its subject, its id and its length.
OVERHEAD = 100


def reached(queue: CarriedQueue, state: CarrierState) -> Operation[None]:
    """Store what the carrier answered."""
    yield Statement(
        _sql["reached"],
        {
            **_declared(queue),
            "pending_messages": state.pending_messages,
            "held_messages": state.held_messages,
            "redelivered_messages": state.redelivered_messages,
            "pending_jobs": estimated_jobs(state),
            "oldest": state.oldest,
            "bytes": state.bytes,
            "max_bytes": state.max_bytes,
            "replicas": state.replicas,
            "current_replicas": state.current_replicas,
            "leader": state.leader,
            "fresh": FRESH,
        },
    )


def not_reached(queue: CarriedQueue, error: CarrierUnavailable) -> Operation[None]:
    """Store that the carrier did not answer, and why."""
    yield Statement(_sql["not_reached"], {**_declared(queue), "error": storable(error)})


def _declared(queue: CarriedQueue) -> dict[str, object]:
    carrier = queue.carrier
    return {"queue": queue.name, "kind": carrier.kind, "address": carrier.description, "direct": queue.direct}


def estimated_jobs(state: CarrierState) -> int:
    """Return about how many jobs the carrier stores. Up to two messages are counted; more are estimated by bytes."""
    messages = state.pending_messages + state.held_messages
    counts = [count for body in state.samples if (count := _jobs(body))]
    if not messages or not counts:
        return messages
    if messages <= len(counts):
        return sum(counts[:messages])
    return max(messages, round(state.bytes * sum(counts) / _size(state.samples)))


def _jobs(body: bytes) -> int:
    try:
        return len(decode(body).ids)
    except UndecodableMessage:
        return 0


def _size(samples: Sequence[bytes]) -> int:
    return sum(len(body) + OVERHEAD for body in samples)
