"""An ASGI application on a real socket: a mounted server, or one that restarts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.serving import Serving


@contextmanager
def running(application: Any, port: int = 0) -> Iterator[str]:
    """Yield the URL of the server, without a slash at its end; afterwards close open connections."""
    server = Serving(application, port, log_level="critical", timeout_graceful_shutdown=1)
    try:
        yield server.url
    finally:
        server.stop()
