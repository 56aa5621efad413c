"""Any application on a real socket, in a thread of its own: ours inside another, or one that comes back."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from tests.facts import until


@contextmanager
def running(application: Any, port: int = 0) -> Iterator[str]:
    """Its address, without a slash at the end. Whoever still listens when it ends is sent away."""
    config = uvicorn.Config(
        application, host="127.0.0.1", port=port, log_level="critical", lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
