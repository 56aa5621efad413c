"""What moves, as a stream: whoever asks for `text/event-stream` hears of every change, at most once a second."""

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
from sereno.server.shared.change_feed import Change, ChangeFeed
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError

# A line now and then, so that nobody between us takes silence for an end.
SILENCE_SECONDS = 15.0
# Who asks is asked again so often: a token that was revoked hears no more.
TRUST_SECONDS = 5.0
# Then the browser connects anew.
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
        response_model=Change,
    )
    async def stream(request: Request, who: Who) -> Response | Change:
        """The figures of the house once; as `text/event-stream`, at every change.

        Somebody of a tenant hears that something has changed, and not what.
        """
        if EVENT_STREAM in request.headers.get("accept", ""):
            change_feed.check_place(who)
            return StreamingResponse(
                _told(context, change_feed, request, who), media_type=EVENT_STREAM, headers=HEADERS
            )
        return Change(0, None if who.tenant is not None else await context.read(snapshot()))

    return router


async def _told(
    context: ServerContext, change_feed: ChangeFeed, request: Request, who: Principal
) -> AsyncIterator[bytes]:
    last, began = 0, time.monotonic()
    asked = said = began
    yield b"retry: 2000\n\n"
    # A place that was free when the answer began may be taken by now: the client comes again.
    with suppress(HTTPError), change_feed.listening(who):
        while not change_feed.is_ended and time.monotonic() < began + LONGEST_SECONDS:
            beat = await change_feed.next(last, TRUST_SECONDS)
            now = time.monotonic()
            if now > asked + TRUST_SECONDS:
                asked = now
                try:
                    if await context.authenticator.who(request) is None:
                        return
                except BUSY:
                    # Whoever was let in hears that the database does not answer, as everybody does.
                    pass
            if beat is not None:
                last, said = beat.number, now
                shown = Change(beat.number, None, beat.answers) if who.tenant is not None else beat
                yield b"event: now\nid: %d\ndata: %s\n\n" % (beat.number, msgspec.json.encode(shown))
            elif now > said + SILENCE_SECONDS:
                said = now
                yield b": nothing new\n\n"
