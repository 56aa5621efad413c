"""`@app.around`: generators around every attempt. Each yields once, and the handler runs there."""

import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, TypeAlias

from sereno.errors import ConfigurationError
from sereno.jobs.job import ClaimedJob
from sereno.jobs.task import TaskDefinition
from sereno.telemetry.tracing import AttemptWatcher
from sereno.worker.context import Context

# A generator function or an async generator function of the attempt's context.
Middleware: TypeAlias = Callable[[Context], Any]


def check_middleware(function: Middleware) -> None:
    """Raise ConfigurationError unless it is a generator function."""
    if not inspect.isgeneratorfunction(function) and not inspect.isasyncgenfunction(function):
        name = getattr(function, "__name__", repr(function))
        raise ConfigurationError(
            f"@app.around: {name} is not a generator function: write `yield` once, where the handler is to run"
        )


def with_watchers(
    watchers: Sequence[AttemptWatcher],
    jobs: Sequence[ClaimedJob],
    definition: TaskDefinition,
    middlewares: Sequence[Middleware],
) -> Sequence[Middleware]:
    """Return the middlewares of an attempt; the first ones make its span and report its failure."""
    if not watchers:
        return middlewares
    hides_errors = bool(definition.arguments.encrypted)
    return (*(partial(watcher.attempt, jobs, hides_errors) for watcher in watchers), *middlewares)


@asynccontextmanager
async def around(middlewares: Sequence[Middleware], context: Context) -> AsyncIterator[None]:
    """Enter the middlewares in the order of their declaration; leave them in the reverse order.

    What the handler raises is raised at their `yield`. What they set in context variables, the handler sees.
    """
    async with AsyncExitStack() as stack:
        for middleware in middlewares:
            if inspect.isasyncgenfunction(middleware):
                await stack.enter_async_context(asynccontextmanager(middleware)(context))
            else:
                stack.enter_context(contextmanager(middleware)(context))
        yield
