"""CORS: pages of the origins in `inbox_origins` may use inboxes, preference centres and streams of jobs, nothing else.

Cookies never count there: such a page can read only what was requested with the token of one inbox, recipient or job.
"""

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

from sereno.jobs import job_token
from sereno.notifications.recipients import inbox_token, preference_token
from sereno.server.shared.context import ServerContext

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

PATHS = frozenset({"/api/v1/inbox", "/api/v1/inbox/unread", "/api/v1/inbox/mark", "/api/v1/inbox/stream"})
# Seconds for which a browser caches the preflight response.
REMEMBERED_SECONDS = 600
VARY = (b"vary", b"Origin")
PREFERENCES = "/api/v1/preference-centre"
_STREAM_OF_JOB = re.compile(r"/api/v1/jobs/[0-9]{1,19}/stream")


class OpenedPath(NamedTuple):
    """A path that pages of other origins may request: with tokens of this prefix, these methods and headers."""

    prefix: str
    methods: bytes
    headers: bytes


_INBOX = OpenedPath(inbox_token.PREFIX, b"GET, POST", b"Authorization, Content-Type")
_PREFERENCES = OpenedPath(preference_token.PREFIX, b"GET, PUT", b"Authorization, Content-Type")
_ADDRESSES = OpenedPath(preference_token.PREFIX, b"POST", b"Authorization, Content-Type")
_JOB = OpenedPath(job_token.PREFIX, b"GET", b"Authorization, Last-Event-ID")


class CrossOrigin:
    """Decides whether a page of another origin may send a request, and may read the response."""

    def __init__(self, inside: Asgi, context: ServerContext) -> None:
        self._inside = inside
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        opened = _opened(scope.get("path", "").removeprefix(scope.get("root_path", "")))
        if scope["type"] != "http" or opened is None:
            await self._inside(scope, receive, send)
            return
        headers_by_name = dict(scope["headers"])
        origin = headers_by_name.get(b"origin", b"")
        is_allowed = origin.decode("latin-1") in (self._context.settings.inbox_origins or ())
        if is_allowed and scope["method"] == "OPTIONS" and b"access-control-request-method" in headers_by_name:
            await _allow(origin, opened, send)
            return
        shown = f"bearer {opened.prefix}".encode()
        may_see = is_allowed and headers_by_name.get(b"authorization", b"").lower().startswith(shown)
        more = [VARY, *((_of(origin), (b"access-control-expose-headers", b"Retry-After")) if may_see else ())]

        async def send_with_headers(message: Scope) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        await self._inside(scope, receive, send_with_headers)


def _opened(path: str) -> OpenedPath | None:
    if path in PATHS:
        return _INBOX
    if path == PREFERENCES:
        return _PREFERENCES
    if path == f"{PREFERENCES}/addresses":
        return _ADDRESSES
    return _JOB if _STREAM_OF_JOB.fullmatch(path) else None


async def _allow(origin: bytes, opened: OpenedPath, send: Send) -> None:
    """Respond to the preflight request that a browser sends before a request with a token."""
    headers = [
        _of(origin),
        VARY,
        (b"access-control-allow-methods", opened.methods),
        (b"access-control-allow-headers", opened.headers),
        (b"access-control-max-age", b"%d" % REMEMBERED_SECONDS),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _of(origin: bytes) -> tuple[bytes, bytes]:
    return (b"access-control-allow-origin", origin)
