"""Job operations for tests, run directly on the store: no worker, no loop, one connection."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar

import psycopg

from sereno.database import partitions
from sereno.database.connect import PLANNER
from sereno.database.statement import Operation, run
from sereno.jobs import attempt_partitions, transitions
from sereno.jobs import settlement as attempts
from sereno.jobs.attempt import Ending, Settlement, settlement
from sereno.jobs.job import PRIORITIES, ClaimedJob, EnqueuedJob, JobOptions, NewJob
from sereno.jobs.retry import Backoff
from sereno.jobs.settlement import SettleResult
from sereno.worker import sessions

T = TypeVar("T")

Connection = psycopg.Connection[Any]


@contextmanager
def line(url: str) -> Iterator[Connection]:
    """Return a connection with the settings of a worker."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(PLANNER)
        yield connection


def do(connection: Connection, operation: Operation[T]) -> T:
    return run(connection, operation)


def new(task: str = "work", args: bytes = b"{}", **options: Any) -> NewJob:
    chosen: dict[str, Any] = {"queue": "default", "priority": 5} | options
    return NewJob(task, args, JobOptions(**chosen).checked())


def add(connection: Connection, count: int = 1, task: str = "work", **options: Any) -> list[int]:
    """Enqueue `count` equal jobs; return their ids."""
    made: list[EnqueuedJob] = do(connection, transitions.enqueue([new(task, **options)] * count))
    return [job.id for job in made]


def session(
    connection: Connection,
    *,
    queues: Mapping[str, int] | None = None,
    tasks: Collection[str] = ("work",),
    lease: float = 30.0,
    idle: bool = False,
) -> int:
    made, _ = do(
        connection,
        sessions.register(host="here", pid=1, version="0", queues=queues or {"default": 10}, tasks=tasks, lease=lease),
    )
    if idle:
        do(connection, sessions.set_idle(made, True))
    return made


def wanted(free_slots: int = 10, queue: str = "default", floor: int = 0) -> dict[str, Any]:
    """Return one queue of a claim, with the same floor for every priority."""
    return {"queue": queue, "slots": free_slots, "floors": [{"priority": p, "floor": floor} for p in PRIORITIES]}


def take(
    connection: Connection,
    owner: int,
    free_slots: int = 10,
    *,
    queue: str = "default",
    floor: int = 0,
    tasks: Collection[str] = ("work",),
) -> list[ClaimedJob]:
    """Claim jobs; return them in the order in which a worker would run them."""
    got = do(connection, transitions.claim(owner, tasks, [wanted(free_slots, queue, floor)]))
    return sorted(got.jobs, key=lambda job: (job.priority, job.ready_seq))


def take_one(connection: Connection, owner: int, tasks: Collection[str] = ("work",)) -> ClaimedJob:
    (job,) = take(connection, owner, 1, tasks=tasks)
    return job


def decided(ending: Ending = None, *, failures: int = 0, crashes: int = 0, policy: Backoff | None = None) -> Settlement:
    return settlement(ending, failures=failures, crashes=crashes, policy=policy or Backoff(), chance=Random(1))


def settled(
    job: ClaimedJob, decision: Settlement, *, keep_history: bool = True, began: float = 0.5, side_rows: bool = False
) -> SettleResult:
    return SettleResult(job.id, job.attempt, began, decision, keep_history, side_rows=side_rows, link=job.link)


def end(
    connection: Connection, owner: int, batch: Sequence[ClaimedJob], decision: Settlement, *, keep_history: bool = True
) -> set[int]:
    """Settle some jobs the same way; return the ids of those that the session held."""
    items = [settled(job, decision, keep_history=keep_history) for job in batch]
    return do(connection, attempts.settle(items[0].way, owner, items))


def row(connection: Connection, job_id: int) -> dict[str, Any]:
    """Return the row of a live job."""
    return _only(connection, "select * from sereno.jobs where id = %s", job_id)


def past(connection: Connection, job_id: int) -> dict[str, Any]:
    """Return the row of a finished job."""
    return _only(connection, "select * from sereno.history where id = %s", job_id)


def tries(connection: Connection, job_id: int) -> list[tuple[int, str]]:
    """Return number and outcome of each attempt row."""
    found = connection.execute(
        "select number, outcome from sereno.attempts where job_id = %s order by number", [job_id]
    ).fetchall()
    return [(number, outcome) for number, outcome in found]


def _only(connection: Connection, query: str, job_id: int) -> dict[str, Any]:
    cursor = connection.execute(query.encode(), [job_id])
    names = [column.name for column in cursor.description or ()]
    (values,) = cursor.fetchall()
    return dict(zip(names, values, strict=True))


def advance(connection: Connection, seconds: float) -> None:
    """Advance the database clock, which also expires leases."""
    connection.execute(
        "insert into sereno.clock (ahead) values (make_interval(secs => %s)) "
        "on conflict (one_row) do update set ahead = clock.ahead + excluded.ahead",
        [seconds],
    )


def waits_for_a_lock(connection: Connection) -> bool:
    """Return whether a session of this database waits for a lock."""
    found = connection.execute(
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    ).fetchone()
    return found is not None and found[0] > 0


def drop_attempts(connection: Connection, retention: int) -> list[str]:
    """Drop expired partitions of attempts, as a worker does; return their names."""
    names = do(connection, partitions.old_partitions("attempts", retention))
    for name in names:
        while do(connection, attempt_partitions.carry_attempts(name)):
            pass
        do(connection, partitions.drop_partition("attempts", name))
    return names
