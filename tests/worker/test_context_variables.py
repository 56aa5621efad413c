"""Context variables that a handler sets end with its call, as in web frameworks: the next job must not see them."""

from contextvars import ContextVar

import pytest

from sereno import Sereno
from tests.facts import auntil

tenant: ContextVar[str] = ContextVar("tenant", default="none")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["async", "sync", "batch"])
async def test_a_context_variable_of_one_job_is_not_seen_by_the_next(app: Sereno, kind: str) -> None:
    seen: list[str] = []

    def visit(number: int) -> None:
        seen.append(tenant.get())
        tenant.set(f"tenant of job {number}")

    if kind == "sync":
        task = app.task(name="visit")(visit)
    elif kind == "batch":

        @app.task(name="visit", batch=1)
        async def visit_batch(numbers: list[int]) -> None:
            visit(*numbers)

        task = visit_batch  # type: ignore[assignment]
    else:

        @app.task(name="visit")
        async def visit_async(number: int) -> None:
            visit(number)

        task = visit_async
    await app.aenqueue_many([task.job(number) for number in range(5)])
    async with app.working({"default": 1}):
        await auntil(lambda: len(seen) == 5)
    assert seen == ["none"] * 5


async def test_a_handler_sees_the_context_variables_of_the_code_that_runs_the_worker(app: Sereno) -> None:
    seen: list[str] = []

    @app.task
    async def visit(number: int) -> None:
        seen.append(tenant.get())

    token = tenant.set("whole application")
    await app.aenqueue_many([visit.job(number) for number in range(3)])
    async with app.working({"default": 1}):
        tenant.reset(token)
        await auntil(lambda: len(seen) == 3)
    assert seen == ["whole application"] * 3
