"""The link to unsubscribe that a message carries."""

from sereno.database.database import Database
from sereno.notifications.deliveries.store import ClaimedDelivery, ClaimedEvent
from sereno.notifications.recipients.unsubscribe import Unsubscribe, make_token

PATH = "/unsubscribe/"


class UnsubscribeLinks:
    """Makes them, once the settings say where people reach us (`public_url`) and what to sign with (`secret`)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, channel: str, taken: ClaimedDelivery, event: ClaimedEvent) -> str | None:
        """For the message of one delivery."""
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
        """None without the two settings, and where it makes no sense.

        A critical message is not asked for, so nobody can end it. Without an address, it is told inside the
        application, which has switches of its own.
        """
        settings = self._database.settings
        if settings.public_url is None or settings.secret is None or address is None or critical:
            return None
        token = make_token(settings.secret, Unsubscribe(tenant, recipient, channel, address, category, event))
        return None if token is None else f"{settings.public_url}{PATH}{token}"
