"""A job that a test runs by hand, and clients of its stream."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from sereno.jobs.attempt import Ending
from sereno.jobs.chunks import ChunkBatch
from sereno.jobs.job import ClaimedJob
from sereno.jobs.job_stream import write_chunks
from sereno.jobs.settlement import report_progress, settle
from tests.jobs.job_steps import Connection, add, decided, do, session, settled, take_one
from tests.plain_http import NO_CERTIFICATES
from tests.server.api.conftest import Served

Event = tuple[str, dict[str, Any]]


@dataclass
class RunningJob:
    """A job that is emitted, reported and settled directly in the store."""

    connection: Connection
    owner: int
    claimed: ClaimedJob
    number: int = 0

    @classmethod
    def start(cls, connection: Connection, **options: Any) -> "RunningJob":
        add(connection, **options)
        owner = session(connection)
        return cls(connection, owner, take_one(connection, owner))

    @property
    def id(self) -> int:
        return self.claimed.id

    @property
    def path(self) -> str:
        return stream_path(self.id)

    def emit(self, *values: Any) -> None:
        self.number += len(values)
        raw = msgspec.Raw(json.dumps(values).encode())
        batch = ChunkBatch(self.id, self.claimed.attempt, self.number, raw)
        assert do(self.connection, write_chunks(self.owner, [batch])) == {self.id}

    def progress(self, fraction: float, note: str | None = None) -> None:
        assert do(self.connection, report_progress(self.owner, self.id, self.claimed.attempt, fraction, note))

    def end(self, ending: Ending = None, *, keep_history: bool = True) -> None:
        item = settled(self.claimed, decided(ending), keep_history=keep_history, side_rows=True)
        with self.connection.transaction():
            assert do(self.connection, settle(item.way, self.owner, [item])) == {self.id}

    def start_again(self) -> None:
        self.claimed, self.number = take_one(self.connection, self.owner), 0


def stream_path(job_id: int) -> str:
    return f"/api/v1/jobs/{job_id}/stream"


def stream_client(served: Served, token: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=served.url,
        headers={"Authorization": f"Bearer {token}", "Accept": "text/event-stream"},
        timeout=30,
        trust_env=False,
        verify=NO_CERTIFICATES,
        limits=httpx.Limits(max_connections=1100),
    )


async def streamed_events(answer: httpx.Response) -> AsyncIterator[Event]:
    """Yield name and data of each event; the data of a chunk includes the id of its event."""
    assert answer.status_code == 200, await answer.aread()
    assert answer.headers["content-type"].startswith("text/event-stream")
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        name, _, value = line.partition(": ")
        if not line:
            if "event" in fields:
                data = json.loads(fields["data"])
                yield fields["event"], data | ({"id": fields["id"]} if "id" in fields else {})
            fields = {}
        elif name:
            fields[name] = value


async def all_events(client: httpx.AsyncClient, path: str, last_event_id: str | None = None) -> list[Event]:
    """Return the events until the stream ends."""
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    async with client.stream("GET", path, headers=headers) as answer:
        return [event async for event in streamed_events(answer)]


def chunk(attempt: int, number: int, value: Any) -> Event:
    return "chunk", {"number": number, "attempt": attempt, "value": value, "id": f"{attempt}-{number}"}


def state(name: str, attempt: int = 1) -> Event:
    return "state", {"state": name, "attempt": attempt}


def end(name: str, attempt: int = 1, **more: Any) -> Event:
    return "end", {"state": name, "attempt": attempt, **more}
