"""Support for users' tests: empties the schema, moves the clock, and queries jobs and deliveries."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sereno.database.partitions import make_partitions
from sereno.database.statement import Operation, Statement, queries
from sereno.jobs import group_store, settlement

_sql = queries("testing/test_support")


@dataclass(frozen=True, slots=True)
class JobState:
    """A job, live or ended."""

    id: int
    task: str
    state: str
    queue: str
    tenant: str | None
    args: dict[str, Any]
    run_at: datetime
    attempt: int
    reason: str | None
    error_type: str | None
    error_message: str | None
    trace: str | None

    def __str__(self) -> str:
        why = f": {self.error_type}: {self.error_message}" if self.error_type else ""
        return f"{self.task}({', '.join(f'{k}={v!r}' for k, v in self.args.items())}) {self.state}{why}"


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """The state of a delivery."""

    id: int
    event: str
    subject: str | None
    recipient: str
    tenant: str | None
    channel: str
    state: str
    reason: str | None
    attempts: int
    error: str | None

    def __str__(self) -> str:
        why = f" ({self.reason or self.error})" if self.reason or self.error else ""
        return f"{self.event} to {self.recipient} by {self.channel}: {self.state}{why}"


def reset() -> Operation[None]:
    """Disconnect other clients of the schema, empty its tables, and reset the clock.

    Ids start at 1 again, except those of sessions.
    """
    yield Statement(_sql["disconnect_others"])
    # To empty a table takes longer than to see that nothing was written to it.
    names = [row[0] for row in (yield Statement(_sql["written_tables"]))]
    if names:
        yield Statement(f"truncate {', '.join(names)} cascade")
    yield Statement(_sql["restart_ids"])
    yield Statement(_sql["restart_duties"])
    for row in (yield Statement(_sql["archived"])):
        yield Statement(f"drop table {row[0]}")
    # Recreates partitions that were archived.
    for table in ("history", "attempts", "fires"):
        yield from make_partitions(table)


def travel(seconds: float, *, leases: bool = True) -> Operation[None]:
    """Move the clock of the schema. `leases`: live sessions keep their leases, as if they had sent heartbeats."""
    yield Statement(_sql["travel"], {"seconds": seconds, "leases": leases})


def now() -> Operation[datetime]:
    moment: datetime = (yield Statement(_sql["now"]))[0][0]
    return moment


def continue_and_count(queues: Sequence[str]) -> Operation[int]:
    """Return how many jobs of these queues are running, ready or due; at most 1000 and a few.

    Jobs that wait for others are continued here, as a worker would do within seconds.
    """
    ((jobs, checks),) = yield Statement(_sql["count_unfinished"], {"queues": list(queues)})
    if checks:
        yield from settlement.check_links()
        yield from group_store.cancel_members()
    return int(jobs + checks)


def open_predecessors(job_id: int) -> Operation[list[int]]:
    """Return the jobs that a waiting job still waits for, by id."""
    return [row[0] for row in (yield Statement(_sql["open_predecessors"], {"id": job_id}))]


def jobs(task: str | None = None, state: str | None = None) -> Operation[list[JobState]]:
    return [JobState(*row) for row in (yield Statement(_sql["jobs"], {"task": task, "state": state}))]


def deliveries(event: str | None, recipient: str | None, channel: str | None) -> Operation[list[DeliveryState]]:
    wanted = {"event": event, "recipient": recipient, "channel": channel}
    return [DeliveryState(*row) for row in (yield Statement(_sql["deliveries"], wanted))]
