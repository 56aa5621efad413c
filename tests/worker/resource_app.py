"""An application with resources, which write to a table when they open and close, also in isolated processes."""

import os
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from sereno import Context, Sereno, inject

app = Sereno()


class Settings:
    """What the other resources need."""


class Client:
    """An async resource. `kind`: which of the two resources of this type it is."""

    def __init__(self, kind: str, settings: Settings) -> None:
        self.kind = kind
        self.settings = settings


class Session:
    """A sync resource."""

    def __init__(self, client: Client) -> None:
        self.client = client


def seen(line: str) -> None:
    with app.database.connection() as connection:
        connection.execute("insert into seen (pid, line) values (%s, %s)", [os.getpid(), line])


@app.resource
def settings() -> Iterator[Settings]:
    seen("settings open")
    yield Settings()
    seen("settings closed")


@app.resource
async def fast(settings: Settings) -> AsyncIterator[Client]:
    seen("fast open")
    yield Client("fast", settings)
    seen("fast closed")


@app.resource
async def slow(settings: Settings) -> AsyncIterator[Client]:
    seen("slow open")
    yield Client("slow", settings)
    seen("slow closed")


@app.resource
def session(client: Annotated[Client, "fast"]) -> Iterator[Session]:
    seen("session open")
    yield Session(client)
    seen("session closed")


@app.task
async def async_task(ctx: Context, session: Session, number: int) -> None:
    seen(f"{number} has {session.client.kind}")


@app.task
def sync_task(number: int, session: Session = inject(session), other: Client = inject(slow)) -> None:
    seen(f"{number} has {session.client.kind} and {other.kind}")


@app.task(isolate=True)
def isolated_task(session: Session, number: int) -> None:
    seen(f"{number} has {session.client.kind}")


@app.task(isolate=True)
async def isolated_async_task(session: Session, number: int) -> None:
    seen(f"{number} has {session.client.kind}")


@app.task(batch=2)
async def batch_task(items: list[int], session: Session = inject()) -> None:
    for number in items:
        seen(f"{number} has {session.client.kind}")
