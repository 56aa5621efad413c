"""Runs the event loop of a process with handlers, so that a task which a handler starts cannot end the process.

asyncio raises SystemExit and KeyboardInterrupt of a task twice: where the task is awaited, and out of the event loop,
which stops everything in it. The first is enough here: the handler that awaits the task fails.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from sereno.telemetry.log_events import emit


def run_loop(main: Coroutine[Any, Any, None], make: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
    """Run `main` to its end, as `asyncio.run` does, but continue when another task raises SystemExit."""
    with asyncio.Runner(loop_factory=make) as runner:
        loop = runner.get_loop()
        task = loop.create_task(main)
        while True:
            try:
                return loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt) as error:
                if task.done() or _may_be_a_signal(error):
                    raise
                # The loop is stopped, not closed: callbacks that were ready still run when it is started again.
                message = f"a task that a handler started raised {type(error).__name__}; the worker continues"
                emit(logging.ERROR, "handler.exit", message)


def _may_be_a_signal(error: BaseException) -> bool:
    """Return whether Ctrl-C may have raised this, because no handler for SIGINT is installed yet."""
    return isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, at most `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
