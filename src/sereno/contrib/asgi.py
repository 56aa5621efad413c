"""Inside an application of yours (FastAPI, Starlette, Litestar, Django): opened with it, closed with it.

    dashboard = asgi(app)
    api = FastAPI(lifespan=lifespan(app, work=True, server=dashboard))
    api.mount("/sereno", dashboard)

Nothing is open before it starts, so a server may fork as it likes before that.
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
    """A server as `sereno.server.application` makes it: told to, its streams end."""

    async def end(self) -> None: ...


def lifespan(
    app: Sereno, *, work: bool = False, queues: Mapping[str, int] | None = None, server: Lifespan | None = None
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """For `FastAPI(lifespan=…)`, `Starlette(lifespan=…)` and `Litestar(lifespan=[…])`.

    It refuses to start on a database that is away or has no schema. `work`: a worker runs in this process, and drains
    before it ends. `server`: the one that is mounted; its live streams end when the process is told to.
    """

    @asynccontextmanager
    async def running(_: Any) -> AsyncIterator[None]:
        await asyncio.to_thread(app.check_schema)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(app.aclose)
            if server is not None:
                stack.enter_context(_ends_when_told(server))
                stack.push_async_callback(server.end)
            if work:
                await stack.enter_async_context(app.working(queues))
            yield

    return running


@contextmanager
def _ends_when_told(server: Lifespan) -> Iterator[None]:
    """Servers wait for every answer before they tell us of the end, and a stream ends only when it is told.

    So we hear of the signal as well, before whoever has asked for it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    ending: set[asyncio.Task[None]] = set()
    others = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def end() -> None:
        ending.add(loop.create_task(server.end()))

    def told(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(end)
        other = others[signal.Signals(number)]
        if callable(other):
            other(number, frame)

    # A signal that nobody handles ends the process at once, and streams with it.
    heard = [number for number, other in others.items() if callable(other)]
    for number in heard:
        signal.signal(number, told)
    try:
        yield
    finally:
        for number in heard:
            if signal.getsignal(number) is told:
                signal.signal(number, others[number])


class MountedServer:
    """The server under a path, where nobody else says so: scopes come with the whole path in them."""

    def __init__(self, inside: Asgi, path: str) -> None:
        if not path.startswith("/") or path.endswith("/") or "//" in path:
            raise ValueError(f"{path!r} is no path to mount at: write it as in /sereno")
        self._inside = inside
        self.path = path

    def covers(self, scope: Scope) -> bool:
        """Whether it is asked for what is here."""
        whole, base = scope["path"], self._base(scope)
        return bool(whole == base or whole.startswith(f"{base}/"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        base = self._base(scope)
        if scope["type"] == "http" and scope["path"] == base:
            # The links of the pages are relative. So is this: the name of the host is only what somebody says.
            query = scope.get("query_string", b"")
            await redirect(send, f"{base.rpartition('/')[2]}/" + (f"?{query.decode('latin-1')}" if query else ""))
            return
        await self._inside({**scope, "root_path": base}, receive, send)

    def _base(self, scope: Scope) -> str:
        return f"{scope.get('root_path', '').rstrip('/')}{self.path}"


async def redirect(send: Send, to: str) -> None:
    """To an address that is safe to write into a header."""
    headers = [(b"location", to.encode("latin-1")), (b"cache-control", b"no-store"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": HTTPStatus.TEMPORARY_REDIRECT.value, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
