"""The methods of a context with which a job waits without a slot: for signals, and for other jobs."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar, overload

import msgspec

from sereno.database.database import Database
from sereno.database.driver import adrive, drive
from sereno.database.statement import Plan
from sereno.duration import Duration
from sereno.duration import seconds as length
from sereno.errors import ConfigurationError
from sereno.jobs.encryption import key_ring
from sereno.jobs.group_store import Predecessor, predecessors
from sereno.jobs.job import ClaimedJob, NewJob
from sereno.jobs.result import opened_result
from sereno.jobs.signals import check_name
from sereno.worker.steps import JobSteps, checked_which

T = TypeVar("T")


class WaitingMethods:
    """The part of `Context` that waits."""

    job_id: int
    session: int
    used_side_rows: bool
    is_own_flow: Callable[[], bool]
    _database: Database
    _job: ClaimedJob
    _is_batch: bool
    _steps: JobSteps | None

    @overload
    async def wait_for(
        self, name: str, *, timeout: Duration | None = None, which: Literal["first", "latest"] = "first"
    ) -> Any: ...
    @overload
    async def wait_for(
        self, name: str, *, timeout: Duration | None = None, which: Literal["first", "latest"] = "first", type: type[T]
    ) -> T: ...
    @overload
    async def wait_for(
        self, name: str, *, timeout: Duration | None = None, which: Literal["all"], type: Any = Any
    ) -> list[Any]: ...
    async def wait_for(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        which: str = "first",
        type: Any = Any,  # noqa: A002 - the word of msgspec and pydantic for it
    ) -> Any:
        """Return the value of a signal that was sent to this job, or wait for it without occupying a slot.

        The job then runs from the top when `app.signal(name, …)` was sent, and skips finished steps. It sees signals of
        its tenant that were sent since it was created. After `timeout` it raises SignalTimeout, a TimeoutError. The
        answer is stored: each attempt gets the same one. which: "first", "latest", or "all" for a list. type: what the
        value is decoded to, as in annotations.
        """
        return await self._ado(self._waiting(name, timeout, which, type))

    def receive(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        which: str = "first",
        type: Any = Any,  # noqa: A002 - as above
    ) -> Any:
        """`wait_for` for sync handlers."""
        return self._do(self._waiting(name, timeout, which, type))

    def _waiting(self, name: str, timeout: Duration | None, which: str, wanted: Any) -> Plan[Any]:
        check_name(name)
        if self._is_batch:
            raise ConfigurationError(
                f"signal {name!r}: a batch task cannot wait for signals; wait in one that has no batch"
            )
        # The wait is a row of its own, which ends with the job.
        self.used_side_rows = True
        chosen, limit = checked_which(which), None if timeout is None else length(timeout)
        wanted = list[wanted] if chosen == "all" else wanted
        return self._job_steps().wait_for(name, timeout=limit, which=chosen, wanted=wanted, in_order=self.is_own_flow())

    def _job_steps(self) -> JobSteps:
        if self._steps is None:
            self._steps = JobSteps(self._job, self.session)
        return self._steps

    def _do(self, plan: Plan[T]) -> T:
        return drive(plan, self._database.run_one)

    async def _ado(self, plan: Plan[T]) -> T:
        return await adrive(plan, self._database.arun_one)

    async def call(self, job: NewJob, *, name: str | None = None) -> Any:
        """Run another job and return its result: `total = await ctx.call(count.job(7))`. No slot is held meanwhile.

        The job is enqueued once; this one runs again from the top when it has ended. Raises JobFailed or JobCancelled.
        `name`: of the step that stores it; by default from the task, and its place among equal ones.
        """
        return (await adrive(self._calling(job.task, [job], name), self._database.arun))[0]

    def run_call(self, job: NewJob, *, name: str | None = None) -> Any:
        """`call` for sync handlers."""
        return drive(self._calling(job.task, [job], name), self._database.run)[0]

    async def all(self, jobs: Iterable[NewJob], *, name: str | None = None) -> list[Any]:
        """Run several jobs at the same time and return their results in the same order. Otherwise like `call`."""
        return await adrive(self._calling("all", list(jobs), name), self._database.arun)

    def run_all(self, jobs: Iterable[NewJob], *, name: str | None = None) -> list[Any]:
        """`all` for sync handlers."""
        return drive(self._calling("all", list(jobs), name), self._database.run)

    def _calling(self, what: str, jobs: Sequence[NewJob], name: str | None) -> Plan[list[Any]]:
        self.used_side_rows = True
        return self._job_steps().call(what, jobs, name, in_order=self.is_own_flow())

    async def results(self) -> list[Any]:
        """Return the results of the jobs that this one waited for (`after`, or the jobs of its group), by their ids.

        None for a job without a result, such as a dead one with on_dead="continue", or one that is not in the history;
        such jobs of a group are missing. Encrypted results are decrypted.
        """
        return self._plain(await self._database.arun_one(predecessors(self.job_id)))

    def read_results(self) -> list[Any]:
        """`results` for sync handlers."""
        return self._plain(self._database.run_one(predecessors(self.job_id)))

    def _plain(self, found: Sequence[Predecessor]) -> list[Any]:
        keys = key_ring(self._database.settings.encryption_keys)
        return [
            None
            if each.task is None or each.result is None
            else msgspec.json.decode(opened_result(each.id, each.task, each.result.encode(), keys))
            for each in found
        ]
