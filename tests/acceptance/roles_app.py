"""The application that a worker runs under its own role: it uses every feature."""

from dataclasses import dataclass
from typing import Any

from sereno import Backoff, Context, Dead, Every, Limit, Sereno
from sereno.channels.contract import IN_APP
from sereno.jobs.task_handle import Task
from sereno.notifications.event_handle import Event
from tests.notifications.conftest import Pager, Tender

QUICK = Backoff(1, delays=["50ms"], jitter=0)


@dataclass(frozen=True)
class Shop:
    """The tasks and the event that the tests use."""

    works: Task[..., Any]
    fails_once: Task[..., Any]
    dies: Task[..., Any]
    waits_its_turn: Task[..., Any]
    tender_published: Event[Tender]


def declare(app: Sereno) -> Shop:
    @app.task(name="works")
    async def works(ctx: Context) -> None:
        ctx.progress(0.5, "half")
        async with ctx.transaction() as connection:
            await connection.execute("insert into done (job) values (%s)", [ctx.job_id])

    @app.task(name="fails_once", retry=QUICK)
    async def fails_once(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise OSError("not yet")

    @app.task(name="dies")
    async def dies() -> None:
        raise Dead("no use")

    @app.task(name="waits_its_turn", concurrency=Limit(1, key="{tenant}"), fair_key="{tenant}", order_key="{tenant}")
    async def waits_its_turn() -> None: ...

    @app.cycle(Every("1s"), key="turns")
    @app.task(name="turns")
    async def turns() -> None: ...

    event = app.event("tender.published", Tender, channels=[Pager(), IN_APP], category="tenders")
    app.archive.table("public.tenders", time="published_at", older_than="365d")
    return Shop(works, fails_once, dies, waits_its_turn, event)


app = Sereno()
declare(app)
