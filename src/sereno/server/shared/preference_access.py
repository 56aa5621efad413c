"""The preference centre for the API and for the page: who a token names, what they see, and what they change."""

import time
from http import HTTPStatus

from sereno.database.statement import Operation
from sereno.errors import ConfigurationError
from sereno.notifications import event_types
from sereno.notifications import operations as notifications
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
INVALID = "this preference token is invalid: request a new one from the application"
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
        self._rate.check((owner.tenant, owner.recipient))
        if is_change and self._context.settings.read_only:
            raise HTTPError(HTTPStatus.FORBIDDEN, "this server is read-only: SERENO_READ_ONLY is set")
        CURRENT_SHARE.set(RECIPIENTS if owner.tenant is None else tenant_share(owner.tenant))
        return owner

    async def read(self, key: str, tenant: str | None) -> PreferenceCentre:
        """Return what the recipient sees; 404 if there is no such recipient."""
        return await self._context.read(_or_not_found(self._read(key, tenant), key))

    async def change(
        self, key: str, tenant: str | None, changes: PreferenceChanges, *, actor: str | None = None
    ) -> PreferenceCentre:
        """Apply the changes, and return what the recipient sees then. `actor`: an admin; None for the recipient."""
        return await self._context.change(_or_not_found(self._change(key, tenant, changes, actor), key))

    def _read(self, key: str, tenant: str | None) -> Operation[PreferenceCentre]:
        kinds = yield from self._kinds()
        return (yield from read_centre(key, kinds, tenant=tenant))

    def _change(
        self, key: str, tenant: str | None, changes: PreferenceChanges, actor: str | None
    ) -> Operation[PreferenceCentre]:
        kinds = yield from self._kinds()
        found = yield from change_centre(key, changes, kinds, tenant=tenant)
        if actor is not None:
            detail = audit_detail(changes, tenant)
            yield from notifications.record_audit("recipient.prefer", f"recipient {key}", detail, actor=actor)
        return found

    def _kinds(self) -> Operation[list[MessageKind]]:
        """Return the event types that this code declares, and those that workers of other services have declared."""
        stored = yield from event_types.message_kinds()
        notifying = self._context.app.notifications
        own = [event_types.kind_of(each, notifying.channels.resolve) for each in notifying.definitions.values()]
        known = {each.name: each for each in (*stored, *own)}
        return [each for each in known.values() if each.listed]


def _or_not_found(operation: Operation[PreferenceCentre], key: str) -> Operation[PreferenceCentre]:
    try:
        return (yield from operation)
    except ConfigurationError:
        raise not_found(f"recipient {key!r:.80}") from None
