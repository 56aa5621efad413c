"""Runs drivers without asyncio support: each call in a thread of its own, so that none blocks another."""

import asyncio
import importlib
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from sereno.errors import ConfigurationError

T = TypeVar("T")

# Seconds that a statement has to end after it was requested to stop.
STOP_SECONDS = 5.0


def driver(module: str, extra: str) -> Any:
    """Import a driver when a target of its kind is first used: it is an optional dependency."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ConfigurationError(
            f"procedures of this kind of database need a driver: run pip install 'sereno[{extra}]'"
        ) from None


async def in_thread(function: Callable[[], T]) -> T:
    """Return the function's result or raise its error. A daemon thread: a hanging server cannot block the exit."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if result.done():
            return
        if error is None:
            result.set_result(value)
        else:
            result.set_exception(error)

    def work() -> None:
        value: T | None = None
        failed: BaseException | None = None
        try:
            value = function()
        except BaseException as error:  # noqa: BLE001 - passed on to the caller
            failed = error
        # The loop may have been closed.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, value, failed)

    threading.Thread(target=work, name="sereno procedure", daemon=True).start()
    return await result


async def watched(function: Callable[[], T], stop: Callable[[], None], timeout: float) -> T:
    """`in_thread`, but stopped with `stop` after `timeout` seconds or when the caller is cancelled.

    Raises TimeoutError or CancelledError then, once the thread has ended or STOP_SECONDS have passed.
    """
    running = asyncio.ensure_future(in_thread(function))
    # Retrieve the error of an abandoned call, so that asyncio does not log it.
    running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    try:
        async with asyncio.timeout(timeout):
            return await asyncio.shield(running)
    except (TimeoutError, asyncio.CancelledError):
        if not running.done():
            with suppress(Exception):
                await in_thread(stop)
            await asyncio.wait([running], timeout=STOP_SECONDS)
        raise
