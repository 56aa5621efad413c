"""The pauses that apply to carried jobs, as last read from PostgreSQL."""

from collections.abc import Iterable

from sereno.jobs.job import ClaimedJob
from sereno.jobs.queries.rows import PauseRow


class CurrentPauses:
    """Paused queues, tasks and tenants. While PostgreSQL is away, those that were last read apply.

    Before the first read, every queue counts as paused.
    """

    def __init__(self) -> None:
        self._names: frozenset[tuple[str, str]] | None = None

    def replace(self, rows: Iterable[PauseRow]) -> bool:
        """Take over what was read; return whether it has changed."""
        before, self._names = self._names, frozenset((row.kind, row.name) for row in rows)
        return before != self._names

    def has_queue(self, name: str) -> bool:
        return self._names is None or ("queue", name) in self._names

    def reason(self, job: ClaimedJob) -> str | None:
        """Return why the job must not start; None if it may."""
        if not self._names:
            return None
        if ("task", job.task) in self._names:
            return f"the task {job.task} is paused"
        if job.tenant is not None and ("tenant", job.tenant) in self._names:
            return "its tenant is paused"
        return None
