"""Drivers that know no asyncio: each call in a thread of its own, so that none waits for another's."""

import asyncio
import importlib
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from sereno.errors import ConfigurationError

T = TypeVar("T")

# How long a statement that was told to stop has for it.
STOP_SECONDS = 5.0


def driver(module: str, extra: str) -> Any:
    """Imported when a target of its kind is first used: only its users install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ConfigurationError(
            f"procedures of this kind of database need a driver: pip install 'sereno[{extra}]'"
        ) from None


async def in_thread(function: Callable[[], T]) -> T:
    """Its answer or its error. Nobody waits at the exit for a thread whose server does not answer."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)

    def work() -> None:
        value: T | None = None
        failed: BaseException | None = None
        try:
            value = function()
        except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
            failed = error
        # The loop may be gone by now.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, value, failed)

    threading.Thread(target=work, name="sereno procedure", daemon=True).start()
    return await answer


async def watched(function: Callable[[], T], stop: Callable[[], None], patience: float) -> T:
    """`in_thread`, but ended from outside: by `stop`, after `patience` or when whoever waits is cancelled.

    TimeoutError or CancelledError then, when the thread has ended or has had its time for it.
    """
    running = asyncio.ensure_future(in_thread(function))
    # What it says after it was given up is of no use to anybody.
    running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    try:
        async with asyncio.timeout(patience):
            return await asyncio.shield(running)
    except (TimeoutError, asyncio.CancelledError):
        if not running.done():
            with suppress(Exception):
                await in_thread(stop)
            await asyncio.wait([running], timeout=STOP_SECONDS)
        raise
