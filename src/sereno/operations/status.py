"""Everything on one screen."""

from dataclasses import dataclass

from sereno.operations.queues import QueueLine, list_queues
from sereno.store import insights
from sereno.store.sights import Count, NextJob, OpenTransaction, PauseRow
from sereno.store.statement import Operation


@dataclass(frozen=True, slots=True)
class Status:
    """The state of the house."""

    schema_version: int
    workers_alive: int
    slots: int
    queues: list[QueueLine]
    dead_letters: Count
    next_scheduled: NextJob | None
    oldest_transaction: OpenTransaction | None
    pauses: list[PauseRow]


def status() -> Operation[Status]:
    """A handful of bounded looks."""
    version = yield from insights.schema_version()
    sessions = yield from insights.sessions()
    alive = [session for session in sessions if session.state == "alive"]
    queues = yield from list_queues()
    dead = yield from insights.dead_letters()
    following = yield from insights.next_scheduled()
    oldest = yield from insights.oldest_transaction()
    pauses = yield from insights.pauses()
    slots = sum(sum(session.queues.values()) for session in alive)
    return Status(version, len(alive), slots, queues, dead, following, oldest, pauses)
