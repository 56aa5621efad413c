"""`app.recipients` and `app.inbox`: recipients with addresses and preferences, and their messages in the application.

Every method has an async twin with the prefix `a`. `conn`: the caller's connection, to commit with the caller's rows.
"""

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from sereno.channels.registry import LONGEST_ADDRESS, Channels
from sereno.database.client import DatabaseClient
from sereno.database.database import Database
from sereno.database.json_values import stored
from sereno.database.statement import Operation
from sereno.duration import Duration, seconds
from sereno.errors import ConfigurationError, InvalidAddress, InvalidArguments
from sereno.notifications.recipients import inbox_queries, inbox_token, store
from sereno.notifications.recipients.operations import PreferenceData, prefer
from sereno.notifications.recipients.preference_links import PreferenceLinks
from sereno.notifications.recipients.rows import InboxRow, Mark
from sereno.notifications.recipients.unsubscribe import read_token
from sereno.text import check_text
from sereno.zones import zone as find_zone

# Messages on one page of an inbox.
PAGE = 50
# Largest JSON in bytes that is stored with a recipient.
LARGEST_DATA = 64 * 1024
# Longest lifetime of an inbox token in seconds. Access for longer should use the application's own login.
LONGEST_TOKEN_LIFE = 366 * 86400

# A string, or a mapping with additional keys: {"address": "https://…", "secrets": ["whsec_…"]}.
Address = str | Mapping[str, Any]


class RecipientData(TypedDict, total=False):
    """Properties of a recipient; omitted ones do not change."""

    tenant: str | None
    locale: str | None
    zone: str | None
    data: Mapping[str, Any] | None


class Recipients(DatabaseClient):
    """Recipients of notifications, identified by a key of the application."""

    def __init__(self, database: Database, channels: Channels) -> None:
        super().__init__(database)
        self._channels = channels
        self._links = PreferenceLinks(database)

    def upsert(
        self,
        key: str,
        addresses: Mapping[str, Address | Sequence[Address]] | None = None,
        *,
        conn: Any = None,
        **person: Unpack[RecipientData],
    ) -> int:
        """Create the recipient or update the given fields: `upsert("user:7", {"email": "a@b.lv"}, zone="Europe/Riga")`.

        An address that is given again becomes active again, unless the recipient unsubscribed it. Return the id.
        """
        return self._run(self._upsert(key, addresses or {}, person), conn)

    async def aupsert(
        self,
        key: str,
        addresses: Mapping[str, Address | Sequence[Address]] | None = None,
        *,
        conn: Any = None,
        **person: Unpack[RecipientData],
    ) -> int:
        return await self._arun(self._upsert(key, addresses or {}, person), conn)

    def prefer(self, key: str | None, *, conn: Any = None, **wish: Unpack[PreferenceData]) -> None:
        """Set a preference of a recipient, or without a key the default of the tenant. The most specific one wins.

        Given fields change, omitted fields stay, and None removes a field.
        """
        if not self._run(prefer(key, wish), conn):
            raise _unknown_recipient(key)

    async def aprefer(self, key: str | None, *, conn: Any = None, **wish: Unpack[PreferenceData]) -> None:
        if not await self._arun(prefer(key, wish), conn):
            raise _unknown_recipient(key)

    def unsubscribe(
        self,
        key: str,
        channel: str,
        address: str,
        *,
        tenant: str | None = None,
        reason: str | None = None,
        conn: Any = None,
    ) -> bool:
        """Never send to this address again, regardless of preferences. Return whether the address exists."""
        return self._run(self._unsubscribe(key, channel, address, tenant, reason), conn)

    async def aunsubscribe(
        self,
        key: str,
        channel: str,
        address: str,
        *,
        tenant: str | None = None,
        reason: str | None = None,
        conn: Any = None,
    ) -> bool:
        return await self._arun(self._unsubscribe(key, channel, address, tenant, reason), conn)

    def unsubscribe_with(self, token: str, *, conn: Any = None) -> bool:
        """Apply an unsubscribe link: turn off its category on its channel, or without a category its address.

        Idempotent. Return False if the recipient or the address no longer exists; raise InvalidArguments for an
        invalid token.
        """
        return self._run(self._unsubscribe_with(token), conn)

    async def aunsubscribe_with(self, token: str, *, conn: Any = None) -> bool:
        return await self._arun(self._unsubscribe_with(token), conn)

    def preferences_url(self, key: str, *, tenant: str | None = None, expires_in: Duration = "12h") -> str:
        """Return a link to the recipient's page of the preference centre, which needs no sign-in until it expires.

        Requires the settings `public_url` and `secret`. Messages carry a link of their own.
        """
        return self._links.url(key, tenant, expires_in)

    def preferences_token(self, key: str, *, tenant: str | None = None, expires_in: Duration = "12h") -> str:
        """Return a token for `<sereno-preferences>` and the server's `/preference-centre`, of this recipient only.

        Give it to a client that has signed in to your application as this recipient. Requires the setting `secret`.
        """
        return self._links.token(key, tenant, expires_in)

    def delete(self, key: str, *, tenant: str | None = None, conn: Any = None) -> bool:
        """Delete the recipient with addresses, preferences and inbox. Return whether it existed."""
        return self._run(store.delete(key, tenant=tenant), conn)

    async def adelete(self, key: str, *, tenant: str | None = None, conn: Any = None) -> bool:
        return await self._arun(store.delete(key, tenant=tenant), conn)

    def _upsert(
        self, key: str, addresses: Mapping[str, Address | Sequence[Address]], person: RecipientData
    ) -> Operation[int]:
        check_text("key", key)
        check_text("tenant", person.get("tenant"))
        if (name := person.get("zone")) is not None:
            find_zone(name)
        _check_data(person.get("data"))
        rows = [
            self._address(channel, each)
            for channel, given in addresses.items()
            for each in ([given] if isinstance(given, str | Mapping) else given)
        ]
        return store.upsert(
            key,
            tenant=person.get("tenant"),
            locale=person.get("locale"),
            zone=person.get("zone"),
            data=person.get("data"),
            addresses=rows,
        )

    def _unsubscribe(
        self, key: str, channel: str, address: str, tenant: str | None, reason: str | None
    ) -> Operation[bool]:
        for name, value in (("key", key), ("channel", channel), ("tenant", tenant), ("reason", reason)):
            check_text(name, value)
        _check_stored(address)
        spellings = [address]
        # An address that the channel would reject today may have been stored earlier.
        with contextlib.suppress(InvalidAddress):
            spellings.append(self._channels.check_address(channel, address))
        return store.change_address(
            key, channel, spellings, tenant=tenant, state="unsubscribed", reason=reason or "by the recipient"
        )

    def _unsubscribe_with(self, token: str) -> Operation[bool]:
        secret = self._database.settings.secret
        if secret is None:
            raise ConfigurationError("unsubscribe links are signed: set SERENO_SECRET")
        return store.unsubscribe(read_token(secret, token), "by the link in a message")

    def _address(self, channel: str, given: Address) -> dict[str, Any]:
        more = {} if isinstance(given, str) else dict(given)
        text = given if isinstance(given, str) else more.pop("address", None)
        if not isinstance(text, str):
            raise InvalidArguments(f"an address of {channel} must be a string or {{'address': '…'}}")
        state = more.pop("state", "active")
        return {
            "channel": channel,
            "address": self._channels.check_address(channel, text),
            "keys": more or None,
            "state": state,
        }


