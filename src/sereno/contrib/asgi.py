"""Runs sereno inside an ASGI application (FastAPI, Starlette, Litestar, Django) and stops with it.

    dashboard = asgi(app)
    api = FastAPI(lifespan=lifespan(app, work=True, server=dashboard))
    api.mount("/sereno", dashboard)

Nothing is opened before the lifespan starts, so the web server may fork before that.
"""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from http import HTTPStatus
from types import FrameType
from typing import Any, Protocol

from sereno.app import Sereno

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


class Lifespan(Protocol):
    """The server that `sereno.server.asgi` returns; `end` closes its live streams."""

    async def end(self) -> None: ...


def lifespan(
    app: Sereno, *, work: bool = False, queues: Mapping[str, int] | None = None, server: Lifespan | None = None
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Return a lifespan for `FastAPI(lifespan=…)`, `Starlette(lifespan=…)` and `Litestar(lifespan=[…])`.

    It refuses to start if the database is unreachable or has no schema. `work`: run a worker in this process, and drain
    it at the end. `server`: the mounted server, whose live streams are closed when the process gets a stop signal.
    """

    @asynccontextmanager
    async def running(_: Any) -> AsyncIterator[None]:
        await asyncio.to_thread(app.check_schema)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(app.aclose)
            if server is not None:
                stack.enter_context(_end_on_signal(server))
                stack.push_async_callback(server.end)
            if work:
                await stack.enter_async_context(app.working(queues))
            yield

    return running


@contextmanager
def _end_on_signal(server: Lifespan) -> Iterator[None]:
    """End live streams on SIGTERM and SIGINT.

    Web servers wait for every response before they run the shutdown of the lifespan, and a live stream does not end by
    itself. So this installs signal handlers that end the streams and then call the previous handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    ending: set[asyncio.Task[None]] = set()
    others = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def end() -> None:
        ending.add(loop.create_task(server.end()))

    def on_signal(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(end)
        other = others[signal.Signals(number)]
        if callable(other):
            other(number, frame)

    # A signal without a handler ends the process at once, and its streams with it.
    handled = [number for number, other in others.items() if callable(other)]
    for number in handled:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number in handled:
            if signal.getsignal(number) is on_signal:
                signal.signal(number, others[number])


class MountedServer:
    """Mounts the server under a path, for frameworks that pass the whole path in the scope."""

    def __init__(self, server: Asgi, path: str) -> None:
        if not path.startswith("/") or path.endswith("/") or "//" in path:
            raise ValueError(f"{path!r} is not a valid mount path: write it like /sereno")
        self._server = server
        self.path = path

    def covers(self, scope: Scope) -> bool:
        """Return whether the requested path is under the mount path."""
        whole, base = scope["path"], self._base(scope)
        return bool(whole == base or whole.startswith(f"{base}/"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        base = self._base(scope)
        if scope["type"] == "http" and scope["path"] == base:
            # A relative redirect, like the links of the pages: the Host header cannot be trusted.
            query = scope.get("query_string", b"")
            await redirect(send, f"{base.rpartition('/')[2]}/" + (f"?{query.decode('latin-1')}" if query else ""))
            return
        await self._server({**scope, "root_path": base}, receive, send)

    def _base(self, scope: Scope) -> str:
        return f"{scope.get('root_path', '').rstrip('/')}{self.path}"


async def redirect(send: Send, to: str) -> None:
    """Send a redirect; `to` must be safe to write into a header."""
    headers = [(b"location", to.encode("latin-1")), (b"cache-control", b"no-store"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": HTTPStatus.TEMPORARY_REDIRECT.value, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
