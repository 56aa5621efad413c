"""Channels: list, pause and resume them."""

from dataclasses import dataclass
from http import HTTPStatus

from fastapi import Response
from pydantic import BaseModel

from sereno.notifications import operations as notifications
from sereno.server.api.bounds import Name
from sereno.server.api.paging import Page
from sereno.server.api.responses import json_response, one_transaction, page_model
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.text import check_text


class PauseChannel(BaseModel):
    """`reason`: shown with the pause. `account`: only messages that use the credentials of this tenant."""

    reason: Name
    account: Name | None = None


class ResumeChannel(BaseModel):
    """`account`: only this one; without it, all paused accounts."""

    account: Name | None = None


@dataclass
class ChannelPaused:
    """`changed`: false if it was already paused."""

    changed: bool


@dataclass
class ChannelResumed:
    """The resumed accounts; the empty one is the shared account. An empty list if it was not paused."""

    accounts: list[str]


def routes(context: ServerContext) -> Router:
    """`/channels`."""
    router = Router(context, "channels")

    @router.operation("GET", "/channels", role="viewer", response_model=page_model(notifications.ChannelState))
    async def list_channels() -> Response:
        """Channels that the application knows, that a recipient has an address for, or that were used lately."""
        found = await context.read(notifications.list_channels(list(context.app.channels.known)))
        return json_response(Page(found))

    @router.operation("POST", "/channels/{name}/pause", role="operator", also=[HTTPStatus.NOT_FOUND])
    async def pause(name: str, body: PauseChannel, who: Who) -> ChannelPaused:
        """Send nothing on this channel. New deliveries are created and wait; no attempts are used up."""
        changed = await context.change(
            notifications.pause_channel(name, body.reason, account=body.account, actor=who.actor)
        )
        return ChannelPaused(changed)

    @router.operation("POST", "/channels/{name}/resume", role="operator", also=[HTTPStatus.NOT_FOUND])
    async def resume(name: str, body: ResumeChannel, who: Who) -> ChannelResumed:
        """Send on this channel again, waiting deliveries included."""
        check_text("channel", name)
        check_text("account", body.account)
        async with one_transaction(context) as transaction:
            accounts: list[str] = await context.app.notifications.aresume(name, body.account, conn=transaction.conn)
            if accounts:
                detail = {"accounts": accounts}
                await transaction.run(
                    notifications.record_audit("channel.resume", f"channel {name}", detail, actor=who.actor)
                )
        return ChannelResumed(accounts)

    return router
