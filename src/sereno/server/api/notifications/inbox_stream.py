"""What comes into an inbox, as a stream: whoever asks for `text/event-stream` hears of it within a second or two."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Request, Response
from fastapi.responses import StreamingResponse

from sereno.notifications.recipients.inboxes import InboxState, exists, standings
from sereno.server.api.notifications.inbox import InboxOwner, at, owner_of
from sereno.server.api.notifications.inbox_watch import InboxWatch
from sereno.server.api.router import Router
from sereno.server.api.stream import EVENT_STREAM, HEADERS, LONGEST_SECONDS, SILENCE_SECONDS, TRUST_SECONDS
from sereno.server.shared.busy import BUSY
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError, not_found


def routes(context: ServerContext) -> Router:
    """`/inbox/stream`."""
    router = Router(context, "inbox")
    watch = InboxWatch(context)
    context.endings.append(watch.end)
    find_owner = owner_of(context, is_change=False)

    @at(
        router,
        "GET",
        "/inbox/stream",
        shown={200: {"content": {EVENT_STREAM: {}}}},
        response_model=InboxState,
    )
    async def stream_inbox(
        request: Request, owner: Annotated[InboxOwner, Depends(find_owner)]
    ) -> Response | InboxState:
        """How many are unread, up to 100, and the newest; as `text/event-stream`, at every change.

        A stream ends with its token. Where too many listen it is declined, and Retry-After says for how long.
        """
        # Whom the application vouches for with a token may come before their first message does.
        if owner.by is not None and not await context.read(exists(owner.key, tenant=owner.tenant)):
            raise not_found(f"recipient {owner.key!r:.60}")
        if EVENT_STREAM not in request.headers.get("accept", ""):
            return (await context.read(standings([(owner.tenant, owner.key)])))[0]
        watch.check_place((owner.tenant, owner.key))

        async def is_still_theirs() -> bool:
            return await _is_still(owner, request, find_owner)

        told = _told(watch, owner, is_still_theirs)
        return StreamingResponse(told, media_type=EVENT_STREAM, headers=HEADERS)

    return router


async def _told(
    watch: InboxWatch, owner: InboxOwner, is_still_theirs: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    last, began = 0, time.monotonic()
    asked = said = began
    # Whoever found a place free, and somebody else in it a moment later, comes again.
    with suppress(HTTPError), watch.watching((owner.tenant, owner.key)) as box:
        yield b"retry: 2000\n\n"
        while not box.is_ended and time.monotonic() < began + LONGEST_SECONDS:
            change = await box.next(last, _patience(owner))
            now = time.monotonic()
            # A token that has ended hears no more, not even that there is something.
            if _patience(owner) <= 0:
                return
            if now > asked + TRUST_SECONDS:
                asked = now
                if not await is_still_theirs():
                    return
            if change is not None:
                # The number that came with it: it may have changed again since.
                (last, standing), said = change, now
                yield b"event: inbox\nid: %d\ndata: %s\n\n" % (last, msgspec.json.encode(standing))
            elif now > said + SILENCE_SECONDS:
                said = now
                yield b": nothing new\n\n"


def _patience(owner: InboxOwner) -> float:
    """Until somebody is asked again who they are, or until their token ends."""
    return TRUST_SECONDS if owner.until is None else min(TRUST_SECONDS, max(0.0, owner.until - time.time()))


async def _is_still(owner: InboxOwner, request: Request, find_owner: Callable[..., Any]) -> bool:
    """Whether whoever asked would be let in again."""
    try:
        found: InboxOwner = await find_owner(request, recipient=owner.key, tenant=owner.tenant)
    except (HTTPError, *BUSY):
        return False
    return found == owner
