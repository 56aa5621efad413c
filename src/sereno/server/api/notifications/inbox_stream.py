"""The stream of an inbox: a client of `text/event-stream` gets changes within a second or two."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Request, Response
from fastapi.responses import StreamingResponse

from sereno.notifications.recipients.inbox_queries import exists, inbox_states
from sereno.notifications.recipients.rows import InboxState
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
        """The newest message and the number of unread ones, up to 100; as `text/event-stream`, at every change.

        A stream ends with its token. Above the limit of streams the response is 503, with Retry-After.
        """
        # A token of the application may name a recipient who does not exist before their first message.
        if owner.by is not None and not await context.read(exists(owner.key, tenant=owner.tenant)):
            raise not_found(f"recipient {owner.key!r:.60}")
        if EVENT_STREAM not in request.headers.get("accept", ""):
            return (await context.read(inbox_states([(owner.tenant, owner.key)])))[0]
        watch.check_place((owner.tenant, owner.key))

        async def is_still_theirs() -> bool:
            return await _is_still(owner, request, find_owner)

        events = _events(watch, owner, is_still_theirs)
        return StreamingResponse(events, media_type=EVENT_STREAM, headers=HEADERS)

    return router


async def _events(
    watch: InboxWatch, owner: InboxOwner, is_still_theirs: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    last, began = 0, time.monotonic()
    checked_at = sent_at = began
    # The quota may have been used up since the check; the client then reconnects.
    with suppress(HTTPError), watch.watching((owner.tenant, owner.key)) as box:
        yield b"retry: 2000\n\n"
        while not box.is_ended and time.monotonic() < began + LONGEST_SECONDS:
            change = await box.next(last, _timeout(owner))
            now = time.monotonic()
            # An expired token gets nothing more, not even a notice of a change.
            if _timeout(owner) <= 0:
                return
            if now > checked_at + TRUST_SECONDS:
                checked_at = now
                if not await is_still_theirs():
                    return
            if change is not None:
                # The number of this change: the inbox may have changed again since.
                (last, state), sent_at = change, now
                yield b"event: inbox\nid: %d\ndata: %s\n\n" % (last, msgspec.json.encode(state))
            elif now > sent_at + SILENCE_SECONDS:
                sent_at = now
                yield b": nothing new\n\n"


def _timeout(owner: InboxOwner) -> float:
    """Return the seconds until the next authentication, or until the token expires."""
    return TRUST_SECONDS if owner.until is None else min(TRUST_SECONDS, max(0.0, owner.until - time.time()))


async def _is_still(owner: InboxOwner, request: Request, find_owner: Callable[..., Any]) -> bool:
    """Return whether the request would still be authorized."""
    try:
        found: InboxOwner = await find_owner(request, recipient=owner.key, tenant=owner.tenant)
    except (HTTPError, *BUSY):
        return False
    return found == owner
