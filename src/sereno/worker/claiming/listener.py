"""Receives NOTIFY: jobs are ready, a job is to be cancelled, a schedule or the clock changed.

A notification is only a hint: every receiver also polls.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping

import psycopg

from sereno.database.connect import BROKEN, open_async
from sereno.settings import Settings
from sereno.telemetry.log_events import emit

# Seconds: between two pings, until a ping counts as failed, and between two tries to connect at most.
PING_EVERY = 10.0
PING_TIMEOUT = 5.0
LONGEST_PAUSE = 5.0


class Listener:
    """Listens on its own connection, pings it, and reconnects after any error.

    `on_connected` is called after each connect, because notifications may have been missed.
    """

    def __init__(
        self,
        url: str,
        settings: Settings,
        handlers: Mapping[str, Callable[[str], None]],
        on_connected: Callable[[], None],
    ) -> None:
        self._url = url
        self._settings = settings
        # The handler of each channel; it gets the payload.
        self._handlers = handlers
        self._on_connected = on_connected
        self._task: asyncio.Task[None] | None = None
        self._failures = 0

    @staticmethod
    def is_wanted(settings: Settings) -> bool:
        """Return whether to listen: LISTEN does not work through a transaction pooler, which shares connections."""
        return settings.notify and not settings.transaction_pooler

    def start(self) -> None:
        if self.is_wanted(self._settings):
            self._task = asyncio.create_task(self._loop(), name="sereno listener")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _loop(self) -> None:
        while True:
            try:
                async with asyncio.timeout(PING_TIMEOUT):
                    connection = await open_async(self._url, self._settings, "listener")
                async with connection:
                    await self._listen(connection)
            except BROKEN as error:
                self._failures += 1
                if self._failures == 1:
                    emit(logging.WARNING, "listener.lost", f"listener: {error}; polling meanwhile")
            await asyncio.sleep(min(LONGEST_PAUSE, 0.1 * 2 ** min(self._failures, 10)) * random.uniform(0.5, 1.0))  # noqa: S311

    async def _listen(self, connection: psycopg.AsyncConnection) -> None:
        schema = self._settings.schema
        async with asyncio.timeout(PING_TIMEOUT):
            await connection.execute("; ".join(f'listen "{schema}.{channel}"' for channel in self._handlers))
        self._failures = 0
        self._on_connected()
        while True:
            async for notice in connection.notifies(timeout=PING_EVERY):
                self._dispatch(notice)
            async with asyncio.timeout(PING_TIMEOUT):
                await connection.execute("select pg_listening_channels()")

    def _dispatch(self, notice: psycopg.Notify) -> None:
        self._handlers[notice.channel.rpartition(".")[2]](notice.payload)


def with_id(handle: Callable[[int], None]) -> Callable[[str], None]:
    """Return the handler of a notification about a job; any role can send one, so the payload may be anything."""
    return lambda payload: handle(int(payload)) if payload.isdecimal() else None
