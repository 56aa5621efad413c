"""The templates of an application: its files, read once, and the rows, looked at once a minute."""

import time
from typing import Any

import msgspec

from sereno.database.database import Database
from sereno.notifications.deliveries.store import ClaimedDelivery, ClaimedEvent
from sereno.notifications.event import Content, EventDefinition, Recipient
from sereno.notifications.templates import store
from sereno.notifications.templates.templates import TemplateSet, directory_of

# A dispatch of many batches does not ask for each of them.
FRESH_SECONDS = 60.0


class TemplateRenderer:
    """Knows the words of every event, as far as they are no functions."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._templates: TemplateSet | None = None
        self._version: str | None = None
        self._read_at: float | None = None

    @property
    def templates(self) -> TemplateSet:
        if self._templates is None:
            self._templates = TemplateSet(directory_of(self._database.settings.templates))
        return self._templates

    async def refresh(self) -> None:
        """Read the rows if a minute has gone by, and if they have changed."""
        before, now = self._read_at, time.monotonic()
        if before is not None:
            if now - before < FRESH_SECONDS:
                return
            # One goes and looks; meanwhile the others say what they know. The first time, nobody knows anything.
            self._read_at = now
        try:
            version, rows = await self._database.arun(store.read(self._version))
        except BaseException:
            self._read_at = before
            raise
        if rows is not None:
            self.templates.use_rows(rows)
        self._version, self._read_at = version, now

    def forget(self) -> None:
        """The next one looks at the rows again."""
        self._read_at = None

    def said(
        self,
        definition: EventDefinition,
        channel: str,
        taken: ClaimedDelivery,
        event: ClaimedEvent,
        unsubscribe_url: str | None,
    ) -> Content:
        """What the message of a delivery says, in whichever words there are for it."""
        recipient = Recipient(
            key=taken.recipient, tenant=taken.tenant, locale=taken.locale, unsubscribe_url=unsubscribe_url
        )
        if len(taken.gathered) <= 1:
            return self._one(definition, channel, event.payload, recipient)
        gathered = definition.digest_content(channel, taken.gathered, recipient)
        if gathered is not None:
            return gathered
        first = self._one(definition, channel, taken.gathered[0], recipient)
        return Content(f"{first.title} (and {len(taken.gathered) - 1} more)", first.body, first.html, first.options)

    def _one(self, definition: EventDefinition, channel: str, payload: msgspec.Raw, recipient: Recipient) -> Content:
        made = None
        # A function for this very channel goes first; one for all channels, only where there is no template.
        if channel not in definition.templates:
            made = self.content(channel, definition.name, payload, recipient)
        return made or definition.content(channel, payload, recipient)

    def content(self, channel: str, event: str, payload: msgspec.Raw | bytes, recipient: Recipient) -> Content | None:
        """What a delivery of an event of this type says; None if there is no template for it."""
        if not self.templates.has(event):
            return None
        values = msgspec.json.decode(payload, type=dict[str, Any])
        return self.templates.render(event, channel, recipient.locale, recipient.tenant, values, recipient)
