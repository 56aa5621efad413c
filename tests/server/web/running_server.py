"""Any application on a real socket: ours inside another, or one that comes back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.serving import Serving


@contextmanager
def running(application: Any, port: int = 0) -> Iterator[str]:
    """Its address, without a slash at the end. Whoever still listens when it ends is sent away."""
    server = Serving(application, port, log_level="critical", timeout_graceful_shutdown=1)
    try:
        yield server.url
    finally:
        server.stop()
