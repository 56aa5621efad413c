"""The preference centre for the API and for the pages: who a token names, what they see, and what they change."""

import time
from http import HTTPStatus
from typing import TypeVar

from sereno.database.statement import Operation
from sereno.errors import ConfigurationError
from sereno.notifications import event_types
from sereno.notifications import operations as notifications
from sereno.notifications.recipients import address_requests, address_token
from sereno.notifications.recipients.address_confirmation import CHANNEL, EVENT
from sereno.notifications.recipients.address_requests import TooManyRequests
from sereno.notifications.recipients.address_token import AddressClaim
from sereno.notifications.recipients.message_kind import MessageKind
from sereno.notifications.recipients.preference_centre import (
    PreferenceCentre,
    PreferenceChanges,
    audit_detail,
    change_centre,
    read_centre,
)
from sereno.notifications.recipients.preference_token import PreferenceOwner, read_token
from sereno.server.shared.authenticator import CURRENT_SHARE, tenant_share
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError, not_found
from sereno.server.shared.request_rate import RequestRate

# Requests of one recipient in a minute. A person needs a few; more is a program, or a link that was published.
MOST_REQUESTS = 60
# The share of database reads of all recipients without a tenant.
RECIPIENTS = ("all", "recipients")
T = TypeVar("T")

INVALID = "this preference token is invalid: request a new one from the application"
OF_MESSAGE = "the link of a message does not open this: sign in to the application, and open the preferences there"
EXPIRED = "this preference token has expired: request a new one from the application"


class ExpiredToken(HTTPError):  # noqa: N818 - named for what happened
    """401 for a token that was valid."""

    def __init__(self) -> None:
        super().__init__(HTTPStatus.UNAUTHORIZED, EXPIRED, {"WWW-Authenticate": "Bearer"})


class PreferenceAccess:
    """Reads and changes the preferences of the recipient whom a token names."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._rate = RequestRate(MOST_REQUESTS)

    def owner(self, token: str, *, is_change: bool) -> PreferenceOwner:
        """Return whom the token names: 401 for an invalid or expired one, 429 above the rate."""
        secret = self._context.settings.secret
        owner = None if secret is None else read_token(secret, token)
        if owner is None:
            raise HTTPError(HTTPStatus.UNAUTHORIZED, INVALID, {"WWW-Authenticate": "Bearer"})
        if owner.until <= time.time():
            raise ExpiredToken
        self._admit(owner.tenant, owner.recipient, is_change=is_change)
        return owner

    def _admit(self, tenant: str | None, recipient: str, *, is_change: bool) -> None:
        """Count a request of a recipient; refuse one above the rate, and a change on a read-only server."""
        self._rate.check((tenant, recipient))
        if is_change and self._context.settings.read_only:
            raise HTTPError(HTTPStatus.FORBIDDEN, "this server is read-only: SERENO_READ_ONLY is set")
        CURRENT_SHARE.set(RECIPIENTS if tenant is None else tenant_share(tenant))

    async def read(self, key: str, tenant: str | None, *, may_add: bool) -> PreferenceCentre:
        """Return what the recipient sees; 404 if there is no such recipient. `may_add`: whether they add addresses."""
        return await self._context.read(_or_not_found(self._read(key, tenant, may_add), key))

    async def change(
        self, key: str, tenant: str | None, changes: PreferenceChanges, *, may_add: bool, actor: str | None = None
    ) -> PreferenceCentre:
        """Apply the changes, and return what the recipient sees then. `actor`: an admin; None for the recipient."""
        return await self._context.change(_or_not_found(self._change(key, tenant, changes, may_add, actor), key))

    async def request_address(
        self, key: str, tenant: str | None, address: str, language: str, *, actor: str | None = None
    ) -> None:
        """Send a confirmation message to the address; 404 where none can be added, 429 above the rate.

        The caller has checked that the token allows it.
        """
        try:
            await self._context.change(_or_not_found(self._request(key, tenant, address, language, actor), key))
        except TooManyRequests as error:
            raise HTTPError(HTTPStatus.TOO_MANY_REQUESTS, str(error), {"Retry-After": "3600"}) from None

    def claim(self, token: str, *, is_change: bool) -> AddressClaim:
        """Return what the link of a confirmation message names: 401 for an invalid or expired one."""
        secret = self._context.settings.secret
        claim = None if secret is None else address_token.read_token(secret, token)
        if claim is None:
            raise HTTPError(HTTPStatus.UNAUTHORIZED, INVALID, {"WWW-Authenticate": "Bearer"})
        if claim.until <= time.time():
            raise ExpiredToken
        self._admit(claim.tenant, claim.recipient, is_change=is_change)
        return claim

    async def confirm_address(self, claim: AddressClaim) -> None:
        """Use the address from now on; 404 if it cannot be confirmed any more."""
        if not await self._context.change(address_requests.confirm_address(claim)):
            raise not_found("address that waits for this confirmation")

    def _request(self, key: str, tenant: str | None, address: str, language: str, actor: str | None) -> Operation[None]:
        _, can_add = yield from self._kinds()
        if not can_add:
            raise not_found("message that confirms addresses: declare it with app.confirm_addresses(…)")
        yield from address_requests.request_address(key, address, tenant=tenant, language=language, actor=actor)

    def _read(self, key: str, tenant: str | None, may_add: bool) -> Operation[PreferenceCentre]:
        kinds, can_add = yield from self._kinds()
        return (yield from read_centre(key, kinds, tenant=tenant, can_add=can_add if may_add else ()))

    def _change(
        self, key: str, tenant: str | None, changes: PreferenceChanges, may_add: bool, actor: str | None
    ) -> Operation[PreferenceCentre]:
        kinds, can_add = yield from self._kinds()
        found = yield from change_centre(key, changes, kinds, tenant=tenant, can_add=can_add if may_add else ())
        if actor is not None:
            detail = audit_detail(changes, tenant)
            yield from notifications.record_audit("recipient.prefer", f"recipient {key}", detail, actor=actor)
        return found

    def _kinds(self) -> Operation[tuple[list[MessageKind], list[str]]]:
        """Return the event types that this code declares, and those that workers of other services have declared.

        And the channels whose addresses recipients can add: a worker has declared the message that confirms them.
        """
        stored = yield from event_types.message_kinds()
        confirming = [each for each in stored if each.name == EVENT and CHANNEL in each.channels]
        can_add = [CHANNEL] if confirming and self._context.settings.public_url is not None else []
        notifying = self._context.app.notifications
        own = [event_types.kind_of(each, notifying.channels.resolve) for each in notifying.definitions.values()]
        known = {each.name: each for each in (*stored, *own)}
        return [each for each in known.values() if each.listed], can_add


def _or_not_found(operation: Operation[T], key: str) -> Operation[T]:
    try:
        return (yield from operation)
    except ConfigurationError:
        raise not_found(f"recipient {key!r:.80}") from None
