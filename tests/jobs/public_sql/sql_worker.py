"""A worker that uses only the public SQL functions, like a worker in another language."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.facts import one
from tests.jobs.job_steps import Connection


class Claimed(NamedTuple):
    """The documented columns of `sereno.claim_jobs`."""

    id: int
    attempt: int
    task: str
    args: dict[str, Any]
    queue: str
    tenant: str | None
    priority: int
    failures: int
    crashes: int
    trace: str | None
    run_at: Any
    claimed_at: Any
    planned_at: Any


class Settled(NamedTuple):
    """The documented columns of `sereno.settle_jobs`."""

    id: int
    attempt: int
    settled: bool
    state: str | None
    run_at: Any
    why: str | None


class Beat(NamedTuple):
    """The documented columns of `sereno.heartbeat`."""

    alive: bool
    lease_until: Any
    cancel: list[int]
    lost: list[int]


def outcome(job: Claimed, name: str = "succeeded", **fields: Any) -> dict[str, Any]:
    return {"id": job.id, "attempt": job.attempt, "outcome": name, **fields}


class SqlWorker:
    """One session. Reads only documented columns."""

    def __init__(
        self,
        connection: Connection,
        *,
        queues: Sequence[str] = ("default",),
        tasks: Sequence[str] = ("work",),
        lease: str = "30 seconds",
        **options: Any,
    ) -> None:
        self.connection = connection
        given = "".join(f", {name} => %({name})s" for name in options)
        self.session: int = self.query(
            f"select sereno.open_session(%(queues)s, %(tasks)s, lease => %(lease)s::interval{given})",
            {"queues": list(queues), "tasks": list(tasks), "lease": lease, **options},
        )[0][0]

    def query(self, sql: str, params: Any = None) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql.encode(), params).fetchall()

    def claim(self, most: int = 10, queues: Sequence[str] | None = None) -> list[Claimed]:
        wanted = None if queues is None else list(queues)
        found = self.query("select * from sereno.claim_jobs(%s, %s, %s)", [self.session, wanted, most])
        return [Claimed(*row) for row in found]

    def settle(self, *outcomes: Any, strict: bool = False) -> list[Settled]:
        given = [self.session, json.dumps(outcomes), strict]
        return [Settled(*row) for row in self.query("select * from sereno.settle_jobs(%s, %s, %s)", given)]

    def end(self, jobs: Sequence[Claimed], name: str = "succeeded", **fields: Any) -> list[bool]:
        """Settle all jobs the same way; return whether each was written."""
        return [each.settled for each in self.settle(*(outcome(job, name, **fields) for job in jobs))]

    def beat(self, held: Sequence[int] | None = None) -> Beat:
        given = None if held is None else list(held)
        return Beat(*self.query("select * from sereno.heartbeat(%s, %s::bigint[])", [self.session, given])[0])

    def close(self) -> int:
        closed: int = self.query("select sereno.close_session(%s)", [self.session])[0][0]
        return closed


def snapshot(connection: Connection) -> dict[str, Any]:
    """Return a checksum of every table."""
    tables = connection.execute(
        "select relname from pg_class where relnamespace = 'sereno'::regnamespace and relkind = 'r'"
    ).fetchall()
    return {
        name: one(
            connection, f"select md5(coalesce(string_agg(t::text, ' ' order by t::text), '')) from sereno.{name} t"
        )
        for (name,) in tables
    }
