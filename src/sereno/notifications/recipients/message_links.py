"""The links of one message, which need no sign-in: to unsubscribe, and to the recipient's preferences."""

from typing import NamedTuple

from sereno.database.database import Database
from sereno.notifications.deliveries.store import ClaimedDelivery, ClaimedEvent
from sereno.notifications.recipients.preference_links import PreferenceLinks
from sereno.notifications.recipients.unsubscribe_links import UnsubscribeLinks


class MessageLinks(NamedTuple):
    """Each is None where the message has no such link: messages of the inbox have none."""

    unsubscribe_url: str | None = None
    preferences_url: str | None = None


class MessageLinker:
    """Creates the links of messages."""

    def __init__(self, database: Database) -> None:
        self._unsubscribe = UnsubscribeLinks(database)
        self._preferences = PreferenceLinks(database)

    def of(self, channel: str, taken: ClaimedDelivery, event: ClaimedEvent) -> MessageLinks:
        """Return the links for the message of one delivery."""
        return MessageLinks(
            self._unsubscribe.of(channel, taken, event), self._preferences.of_message(taken.tenant, taken.recipient)
        )
