"""Tools about notifications: deliveries, and why a recipient was notified or was not."""

from typing import Any

from sereno.mcp.api_client import path_of
from sereno.mcp.toolset import Before, Call, Id, Limit, Name, Search, Seconds, Toolset


def add_notification_tools(tools: Toolset) -> None:
    """Add the tools about notifications."""
    api = tools.api

    @tools.reading
    async def search_deliveries(context: Call, q: Search = None, limit: Limit = 20, before: Before = None) -> Any:
        """Search deliveries of notifications, newest first, with the state and the reason of each.

        Terms of `q`: state:failed channel:email event:order.* created:2d.. Addresses are masked.
        """
        return await api.get(context, "/deliveries", q=q, limit=limit, before=before)

    @tools.reading
    async def show_delivery(context: Call, delivery_id: Id) -> Any:
        """Show one delivery: its event, its masked address, its attempts, its outcome and the provider's receipts."""
        return await api.get(context, path_of("deliveries", delivery_id))

    @tools.reading
    async def why_recipient(context: Call, key: Name, event: Name, tenant: Name | None = None) -> Any:
        """Explain why a recipient was notified of an event type, or was not."""
        return await api.get(context, path_of("recipients", key, "why"), event=event, tenant=tenant)

    @tools.reading
    async def delivery_figures(
        context: Call, since: Seconds = 86400, event: Name | None = None, channel: Name | None = None
    ) -> Any:
        """Show how many deliveries were matched, skipped and why, sent, delivered, read, or failed, by the hour."""
        return await api.get(context, "/figures/deliveries", since=since, event=event, channel=channel)
