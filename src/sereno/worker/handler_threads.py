"""The threads of sync handlers, and the way of a call from the event loop to a thread and back.

To wake a thread, and then the event loop, costs more than a short handler. So calls wait in one queue, and a thread
that has ended a call takes the next one. While handlers are short, one thread is woken for all calls that wait, and
more only if calls still wait a millisecond later. While they are long, every call wakes a thread. Results return in one
queue too, and the event loop is woken once for all that it has not fetched.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple, final

# Seconds. Handlers that usually take less are short.
SHORT = 0.0001
# Seconds that a single handler counts with at most, so that a few long ones do not make all of them long, and the
# weight of the newest one in the average.
LONGEST_COUNTED = 0.001
WEIGHT = 0.05
# Seconds after which more threads are woken for calls that wait behind short handlers.
CHECK_AFTER = 0.001


@final
class RaisedError(NamedTuple):
    """What a sync handler raised, as a value: futures refuse StopIteration, and SystemExit ends the event loop."""

    error: BaseException


def call_safely(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of the function, or RaisedError with whatever it raises."""
    try:
        return function(*args)
    except BaseException as error:  # noqa: BLE001 - every way out of a handler is an outcome
        return RaisedError(error)


class ThreadCall:
    """One call that runs, or will run, in a thread."""

    __slots__ = ("_loop", "_result", "_waiter", "function", "has_ended", "is_dropped")

    def __init__(self, loop: asyncio.AbstractEventLoop, function: Callable[[], Any]) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None
        self._result: Any = None
        self.function = function
        self.has_ended = False
        # Its result is no longer wanted; a call that has not started never does.
        self.is_dropped = False

    async def result(self) -> Any:
        """Wait for the result, or RaisedError. After a cancellation it can be awaited again."""
        if not self.has_ended and not self.is_dropped:
            self._waiter = self._loop.create_future()
            await self._waiter
        if self.is_dropped:
            raise asyncio.CancelledError
        return self._result

    def run(self) -> None:
        """Call the function; in a thread."""
        self._result = call_safely(self.function)

    def end(self) -> None:
        """Wake the waiting task; in the event loop."""
        self.has_ended = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def drop(self) -> None:
        """Give the call up; in the event loop. A function that runs already is not stopped."""
        self.is_dropped = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.cancel()


class HandlerThreads:
    """At most `threads` threads, which are started when they are needed."""

    def __init__(self, threads: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="sereno")
        self._waiting: deque[ThreadCall] = deque()
        self._ended: deque[ThreadCall] = deque()
        self._lock = threading.Lock()
        # Threads that were woken and have not taken a call yet.
        self._coming = 0
        self._is_checking = False
        # Whether the event loop has been woken for ended calls and has not fetched them yet.
        self._is_announced = False
        # Average seconds of a handler; at first taken for long.
        self._usual = LONGEST_COUNTED

    def start(self, function: Callable[[], Any]) -> ThreadCall:
        """Call the function in a thread, as soon as one is free."""
        call = ThreadCall(self._loop, function)
        self._waiting.append(call)
        if self._usual > SHORT or not self._coming:
            self._wake(1)
        else:
            self._check_later()
        return call

    def close(self) -> None:
        """Drop the calls that wait. Threads end with the calls that they run."""
        while self._waiting:
            self._waiting.popleft().drop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _wake(self, threads: int) -> None:
        for _ in range(threads):
            with self._lock:
                self._coming += 1
            self._threads.submit(self._serve)

    def _check_later(self) -> None:
        if not self._is_checking:
            self._is_checking = True
            self._loop.call_later(CHECK_AFTER, self._check)

    def _check(self) -> None:
        """Wake a thread for each call that waits: the handlers in front of them are not short after all."""
        self._is_checking = False
        waiting = len(self._waiting)
        if waiting:
            self._wake(waiting - self._coming)
            self._check_later()

    def _serve(self) -> None:
        """Run calls until none waits; in a thread."""
        with self._lock:
            self._coming -= 1
        while True:
            try:
                call = self._waiting.popleft()
            except IndexError:
                return
            if call.is_dropped:
                continue
            began = monotonic()
            call.run()
            self._usual += WEIGHT * (min(monotonic() - began, LONGEST_COUNTED) - self._usual)
            self._ended.append(call)
            if not self._is_announced:
                self._is_announced = True
                # The loop may be closed by now.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._fetch)

    def _fetch(self) -> None:
        # First the mark, then the calls: one that ends meanwhile announces itself again.
        self._is_announced = False
        while self._ended:
            self._ended.popleft().end()
