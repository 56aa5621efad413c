"""Tasks of the shop, written for Django's Tasks framework."""

from typing import Any

from sereno import Dead
from sereno.contrib.django.framework import TaskContext
from sereno.contrib.django.project import app

from .framework import task
from .models import Order


class OutOfStockError(Exception):
    """The article is out of stock."""


@task
def add_up(order: int, *more: int) -> int:
    return sum(more, Order.objects.get(pk=order).total)


@task(queue_name="mail", priority=50)
async def add_up_async(order: int) -> dict[str, int]:
    found = await Order.objects.aget(pk=order)
    return {"total": found.total}


@task(takes_context=True)
def greet(context: TaskContext, word: str, *, loudly: bool = False) -> list[Any]:
    return [context.attempt, context.task_result.id, word.upper() if loudly else word]


@task
def fail(word: str) -> None:
    raise OutOfStockError(word)


@task
def give_up() -> None:
    raise Dead("not wanted")


@task
def return_a_set() -> set[int]:
    return {1}


@task
def return_nothing() -> None: ...


@app.task
def plain(order: int) -> None:
    Order.objects.filter(pk=order).update(total=7)
