"""Unsubscribe links of messages."""

from sereno.database.database import Database
from sereno.notifications.deliveries.store import ClaimedDelivery, ClaimedEvent
from sereno.notifications.recipients.unsubscribe import Unsubscribe, make_token

PATH = "/unsubscribe/"


class UnsubscribeLinks:
    """Creates the links if the settings `public_url` (base of the link) and `secret` (signature) are set."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, channel: str, taken: ClaimedDelivery, event: ClaimedEvent) -> str | None:
        """Return the link for the message of one delivery."""
        who = (taken.tenant, taken.recipient, channel, taken.address_id)
        return self.link(*who, event.category, event=event.type, critical=event.critical)

    def link(
        self,
        tenant: str | None,
        recipient: str,
        channel: str,
        address: int | None,
        category: str | None,
        *,
        event: str | None = None,
        critical: bool = False,
    ) -> str | None:
        """Return the link; None without the two settings, for a critical event, or without an address.

        A critical event cannot be unsubscribed. A delivery without an address goes to the inbox of the application, and
        is controlled by preferences.
        """
        settings = self._database.settings
        if settings.public_url is None or settings.secret is None or address is None or critical:
            return None
        token = make_token(settings.secret, Unsubscribe(tenant, recipient, channel, address, category, event))
        return None if token is None else f"{settings.public_url}{PATH}{token}"
