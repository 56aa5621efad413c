"""The server inside an application of Litestar.

    dashboard = asgi(app)
    web = Litestar([mount("/sereno", dashboard)], lifespan=[lifespan(app, server=dashboard)])

A plain mount of Litestar's changes every path a little; this one leaves them as they were asked for.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from litestar.handlers import ASGIRouteHandler
from litestar.handlers import asgi as route
from litestar.types import Guard, Receive, Scope, Send

from sereno.contrib.asgi import Asgi, MountedServer, lifespan

__all__ = ["lifespan", "mount"]


def mount(path: str, inside: Asgi, *, guards: Sequence[Guard] | None = None) -> ASGIRouteHandler:
    """A route handler for everything under the path. `guards`: as for any handler of yours."""
    mounted = MountedServer(inside, path)

    # Otherwise it adds a slash to every path.
    @route(path, is_static=True, copy_scope=True, guards=guards)
    async def dashboard(scope: Scope, receive: Receive, send: Send) -> None:
        whole: Any = {**scope, "path": _whole_path(scope, path)}
        if not mounted.covers(whole):
            # Litestar hands us /serenopark as well.
            await _nothing_here(send)
            return
        await mounted(whole, receive, send)  # type: ignore[arg-type]  # its types are narrower than those of ASGI

    return dashboard


def _whole_path(scope: Scope, path: str) -> str:
    """As it was asked for: Litestar takes slashes away, and leaves only what is behind ours."""
    raw = scope.get("raw_path")
    if raw:
        return unquote(raw.partition(b"?")[0].decode("latin-1"))
    return f"{scope.get('root_path', '').rstrip('/')}{path}{scope['path']}"


async def _nothing_here(send: Send) -> None:
    headers = [(b"content-type", b"text/plain"), (b"x-content-type-options", b"nosniff")]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": b"Not Found", "more_body": False})
