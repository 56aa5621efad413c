"""An application with two tasks and no worker: the test claims and settles, so it can bring a job into every state."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import psycopg
import pytest

from sereno import Backoff, Sereno
from sereno.error_text import describe
from sereno.jobs import settlement as attempts
from sereno.jobs import transitions
from sereno.jobs.attempt import Settlement
from sereno.jobs.job import PRIORITIES, ClaimedJob, JobOptions
from sereno.jobs.settlement import SettleResult
from sereno.worker import sessions


@dataclass
class ManualWorker:
    """An application, and the operations of a worker as methods."""

    app: Sereno
    connection: psycopg.Connection

    def enqueue(self, task: str = "greet", **options: object) -> int:
        new = self.app.new_job(task, b'{"name": "Ada"}', JobOptions(**options))  # type: ignore[arg-type]  # as a caller would
        return self.app.enqueue_many([new])[0].id

    def worker(
        self, *, queues: dict[str, int] | None = None, tasks: Sequence[str] = ("greet", "other"), lease: float = 60.0
    ) -> int:
        operation = sessions.register(
            host="somewhere", pid=4242, version="0", queues=queues or {"default": 2}, tasks=tasks, lease=lease
        )
        return self.app.database.run(operation)[0]

    def claim(self, session: int, free_slots: int = 1, queue: str = "default") -> list[ClaimedJob]:
        floors = [{"priority": priority, "floor": 0} for priority in PRIORITIES]
        wanted = [{"queue": queue, "slots": free_slots, "floors": floors}]
        return self.app.database.run(transitions.claim(session, ["greet", "other"], wanted)).jobs

    def settle(self, session: int, job: ClaimedJob, settlement: Settlement) -> None:
        item = SettleResult(job.id, job.attempt, 0.0, settlement)
        assert self.app.database.run(attempts.settle(item.way, session, [item])) == {job.id}

    def finish(self, settlement: Settlement, task: str = "greet", **options: object) -> int:
        """Enqueue a job, claim it and settle it this way; return its id."""
        session = self.worker(queues={"apart": 1})
        job_id = self.enqueue(task, queue="apart", **options)
        (job,) = self.claim(session, queue="apart")
        assert job.id == job_id
        self.settle(session, job, settlement)
        self.app.database.run(sessions.finish([session], "closed"))
        return job_id

    def dead(self, message: str = "connection reset", **options: object) -> int:
        failed = Settlement("dead", reason="failed 1 times", error=describe(OSError(message)), failed=1)
        return self.finish(failed, **options)  # type: ignore[arg-type]  # as a caller would

    def state(self, job_id: int) -> str | None:
        row = self.connection.execute(
            "select state from sereno.jobs where id = %s union all select state from sereno.history where id = %s",
            [job_id, job_id],
        ).fetchone()
        return None if row is None else str(row[0])

    def run_at(self, job_id: int) -> datetime:
        row = self.connection.execute("select run_at from sereno.jobs where id = %s", [job_id]).fetchone()
        assert row is not None
        found: datetime = row[0]
        return found

    def audit(self) -> list[tuple[str, str, str]]:
        return self.connection.execute("select actor, action, subject from sereno.audit order by id").fetchall()


@pytest.fixture
def manual(app: Sereno, connection: psycopg.Connection) -> ManualWorker:
    @app.task(name="greet", retry=Backoff(3))
    def greet(name: str) -> None:
        """Never runs here."""

    @app.task(name="other")
    def other(name: str) -> None:
        """Never runs here."""

    return ManualWorker(app, connection)
