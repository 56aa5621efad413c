"""The templates of an application: files, read once, and rows, refreshed once a minute."""

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from sereno.database.database import Database
from sereno.errors import UnknownEvent
from sereno.notifications.deliveries.store import ClaimedDelivery, ClaimedEvent
from sereno.notifications.event import Content, EventDefinition, Recipient
from sereno.notifications.recipients.address_confirmation import EVENT, with_url
from sereno.notifications.recipients.message_links import MessageLinks
from sereno.notifications.templates import queries
from sereno.notifications.templates.templates import TemplateSet, directory_of
from sereno.notifications.variants import variant_of

# Seconds between two refreshes; sending many batches must not query for each.
FRESH_SECONDS = 60.0


class TemplateRenderer:
    """Renders messages from templates and from the functions of the code."""

    def __init__(self, database: Database, definitions: Mapping[str, EventDefinition]) -> None:
        self._database = database
        self._definitions = definitions
        self._templates: TemplateSet | None = None
        self._version: str | None = None
        self._read_at: float | None = None

    @property
    def templates(self) -> TemplateSet:
        if self._templates is None:
            self._templates = TemplateSet(directory_of(self._database.settings.templates))
        return self._templates

    async def refresh(self) -> None:
        """Read the rows if a minute has passed and they have changed."""
        before, now = self._read_at, time.monotonic()
        if before is not None:
            if now - before < FRESH_SECONDS:
                return
            # One coroutine refreshes; the others use the templates they have. The first time, all wait for the query.
            self._read_at = now
        try:
            version, rows = await self._database.arun(queries.read(self._version))
        except BaseException:
            self._read_at = before
            raise
        if rows is not None:
            self.templates.use_rows(rows)
        self._version, self._read_at = version, now

    def forget(self) -> None:
        """Make the next `refresh` read the rows again."""
        self._read_at = None

    def render(self, channel: str, taken: ClaimedDelivery, event: ClaimedEvent, links: MessageLinks) -> Content:
        """Return the message of a delivery, from a template or a function; UnknownEvent if its type is not declared."""
        definition = self._definitions.get(event.type)
        if definition is None:
            raise UnknownEvent(f"no event {event.type} is declared in this worker's code")
        recipient = Recipient(
            key=taken.recipient,
            tenant=taken.tenant,
            locale=taken.locale,
            unsubscribe_url=links.unsubscribe_url,
            preferences_url=links.preferences_url,
            variant=None if event.variants is None else variant_of(event.variants, taken.recipient_id),
        )
        if event.type == EVENT:
            return self._one(definition, channel, with_url(event.payload, links.confirmation_url), recipient)
        if len(taken.gathered) <= 1:
            return self._one(definition, channel, event.payload, recipient)
        gathered = definition.digest_content(channel, taken.gathered, recipient)
        if gathered is not None:
            return gathered
        first = self._one(definition, channel, taken.gathered[0], recipient)
        return Content(f"{first.title} (and {len(taken.gathered) - 1} more)", first.body, first.html, first.options)

    def _one(self, definition: EventDefinition, channel: str, payload: msgspec.Raw, recipient: Recipient) -> Content:
        if (own := definition.variant_template(channel, recipient.variant)) is not None:
            return own(definition.decode(payload), recipient)
        made = None
        # A function for this channel takes precedence; one for all channels is used only without a template.
        if channel not in definition.templates:
            made = self.content(channel, definition.name, payload, recipient)
        return made or definition.content(channel, payload, recipient)

    def content(self, channel: str, event: str, payload: msgspec.Raw | bytes, recipient: Recipient) -> Content | None:
        """Render an event with its template; None if there is none."""
        if not self.templates.has(event):
            return None
        values = msgspec.json.decode(payload, type=dict[str, Any])
        return self.templates.render(event, channel, recipient.locale, recipient.tenant, values, recipient)