class Inbox(DatabaseClient):
    """Messages of recipients inside the application."""

    def list(
        self,
        key: str,
        *,
        tenant: str | None = None,
        before: int | None = None,
        most: int = PAGE,
        archived: bool = False,
    ) -> "Sequence[InboxRow]":
        """Return messages, newest first; `before`: the last id of the previous page."""
        return self._run(inbox_queries.inbox(key, tenant=tenant, before=before, most=most, archived=archived), None)

    async def alist(
        self,
        key: str,
        *,
        tenant: str | None = None,
        before: int | None = None,
        most: int = PAGE,
        archived: bool = False,
    ) -> "Sequence[InboxRow]":
        return await self._arun(
            inbox_queries.inbox(key, tenant=tenant, before=before, most=most, archived=archived), None
        )

    def unread(self, key: str, *, tenant: str | None = None) -> int:
        """Return the number of unread messages, counted up to 1,000."""
        return self._run(inbox_queries.unread(key, tenant=tenant), None)

    async def aunread(self, key: str, *, tenant: str | None = None) -> int:
        return await self._arun(inbox_queries.unread(key, tenant=tenant), None)

    def mark(
        self,
        key: str,
        what: Mark,
        ids: Sequence[int] | None = None,
        *,
        tenant: str | None = None,
        conn: Any = None,
    ) -> int:
        """Mark these messages, or all, as seen, read or archived. Return the number of messages that changed."""
        return self._run(store.mark(key, what, ids, tenant=tenant), conn)

    async def amark(
        self,
        key: str,
        what: Mark,
        ids: Sequence[int] | None = None,
        *,
        tenant: str | None = None,
        conn: Any = None,
    ) -> int:
        return await self._arun(store.mark(key, what, ids, tenant=tenant), conn)

    def token(self, key: str, *, tenant: str | None = None, expires_in: Duration = "12h") -> str:
        """Return a token for the server's `/inbox` (`Authorization: Bearer …`); it gives access to this inbox only.

        Give it to a client that has signed in to your application as this recipient. Requires the setting `secret`.
        """
        check_text("key", key)
        check_text("tenant", tenant)
        secret, lasts = self._database.settings.secret, seconds(expires_in)
        if secret is None:
            raise ConfigurationError("inbox tokens are signed: set SERENO_SECRET")
        if not 0 < lasts <= LONGEST_TOKEN_LIFE:
            raise InvalidArguments(f"expires_in={expires_in!r:.60}: it must be positive and at most one year")
        return inbox_token.make_token(secret, inbox_token.InboxReader(tenant, key, math.ceil(time.time() + lasts)))


def _check_data(data: Mapping[str, Any] | None) -> None:
    if data is None:
        return
    size = len(stored(data, lambda why: InvalidArguments(f"data: {why}")))
    if size > LARGEST_DATA:
        raise InvalidArguments(
            f"data: {size:,} bytes, the limit is {LARGEST_DATA:,}; store the data elsewhere and only a reference here"
        )


def _check_stored(address: str) -> None:
    """Raise InvalidArguments if the text cannot be a stored address."""
    if not isinstance(address, str) or not address or len(address) > LONGEST_ADDRESS:
        raise InvalidArguments(f"address {address!r:.60} must be text of 1 to {LONGEST_ADDRESS:,} characters")
    stored(address, lambda why: InvalidArguments(f"address: {why}"))


def _unknown_recipient(key: str | None) -> InvalidArguments:
    return InvalidArguments(f"there is no recipient {key!r}: create it first with app.recipients.upsert(…)")
