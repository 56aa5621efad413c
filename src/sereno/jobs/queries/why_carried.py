"""Explains where a job is that PostgreSQL does not have: on its way to a carrier, or there."""

from sereno.database.statement import Operation
from sereno.duration import duration_text
from sereno.jobs.queries.carriers import CarrierLine, list_carriers, queue_to_publish

# Ids of jobs that were published directly begin here (sequence direct_ids).
FIRST_DIRECT = 1_000_000_000_000_000
# Queues that are listed.
MOST_NAMED = 5


def why_not_stored(job_id: int, tenant: str | None = None) -> Operation[list[str]]:
    """Return sentences about a job without a row; none if no carrier can have it.

    `tenant`: of the reader, who sees no names of queues.
    """
    lines = yield from list_carriers()
    if not lines and job_id < FIRST_DIRECT:
        return []
    queue = yield from queue_to_publish(job_id)
    if queue is not None:
        carrier = next((line for line in lines if line.queue == queue), None)
        where = "its carrier" if carrier is None or tenant is not None else f"{carrier.kind}, the carrier of {queue!r}"
        return [
            f"It is on its way to {where}: its message waits to be published.",
            *_away([carrier] if carrier else []),
        ]
    if job_id < FIRST_DIRECT:
        return [
            f"PostgreSQL has no job with the id {job_id}.",
            "If its queue is carried, it waits at its carrier, or it has succeeded and its task keeps no history.",
            "Otherwise it was never created (its transaction rolled back), or it was deleted or is past retention.",
        ]
    first = "It was published directly to the carrier of its queue, and PostgreSQL has no row of it: "
    return [
        first + "it waits there, or it has succeeded and its task keeps no history.",
        "A failure would be stored here as a retry or a dead letter.",
        *([] if tenant is not None else map(_pending, lines[:MOST_NAMED])),
        *_away(lines),
    ]


def _pending(line: CarrierLine) -> str:
    if not line.messages:
        return f"The carrier of the queue {line.queue!r} is empty: none of its jobs waits there."
    oldest = "" if line.oldest_seconds is None else f", the oldest for {duration_text(line.oldest_seconds)}"
    return f"The carrier of the queue {line.queue!r} has about {line.pending_jobs:,} jobs{oldest}."


def _away(lines: list[CarrierLine]) -> list[str]:
    return ["A carrier does not answer: its jobs wait until it does."] if any(x.state == "away" for x in lines) else []
