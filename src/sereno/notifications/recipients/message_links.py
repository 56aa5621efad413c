"""The links of one message, which need no sign-in: to unsubscribe, and to the recipient's preferences."""

from typing import NamedTuple

from sereno.database.database import Database
from sereno.notifications.deliveries.store import ClaimedDelivery, ClaimedEvent
from sereno.notifications.recipients.address_confirmation import EVENT, confirmation_url
from sereno.notifications.recipients.preference_links import PreferenceLinks
from sereno.notifications.recipients.unsubscribe_links import UnsubscribeLinks


class MessageLinks(NamedTuple):
    """Each is None where the message has no such link."""

    unsubscribe_url: str | None = None
    preferences_url: str | None = None
    confirmation_url: str | None = None


# Of messages of the inbox, and of all messages without the settings that links need.
NO_LINKS = MessageLinks()


class MessageLinker:
    """Creates the links of messages."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._unsubscribe = UnsubscribeLinks(database)
        self._preferences = PreferenceLinks(database)

    def of(self, channel: str, taken: ClaimedDelivery, event: ClaimedEvent) -> MessageLinks:
        """Return the links for the message of one delivery; none without the two settings that they need."""
        settings = self._database.settings
        if settings.public_url is None or settings.secret is None:
            return NO_LINKS
        if event.type == EVENT:
            # None to the preferences: the address may be of another person, who can only refuse messages.
            who = (taken.tenant, taken.recipient, channel, taken.address_id)
            url = confirmation_url(settings, channel, taken, event.payload)
            return MessageLinks(self._unsubscribe.link(*who, None), None, url)
        return MessageLinks(
            self._unsubscribe.of(channel, taken, event), self._preferences.of_message(taken.tenant, taken.recipient)
        )
