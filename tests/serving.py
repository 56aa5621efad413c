"""An application on a real socket, in its own thread. A test run starts hundreds, so they start and stop quickly."""

import asyncio
import threading
from contextlib import suppress
from socket import socket
from typing import Any

import uvicorn

from tests.facts import until

# Seconds between two ticks of uvicorn, and between two checks for open requests during a shutdown.
TICK = 0.1
PAUSE = 0.005


class Serving(uvicorn.Server):
    """Stops at once when it is told to, and not at its next tick."""

    def __init__(self, application: Any, port: int = 0, **options: Any) -> None:
        # A long keep-alive: a client that reuses its connection must not meet a server that closes it at that moment.
        # The application reads the proxy headers itself, as under `sereno server`.
        options = {"timeout_keep_alive": 600, "proxy_headers": False, **options}
        super().__init__(uvicorn.Config(application, host="127.0.0.1", port=port, lifespan="off", **options))
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self.serve()), daemon=True)
        self._thread.start()
        until(lambda: self.started)
        # Without a slash at the end.
        self.url = f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        """Finish open requests, then stop."""
        self.should_exit = True
        self.servers[0].get_loop().call_soon_threadsafe(self._stopping.set)
        self._thread.join(30)

    async def main_loop(self) -> None:
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), TICK)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:  # noqa: ARG002 - as uvicorn calls it
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - they have no event
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()
