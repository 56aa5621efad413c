"""Key figures of the whole system, cheap enough to query every second."""

from dataclasses import dataclass

from sereno.bounded_count import BoundedCount
from sereno.database.statement import Operation
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries.queues import QueueLine, list_queues


@dataclass(frozen=True, slots=True)
class SystemSnapshot:
    """Key figures. `waiting`: jobs that wait for other jobs.

    `oldest_seconds`: for how long the oldest ready job has been due, in whole seconds.
    """

    workers: int
    slots: int
    hosts: int
    queues: int
    waiting: int
    scheduled: int
    ready: int
    running: int
    finished_last_minute: int
    oldest_seconds: int | None
    dead: BoundedCount


def snapshot() -> Operation[SystemSnapshot]:
    """Return the figures of the whole system."""
    figures, _ = yield from snapshot_and_queues()
    return figures


def snapshot_and_queues() -> Operation[tuple[SystemSnapshot, list[QueueLine]]]:
    """Return the figures of the whole system, and the queues that they are summed from."""
    lines = yield from list_queues()
    sessions = yield from job_queries.sessions()
    dead = yield from job_queries.dead_letters()
    alive = [session for session in sessions if session.state == "alive"]
    waits = [line.oldest_seconds for line in lines if line.oldest_seconds is not None]
    figures = SystemSnapshot(
        len(alive),
        sum(sum(session.queues.values()) for session in alive),
        len({session.host for session in alive}),
        len(lines),
        _sum(lines, "waiting"),
        _sum(lines, "scheduled"),
        _sum(lines, "ready"),
        _sum(lines, "running"),
        _sum(lines, "finished_last_minute"),
        int(max(waits)) if waits else None,
        dead,
    )
    return figures, lines


def _sum(lines: list[QueueLine], what: str) -> int:
    return sum(getattr(line, what).value for line in lines)
