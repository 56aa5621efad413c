"""The body of a message: a batch of jobs of one queue, as JSON.

    [1, "clicks", 1763477000.25, [ids], ["task"], [arguments], [[index, priority, …]] or null]

Ids, tasks and arguments are lists, because PostgreSQL builds and msgspec decodes those fastest. A batch of one task
names it once. The last list has the jobs with more than that.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import repeat
from typing import Any

import msgspec

from sereno.errors import SerenoError
from sereno.jobs.job import DEFAULT_PRIORITY, ClaimedJob, NewJob

VERSION = 1
# Jobs in a message, and bytes of the name of a task, at most: a message may come from any client of the carrier.
MOST_JOBS, LONGEST_NAME = 10_000, 500
# Seconds since the epoch: the year 9000.
LATEST = 221_845_392_000.0
LARGEST_ID = 2**63 - 1


class MoreFields(msgspec.Struct, array_like=True, gc=False, omit_defaults=True):
    """The fields of a job that most jobs do not have. `index`: its place in the batch."""

    index: int
    priority: int = DEFAULT_PRIORITY
    tenant: str | None = None
    trace: str | None = None
    tags: list[str] | None = None
    run_at: datetime | None = None
    created_at: datetime | None = None


class Batch(msgspec.Struct, array_like=True, gc=False):
    """A decoded message."""

    version: int
    queue: str
    published_at: float
    ids: list[int]
    tasks: list[str]
    args: list[msgspec.Raw]
    more: list[MoreFields] | None = None

    @property
    def all_tasks(self) -> Sequence[str]:
        return self.tasks * len(self.ids) if len(self.tasks) == 1 else self.tasks


class UndecodableMessage(SerenoError):  # noqa: N818 - its name says what is wrong
    """The body of a message is not a batch of jobs."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Batch)


def encode(queue: str, ids: Sequence[int], jobs: Sequence[NewJob], published_at: float) -> bytes:
    """Return the message with these jobs, whose ids are `ids`."""
    tasks = {job.task for job in jobs}
    names = [jobs[0].task] if len(tasks) == 1 else [job.task for job in jobs]
    more = [fields for index, job in enumerate(jobs) if (fields := _more(index, job)) is not None]
    head = _encoder.encode([VERSION, queue, published_at, ids, names])
    args = b",".join([job.args for job in jobs])
    return b"".join((head[:-1], b",[", args, b"],", _encoder.encode(more or None), b"]"))


def _more(index: int, job: NewJob) -> MoreFields | None:
    options = job.options
    priority = DEFAULT_PRIORITY if options.priority is None else options.priority
    if priority == DEFAULT_PRIORITY and options.is_plain:
        return None
    tags = list(options.tags) or None
    return MoreFields(index, priority, options.tenant, options.trace, tags)


def decode(body: bytes) -> Batch:
    """Return the batch, or raise UndecodableMessage."""
    try:
        batch = _decoder.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UndecodableMessage(f"the message is not a batch of jobs: {error}") from None
    if batch.version != VERSION:
        raise UndecodableMessage(f"the message has version {batch.version}, and this release reads version {VERSION}")
    jobs = len(batch.ids)
    if not jobs or len(batch.args) != jobs or len(batch.tasks) not in (1, jobs) or len(set(batch.ids)) != jobs:
        raise UndecodableMessage("the lists of the message do not match each other")
    if jobs > MOST_JOBS or min(batch.ids) < 1 or max(batch.ids) > LARGEST_ID:
        raise UndecodableMessage(f"the message has {jobs:,} jobs, or ids that no job has")
    if not 0.0 <= batch.published_at < LATEST:
        raise UndecodableMessage("the message has no valid time")
    if any(len(name) > LONGEST_NAME or not name.isprintable() for name in set(batch.tasks)):
        raise UndecodableMessage("the message names a task that no application can have")
    if any(not 0 <= fields.index < jobs for fields in batch.more or ()):
        raise UndecodableMessage("the message has fields of a job that it does not have")
    return batch


def claimed_jobs(batch: Batch, now: float) -> list[ClaimedJob]:
    """Return the jobs of a batch as a worker runs them: each at its first attempt. `now`: seconds since the epoch."""
    jobs = list(
        map(
            ClaimedJob,
            batch.ids,
            repeat(1),
            batch.all_tasks,
            repeat(batch.queue),
            repeat(DEFAULT_PRIORITY),
            repeat(0),
            repeat(None),
            batch.args,
            repeat(now),
            repeat(max(0.0, now - batch.published_at)),
        )
    )
    for fields in batch.more or ():
        job = jobs[fields.index]
        job.priority, job.tenant, job.trace = fields.priority, fields.tenant, fields.trace
    return jobs


def stored_row(batch: Batch, index: int, fields: MoreFields | None) -> dict[str, Any]:
    """Return a job of the batch as the statement that stores it in PostgreSQL reads it. `fields`: those it has."""
    created = datetime.fromtimestamp(batch.published_at, UTC)
    row = {
        "id": batch.ids[index],
        "task": batch.tasks[0] if len(batch.tasks) == 1 else batch.tasks[index],
        "queue": batch.queue,
        "args": batch.args[index],
        "priority": DEFAULT_PRIORITY,
        "run_at": created,
        "created_at": created,
    }
    if fields is not None:
        row |= {"priority": fields.priority, "tenant": fields.tenant, "trace": fields.trace, "tags": fields.tags}
        row |= {"run_at": fields.run_at or created, "created_at": fields.created_at or created}
    return row
