"""Steps of tests about carried queues: jobs as messages, and operations of the store on one connection."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from sereno import JetStream
from sereno.carriers.jetstream import JetStreamClient, connect
from sereno.carriers.message import encode
from tests.jobs.job_steps import new

QUEUE = "clicks"
FIRST_ID = 1_000_000_000_000_000


def row(job_id: int, position: int = 1, **more: Any) -> dict[str, Any]:
    """Return a carried job as `store` reads it."""
    moment = "2026-01-01T00:00:00+00:00"
    fields: dict[str, Any] = {"task": "work", "queue": "default", "args": msgspec.Raw(b"{}"), "priority": 5}
    none = dict.fromkeys(("tenant", "trace", "tags"))
    times = {"run_at": moment, "created_at": moment, "held_for": 0.0}
    return {"id": job_id, "position": position, **fields, **none, **times, **more}


def body(numbers: Sequence[int], task: str = "click", first: int = FIRST_ID) -> bytes:
    """Return a message with a job for each number; the job of number n has the id `first` + n."""
    jobs = [new(task, f'{{"number":{n}}}'.encode(), queue=QUEUE) for n in numbers]
    return encode(QUEUE, [first + n for n in numbers], jobs, time.time())


async def client_of(carrier: JetStream) -> JetStreamClient:
    """Return a client whose streams exist."""
    client = await connect(carrier)
    await client.state(QUEUE)
    return client
