"""Queues that are carried outside of PostgreSQL: what their jobs cannot have, and which of them are published directly.

A carrier has no unique keys, limits, order or fairness: those need one place that sees all jobs of the queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sereno.errors import ConfigurationError, InvalidArguments
from sereno.jobs.job import EnqueuedJob, NewJob

# The first id of jobs that are published directly: the sequence `direct_ids` begins there.
FIRST_DIRECT_ID = 1_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class CarriedQueue:
    """A queue and its carrier; None: its jobs stay in PostgreSQL.

    `direct`: publish its jobs without storing them in PostgreSQL, if they can be.
    """

    name: str
    carrier: Any
    direct: bool = False


class DirectPublisher(Protocol):
    """Publishes jobs to the carrier of their queue; they are accepted when this returns."""

    def publish(self, jobs: Sequence[NewJob]) -> list[EnqueuedJob]: ...

    async def apublish(self, jobs: Sequence[NewJob]) -> list[EnqueuedJob]: ...


def check_limits(owner: str, queue: str) -> None:
    """Raise ConfigurationError: `owner` has limits, and the queue is carried."""
    raise ConfigurationError(
        f"{owner} has limits, an order key or a fair key, and the queue {queue} is carried outside of PostgreSQL, "
        "where they do not exist: remove them, or put the task into a queue without a carrier"
    )


def check_carried(job: NewJob) -> None:
    """Raise InvalidArguments for a job that its carried queue cannot have."""
    where = f"task {job.task}: the queue {job.options.queue} is carried outside of PostgreSQL, where"
    if job.options.unique_key is not None:
        raise InvalidArguments(
            f"{where} unique keys do not exist: use a queue without a carrier, or make the handler idempotent"
        )
    if job.keys is not None:
        raise InvalidArguments(f"{where} limits, order keys and fair keys do not exist: use a queue without a carrier")


def is_direct(job: NewJob, carried: CarriedQueue | None, connection: Any) -> bool:
    """Return whether the job is published directly. Jobs that PostgreSQL has to hold or to look at are not."""
    options = job.options
    wanted = options.direct
    if carried is None:
        if wanted:
            raise ConfigurationError(
                f"direct=True: the queue {options.queue} has no carrier; declare one with "
                f'app.queue("{options.queue}", carrier=JetStream(…)) or the setting carriers'
            )
        return False
    if connection is not None:
        if wanted:
            raise ConfigurationError(
                "direct=True publishes the job at once, and not with the transaction of the connection: give one of "
                "the two"
            )
        return False
    needs_postgres = (options.run_at, options.delay, options.expires_at, options.group_id, job.requires)
    is_held = needs_postgres != (None,) * len(needs_postgres) or bool(options.after)
    return (carried.direct if wanted is None else wanted) and not is_held
