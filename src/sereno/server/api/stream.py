"""The stream of changes: a client of `text/event-stream` gets every change, at most once a second."""

import time
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec
from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from sereno.access.identity import Principal
from sereno.monitoring.snapshot import snapshot
from sereno.server.api.router import Router, Who
from sereno.server.shared.busy import BUSY
from sereno.server.shared.change_feed import ChangeFeed, DatabaseChange
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError

# Seconds of silence after which a comment line is sent, so that no proxy closes the connection.
SILENCE_SECONDS = 15.0
# Seconds of silence after which this stream says that the server is alive: a page counts the age of its data from it.
ALIVE_SECONDS = 3.0
# Seconds after which the client is authenticated again: a revoked token gets no more changes.
TRUST_SECONDS = 5.0
# Seconds after which the stream ends; the browser then reconnects.
LONGEST_SECONDS = 900.0
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
EVENT_STREAM = "text/event-stream"


def routes(context: ServerContext) -> Router:
    """`/stream`."""
    router = Router(context, "stream")
    change_feed = ChangeFeed(context)
    context.endings.append(change_feed.end)

    @router.operation(
        "GET",
        "/stream",
        role="viewer",
        of_tenants=True,
        responses={200: {"content": {EVENT_STREAM: {}}}},
        response_model=DatabaseChange,
    )
    async def stream(request: Request, who: Who) -> Response | DatabaseChange:
        """The current figures; as `text/event-stream`, at every change.

        A user of one tenant learns that something has changed, and not what.
        """
        if EVENT_STREAM in request.headers.get("accept", ""):
            change_feed.check_place(who)
            return StreamingResponse(
                _events(context, change_feed, request, who), media_type=EVENT_STREAM, headers=HEADERS
            )
        return DatabaseChange(0, None if who.tenant is not None else await context.read(snapshot()))

    return router


async def _events(
    context: ServerContext, change_feed: ChangeFeed, request: Request, who: Principal
) -> AsyncIterator[bytes]:
    last, began = 0, time.monotonic()
    checked_at = sent_at = began
    yield b"retry: 2000\n\n"
    # The quota may have been used up since the response began; the client then reconnects.
    with suppress(HTTPError), change_feed.listening(who):
        while not change_feed.is_ended and time.monotonic() < began + LONGEST_SECONDS:
            change = await change_feed.next(last, ALIVE_SECONDS)
            now = time.monotonic()
            if now > checked_at + TRUST_SECONDS:
                checked_at = now
                try:
                    if await context.authenticator.who(request) is None:
                        return
                except BUSY:
                    # A client that was authenticated before learns from the stream that the database is unavailable.
                    pass
            if change is not None:
                last, sent_at = change.number, now
                shown = DatabaseChange(change.number, None, change.is_available) if who.tenant is not None else change
                yield b"event: now\nid: %d\ndata: %s\n\n" % (change.number, msgspec.json.encode(shown))
            elif now >= sent_at + ALIVE_SECONDS:
                sent_at = now
                yield b"event: alive\ndata: {}\n\n"
