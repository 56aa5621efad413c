"""The handle of an enqueued job: wait for it, get its result, cancel it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sereno.database.database import Database
from sereno.duration import Duration
from sereno.errors import InvalidArguments, JobCancelled, JobFailed, ResultUnavailable
from sereno.jobs.encryption import encrypted_text
from sereno.jobs.job import EnqueuedJob
from sereno.jobs.result import ResultType

if TYPE_CHECKING:
    from sereno.jobs.client import JobChanges
    from sereno.jobs.finish_listener import FinishedJob
    from sereno.jobs.operations import ChangedJobs

R = TypeVar("R")

# The type of results of tasks that an application does not have.
_ANY = ResultType("", Any)


class Job(Generic[R]):
    """A job that was enqueued: its id, its task, and whether it was created or existed already (unique key)."""

    __slots__ = ("_database", "_result_type", "created", "id", "task")

    def __init__(self, database: Database, job: EnqueuedJob, result_type: ResultType | None) -> None:
        self.id = job.id
        self.task = job.task
        self.created = job.created
        self._database = database
        self._result_type = result_type

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.task}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (self.id, self._database) == (other.id, other._database)

    def __hash__(self) -> int:
        return hash(self.id)

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the job and return what its task returned.

        Raises JobFailed if it is dead, JobCancelled, or TimeoutError: `result("10s")` waits ten seconds at most. It
        works at any time while the history of the job is kept.
        """
        return result_of(self.wait(timeout), self._result_type)  # type: ignore[no-any-return]  # by the annotation

    async def aresult(self, timeout: Duration | None = None) -> R:
        """`result` for async code."""
        return result_of(await self.wait_async(timeout), self._result_type)  # type: ignore[no-any-return]

    def wait(self, timeout: Duration | None = None) -> "FinishedJob":
        """Wait until the job has succeeded, is dead or was cancelled, and return how it ended."""
        from sereno.jobs import finish_listener  # noqa: PLC0415 - few processes wait

        return finish_listener.wait(self._database, [self.id], timeout)[0]

    async def wait_async(self, timeout: Duration | None = None) -> "FinishedJob":
        """`wait` for async code."""
        from sereno.jobs import finish_listener  # noqa: PLC0415 - few processes wait

        return (await finish_listener.wait_async(self._database, [self.id], timeout))[0]

    def cancel(self, *, reason: str | None = None, actor: str | None = None) -> "ChangedJobs":
        """Cancel the job if it waits, and request it to stop if it runs."""
        return self._changes().cancel(reason=reason, actor=actor)

    async def acancel(self, *, reason: str | None = None, actor: str | None = None) -> "ChangedJobs":
        """`cancel` for async code."""
        return await self._changes().acancel(reason=reason, actor=actor)

    def _changes(self) -> "JobChanges":
        from sereno.jobs.client import JobChanges  # noqa: PLC0415 - few processes need it
        from sereno.jobs.filters import JobFilter  # noqa: PLC0415

        return JobChanges(self._database, JobFilter(ids=[self.id]))


def ids_of(jobs: Iterable["Job[Any] | int"]) -> list[int]:
    """Return the ids of jobs, or raise InvalidArguments."""
    ids = [job.id if isinstance(job, Job) else job for job in jobs] if not isinstance(jobs, Job | int) else None
    if ids is None or not all(type(job_id) is int for job_id in ids):
        raise InvalidArguments(f"after is a list of jobs or of their ids, not {jobs!r:.60}")
    return sorted(set(ids))


def result_of(job: "FinishedJob", result_type: ResultType | None) -> Any:
    """Return the result of a job that succeeded, or raise what prevents it."""
    if job.state == "cancelled":
        raise JobCancelled(f"job {job.id} ({job.task}) was cancelled: {job.reason}", job.id)
    if job.state == "dead":
        error = f"; {job.error_type}: {job.error_message}" if job.error_type is not None else ""
        raise JobFailed(
            f"job {job.id} ({job.task}) is dead: {job.reason}{error}", job.id, job.error_type, job.error_message
        )
    if job.result is not None:
        value = (result_type or _ANY).decode(job.id, job.result.encode())
        if result_type is None and encrypted_text(value) is not None:
            raise ResultUnavailable(
                f"job {job.id} ({job.task}): its result is encrypted; read it in an application that declares the task"
            )
        return value
    if job.reason is not None:
        raise ResultUnavailable(f"job {job.id} ({job.task}) succeeded, but {job.reason}")
    return None
