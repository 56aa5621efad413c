"""The dashboard and API inside a Litestar application.

    dashboard = asgi(app)
    web = Litestar([mount("/sereno", dashboard)], lifespan=[lifespan(app, server=dashboard)])

Litestar's own mount changes slashes in paths; this one passes the requested path unchanged.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from litestar.handlers import ASGIRouteHandler
from litestar.handlers import asgi as route
from litestar.types import Guard, Receive, Scope, Send

from sereno.contrib.asgi import Asgi, MountedServer, lifespan

__all__ = ["lifespan", "mount"]


def mount(path: str, server: Asgi, *, guards: Sequence[Guard] | None = None) -> ASGIRouteHandler:
    """Return a route handler for everything under the path. `guards`: Litestar guards, as for any handler."""
    mounted = MountedServer(server, path)

    # Without is_static, Litestar adds a slash to every path.
    @route(path, is_static=True, copy_scope=True, guards=guards)
    async def dashboard(scope: Scope, receive: Receive, send: Send) -> None:
        whole: Any = {**scope, "path": _whole_path(scope, path)}
        if not mounted.covers(whole):
            # Litestar also routes /serenopark here.
            await _not_found(send)
            return
        await mounted(whole, receive, send)  # type: ignore[arg-type]  # Litestar's types are narrower than those of ASGI

    return dashboard


def _whole_path(scope: Scope, path: str) -> str:
    """Return the requested path: Litestar removes slashes and our prefix from it."""
    raw = scope.get("raw_path")
    if raw:
        return unquote(raw.partition(b"?")[0].decode("latin-1"))
    return f"{scope.get('root_path', '').rstrip('/')}{path}{scope['path']}"


async def _not_found(send: Send) -> None:
    headers = [(b"content-type", b"text/plain"), (b"x-content-type-options", b"nosniff")]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": b"Not Found", "more_body": False})
