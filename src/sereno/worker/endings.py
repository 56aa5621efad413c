"""What the value that a handler returned means for its jobs."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from sereno.jobs.attempt import Dead, Ending
from sereno.jobs.job import ClaimedJob
from sereno.jobs.task import TaskDefinition


def unfit(job: ClaimedJob) -> Dead:
    """Return why the job cannot run."""
    return Dead(f"unreadable job: {job.unreadable}" if job.unreadable is not None else "expired before it could run")


def as_ending(result: Any) -> Ending:
    """Return a returned exception or outcome as the ending; any other value means success."""
    # Not isinstance: it reads `__class__` of the value, which may raise.
    return result if result is not None and issubclass(type(result), BaseException) else None


def endings_of(definition: TaskDefinition, called: Sequence[int], result: Any) -> dict[int, Ending]:
    """Return the endings by job. A batch task returns None, or one outcome for each of its jobs."""
    if result is None:
        return dict.fromkeys(called)
    try:
        # One more than expected is enough to detect a mismatch; the iterator may be infinite.
        outcomes = list(islice(result, len(called) + 1))
    except BaseException as error:  # noqa: BLE001 - iterating runs code of the handler, which may raise anything
        return dict.fromkeys(called, error)
    if len(outcomes) != len(called):
        count = len(outcomes) if len(outcomes) < len(called) else f"more than {len(called)}"
        return dict.fromkeys(
            called, ValueError(f"batch task {definition.name} got {len(called)} jobs and returned {count} outcomes")
        )
    return dict(zip(called, map(as_ending, outcomes), strict=True))
