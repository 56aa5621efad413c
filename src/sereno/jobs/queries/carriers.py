"""Carried queues with what is pending at their carriers, as workers last reported it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sereno.database.statement import Operation, Statement, queries

_sql = queries("jobs/queries/carriers")

# Seconds without a report of any worker after which the state is unknown; and without an answer of the carrier, while
# workers report, after which it is away. Workers report every five seconds.
STALE, AWAY = 30.0, 12.0
MOST_QUEUES = 1000

CarrierHealth = Literal["up", "away", "unknown"]


@dataclass(frozen=True, slots=True)
class CarrierLine:
    """A carried queue. `share`: of new jobs that the carrier gets, in per cent. `state`: up, away or unknown.

    `pending_jobs`: an estimate, from the bytes of its messages. `relay_messages`, `relay_jobs`: in PostgreSQL, on their
    way to the carrier. Ages are in seconds.
    """

    queue: str
    kind: str
    address: str
    direct: bool
    share: int
    state: CarrierHealth
    reported_at: datetime
    reported_seconds: float
    reached_at: datetime | None
    reached_seconds: float | None
    error: str | None
    pending_messages: int
    held_messages: int
    redelivered_messages: int
    pending_jobs: int
    oldest_seconds: float | None
    bytes: int
    max_bytes: int | None
    replicas: int
    current_replicas: int
    leader: str | None
    relay_messages: int
    relay_jobs: int
    relay_oldest_seconds: float | None

    @property
    def messages(self) -> int:
        """Messages that the carrier stores: waiting ones, and those that workers hold."""
        return self.pending_messages + self.held_messages

    @property
    def is_retired(self) -> bool:
        """Whether no new job goes to the carrier, and none is left there or on its way."""
        return not self.share and not self.messages and not self.relay_messages and self.state == "up"


def list_carriers(queue: str | None = None) -> Operation[list[CarrierLine]]:
    """Return carried queues by name. `queue`: only this one."""
    given = {"queue": queue, "stale": STALE, "away": AWAY, "most": MOST_QUEUES}
    rows = yield Statement(_sql["carriers"], given)
    return [CarrierLine(*row) for row in rows]


def queue_to_publish(job_id: int) -> Operation[str | None]:
    """Return the queue of a job that is on its way to its carrier; None for other jobs."""
    rows = yield Statement(_sql["to_publish"], {"job": job_id})
    return rows[0][0] if rows else None
