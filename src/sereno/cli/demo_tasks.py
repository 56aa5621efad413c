"""The demo's application: a small chain of restaurants whose back office runs on jobs of every kind."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from sereno.app import Sereno
from sereno.domain.attempt import Outcome
from sereno.domain.job import JobOptions, NewJob
from sereno.domain.retry import Backoff
from sereno.domain.stored import encoder
from sereno.engine.context import Context

RESTAURANTS = ("osteria", "pelmeni", "taqueria", "izakaya", "bistro", "tandoor", "mezze", "brauhaus")
QUEUES = {"default": 12, "books": 6, "mail": 8, "notifications": 8}

# What each task is there to show; the order is that of the table.
WORDS = {
    "menu.refresh": "quick work",
    "order.import": "fails now and then, retried",
    "invoice.send": "some accounts are closed: dead letter",
    "books.reconcile": "slow, reports progress",
    "sales.count": "taken in batches of 25",
    "branch.open": "durable steps: a retry skips what is done",
    "guest.remind": "due in a few seconds",
    "report.night": "unique key: asked for often, made once each",
}


class AccountClosedError(Exception):
    """Trying again will not open it."""


class KitchenBusyError(Exception):
    """Trying again soon will help."""


def declare(app: Sereno, chance: random.Random) -> None:
    """Give the application its tasks."""
    _declare_plain(app, chance)
    _declare_special(app)


def _declare_plain(app: Sereno, chance: random.Random) -> None:
    @app.task(name="menu.refresh")
    async def refresh_menu(dish: int) -> None:
        await asyncio.sleep(0.01 + dish % 5 * 0.01)

    @app.task(name="order.import", retry=Backoff(6, delays=["300ms", "600ms", "1s"]))
    async def import_order(number: int) -> None:
        await asyncio.sleep(0.05)
        if chance.random() < 0.35:  # noqa: PLR2004 - about a third, so that it is seen
            raise KitchenBusyError(f"the kitchen did not answer for order {number}")

    @app.task(name="invoice.send", queue="mail", retry=Backoff(3, permanent=[AccountClosedError]))
    async def send_invoice(account: int) -> None:
        await asyncio.sleep(0.03)
        if account % 9 == 0:
            raise AccountClosedError(f"account {account} is closed")

    @app.task(name="guest.remind", queue="mail")
    async def remind_guest(table: int) -> None:  # noqa: ARG001 - it shows, it does nothing
        await asyncio.sleep(0.02)

    @app.task(name="report.night", queue="books", priority=8)
    def make_report(restaurant: str) -> None:  # noqa: ARG001 - see above
        sum(number * number for number in range(20_000))


def _declare_special(app: Sereno) -> None:
    @app.task(name="books.reconcile", queue="books", priority=3)
    async def reconcile(days: int, ctx: Context) -> None:
        for day in range(days):
            ctx.progress(day / days, f"day {day + 1} of {days}")
            await asyncio.sleep(0.25)

    @app.task(name="sales.count", batch=25)
    async def count_sales(sales: list[int]) -> Sequence[Outcome | None]:
        await asyncio.sleep(0.05)
        return [None for _ in sales]

    @app.task(name="branch.open", retry=Backoff(3, delays=["500ms"]))
    async def open_branch(street: str, ctx: Context) -> None:
        key = await ctx.step("rent", _rent, street)
        await ctx.step("hire", _hire, key)
        if ctx.attempt == 1:
            raise KitchenBusyError("the oven is not there yet; what was done stays done")
        await ctx.step("bake", _hire, key)


async def _rent(street: str) -> str:
    await asyncio.sleep(0.1)
    return f"keys of {street}"


async def _hire(key: str) -> int:
    await asyncio.sleep(0.1)
    return len(key)


def workload(app: Sereno, total: int, chance: random.Random) -> list[NewJob]:
    """About so many jobs of every kind, shuffled as life does it."""
    jobs = [job for number in range(max(1, total // 40)) for job in _one_round(app, number, chance)]
    chance.shuffle(jobs)
    return jobs


def _one_round(app: Sereno, number: int, chance: random.Random) -> Iterator[NewJob]:
    """Forty jobs."""

    def one(task: str, arguments: dict[str, object], **options: Any) -> NewJob:
        tenant = RESTAURANTS[chance.randrange(len(RESTAURANTS))]
        return app.new_job(task, encoder.encode(arguments), JobOptions(**{"tenant": tenant} | options))

    for index in range(12):
        yield one("menu.refresh", {"dish": index}, priority=chance.choice([5, 5, 5, 7]))
    for index in range(8):
        yield one("order.import", {"number": number * 8 + index}, priority=2)
    for index in range(5):
        yield one("invoice.send", {"account": number * 5 + index})
    for sale in range(10):
        yield one("sales.count", {"item": sale})
    yield one("books.reconcile", {"days": chance.randrange(4, 10)})
    yield one("branch.open", {"street": f"street {number}"}, tags=["expansion"])
    for table in range(2):
        yield one("guest.remind", {"table": table}, delay=timedelta(seconds=chance.uniform(1, 6)))
    restaurant = RESTAURANTS[number % 3]
    yield one(
        "report.night", {"restaurant": restaurant}, tenant=restaurant, unique_key=f"night:{restaurant}", delay="2s"
    )
