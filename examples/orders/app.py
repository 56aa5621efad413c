"""A shop: an order is reserved, paid and shipped, in one function that waits for the payment.

`place` and `pay` are what the web application calls, each in the transaction of a request.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from sereno import Context, Sereno

app = Sereno()

# How long a reservation is held for an order that is not paid.
PAY_WITHIN = "14d"


@dataclass
class Payment:
    """What the payment provider reports."""

    amount: int
    reference: str


def install(connection: psycopg.Connection[Any]) -> None:
    """Create the tables of the shop."""
    connection.execute((Path(__file__).parent / "schema.sql").read_bytes())


def place(connection: psycopg.Connection[Any], product: str, amount: int) -> int:
    """Store an order and its job in the caller's transaction; return its number."""
    (number,) = connection.execute(
        "insert into orders.orders (product, amount) values (%s, %s) returning number", [product, amount]
    ).fetchone() or (0,)
    fulfil.using(connection, unique_key=f"order:{number}").enqueue(number)
    return int(number)


def pay(connection: psycopg.Connection[Any], number: int, payment: Payment) -> None:
    """Store a payment and tell the order of it in the caller's transaction. A repeated callback changes nothing."""
    stored = connection.execute(
        "insert into orders.payments values (%s, %s, %s) on conflict do nothing returning number",
        [number, payment.amount, payment.reference],
    ).fetchone()
    if stored is not None:
        app.signal(f"paid:{number}", payment, conn=connection)


@app.task
async def fulfil(ctx: Context, number: int) -> None:
    """The whole life of an order."""
    rack = await ctx.step("reserve", reserve, number)
    try:
        payment = await ctx.wait_for(f"paid:{number}", timeout=PAY_WITHIN, type=Payment)
    except TimeoutError:
        await ctx.step("release", release, number)
        return
    parcel = await ctx.step("ship", ship, number, rack)
    ctx.log.info("order %s, paid by %s, is parcel %s", number, payment.reference, parcel)


async def reserve(number: int) -> str:
    """Reserve the product, and return its rack. A second call finds the reservation of the first."""
    rack = f"rack {number % 10}"
    await _write("insert into orders.reservations values (%s, %s) on conflict do nothing", number, rack)
    return rack


async def release(number: int) -> None:
    """Return the product to the stock."""
    await _write("update orders.reservations set released = true where number = %s", number)


async def ship(number: int, rack: str) -> str:
    """Order a parcel, and return its name. A second call finds the parcel of the first."""
    parcel = f"parcel {number} from {rack}"
    await _write("insert into orders.shipments values (%s, %s) on conflict do nothing", number, parcel)
    return parcel


async def _write(statement: str, *values: Any) -> None:
    async with await psycopg.AsyncConnection.connect(app.url) as connection:
        await connection.execute(statement.encode(), values)
