"""An application on a real socket, in a thread of its own. A run starts hundreds: they begin and end at once."""

import asyncio
import threading
from contextlib import suppress
from socket import socket
from typing import Any

import uvicorn

from tests.facts import until

# Seconds between two looks at the clock, and between two at whether everybody has been answered.
TICK = 0.1
PAUSE = 0.005


class Serving(uvicorn.Server):
    """Ends when it is told to, and not at its next look at the clock."""

    def __init__(self, application: Any, port: int = 0, **options: Any) -> None:
        # Whoever asks again after a while must not meet a server that hangs up at this very moment.
        # Proxy headers are ours to read, as under `sereno server`.
        options = {"timeout_keep_alive": 600, "proxy_headers": False, **options}
        super().__init__(uvicorn.Config(application, host="127.0.0.1", port=port, lifespan="off", **options))
        self._told = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self.serve()), daemon=True)
        self._thread.start()
        until(lambda: self.started)
        # Without a slash at its end.
        self.url = f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        """Whoever is being answered is answered first."""
        self.should_exit = True
        self.servers[0].get_loop().call_soon_threadsafe(self._told.set)
        self._thread.join(30)

    async def main_loop(self) -> None:
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), TICK)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:  # noqa: ARG002 - as uvicorn calls it
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - they do not tell
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()
