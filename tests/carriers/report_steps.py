"""Reports about carried queues, as workers write them; no carrier runs."""

from typing import Any

import psycopg

from sereno import JetStream
from sereno.carriers import reports
from sereno.carriers.contract import CarrierState
from sereno.errors import CarrierUnavailable
from sereno.jobs.carried import CarriedQueue
from sereno.jobs.queries.carriers import CarrierLine, list_carriers
from tests.jobs.job_steps import do

Connection = psycopg.Connection[Any]

TIME = '"2026-11-18T12:00:00+00:00"'
CLICKS = CarriedQueue("clicks", JetStream("nats://ann:secret@a:4222,nats://b:4222", replicas=3))


def state(**fields: Any) -> CarrierState:
    """Return the state of an empty queue with three replicas, except for these fields."""
    plain: dict[str, Any] = {
        "pending_messages": 0,
        "held_messages": 0,
        "redelivered_messages": 0,
        "bytes": 0,
        "oldest": None,
        "replicas": 3,
        "current_replicas": 3,
        "leader": "a",
    }
    return CarrierState(**plain | fields)


def report(connection: Connection, queue: CarriedQueue = CLICKS, **fields: Any) -> None:
    """Report that the carrier answered."""
    do(connection, reports.reached(queue, state(**fields)))


def report_failure(connection: Connection, queue: CarriedQueue = CLICKS) -> None:
    """Report that the carrier did not answer."""
    do(connection, reports.not_reached(queue, CarrierUnavailable("jetstream at a:4222 did not answer")))


def line(connection: Connection, queue: str = "clicks") -> CarrierLine:
    """Return the queue as every process sees it."""
    (found,) = do(connection, list_carriers(queue))
    return found


def add_batch(connection: Connection, *ids: int, queue: str = "clicks", session: int = 1) -> int:
    """Store a message that waits to be published, as the relay does; return its id."""
    jobs = ", ".join(map(str, ids))
    tasks = ", ".join(['"work"'] * len(ids))
    args = ", ".join(["{}"] * len(ids))
    more = ", ".join(f"[{index}, 5, null, null, null, {TIME}, {TIME}]" for index in range(len(ids)))
    row = connection.execute(
        "insert into sereno.relay_batches (queue, session_id, jobs, body) values (%s, %s, %s, %s) returning id",
        [queue, session, len(ids), f'[1, "{queue}", 1.5, [{jobs}], [{tasks}], [{args}], [{more}]]'],
    ).fetchone()
    assert row is not None
    return int(row[0])
