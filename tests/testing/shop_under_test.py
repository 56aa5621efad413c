"""A small application, as a user's tests import it."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from sereno import Backoff, Content, Every, Limit, Recipient, Sereno, in_app

app = Sereno()


@dataclass
class Order:
    number: int


order_paid = app.event("order.paid", Order, channels=[in_app])


@order_paid.template()
def content(order: Order, to: Recipient) -> Content:
    return Content(f"Order {order.number} is paid", "Thank you")


@app.task(retry=Backoff(1, delays=["10m"]))
def charge(order: int) -> None:
    if order == 13:
        raise ValueError("no luck")


@app.cycle(Every("1h"))
@app.task(concurrency=Limit(1, name="sweeps"))
def sweep() -> None:
    pass


@app.task
def wait_for_ever(marker: str) -> None:
    """Wait until a file of that name with the suffix .end exists: a thread cannot be killed."""
    path = Path(marker)
    if path.exists():
        return
    path.write_text(str(os.getpid()))
    while not path.with_suffix(".end").exists():
        time.sleep(0.01)
