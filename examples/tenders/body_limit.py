"""Refuses requests with a large body."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
TOO_LARGE = 413


class BodyLimit:
    """ASGI middleware: at most `most` bytes of a body, whatever its header says."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body, is_complete = b"", False
        while not is_complete:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            is_complete = not message.get("more_body", False)
            if len(body) > self._most:
                await send({"type": "http.response.start", "status": TOO_LARGE, "headers": [(b"connection", b"close")]})
                await send({"type": "http.response.body", "body": b""})
                return
        waiting: list[Scope] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Scope:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, replay, send)
