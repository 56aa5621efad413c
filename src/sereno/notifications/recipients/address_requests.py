"""Addresses that recipients add in the preference centre: requested there, confirmed by the link in a message."""

import time
import uuid

import msgspec

from sereno.channels.email_content import addr_spec
from sereno.database.statement import Operation, Statement, queries
from sereno.errors import ConfigurationError, SerenoError
from sereno.notifications.event_types import notify_declared
from sereno.notifications.operations import find_recipient, masked, record_audit
from sereno.notifications.recipients import store
from sereno.notifications.recipients.address_confirmation import CHANNEL, EVENT, LIFE_SECONDS, AddressConfirmation
from sereno.notifications.recipients.address_token import AddressClaim

_sql = queries("notifications/recipients/address_requests")

# Requests of one recipient in an hour, so that the page cannot be used to send mail to other people.
MOST_REQUESTS = 5
# Recipients for whom one address gets a message in an hour.
MOST_RECIPIENTS = 5
# The reason of an unverified address. The page does not show it: that would tell what the recipient had before.
REQUESTED = "requested in the preference centre"
# States of an address whose link can be opened, or was.
CONFIRMABLE = ("unverified", "active")


class TooManyRequests(SerenoError):  # noqa: N818 - named for what happened
    """The recipient has requested too many addresses in the last hour."""


def request_address(
    key: str, address: str, *, tenant: str | None, language: str, actor: str | None = None
) -> Operation[None]:
    """Send a confirmation message to the address, unless the recipient has it already; the caller cannot tell.

    The event is the record of the request, also where no message is sent. `actor`: an admin; None for the recipient.
    InvalidAddress if it is not an address; ConfigurationError without the recipient.
    """
    checked = addr_spec(address)
    # Locked, so that two requests at once are counted one after the other.
    if not (yield from store.lock(key, tenant=tenant)):
        raise ConfigurationError(f"there is no recipient {key!r:.80}")
    row = yield from find_recipient(key, tenant=tenant)
    place = {"type": EVENT, "tenant": tenant or "", "key": key}
    counted = yield Statement(_sql["recent_requests"], place)
    if counted[0][0] >= MOST_REQUESTS:
        raise TooManyRequests(f"a recipient can request {MOST_REQUESTS} addresses in an hour: try again later")
    about = {"recipient": row.id, "channel": CHANNEL, "address": checked, "reason": REQUESTED}
    yield Statement(_sql["forget_unconfirmed"], {**about, "life": LIFE_SECONDS})
    found = yield Statement(_sql["request"], {**about, "most": MOST_RECIPIENTS})
    asked = AddressConfirmation(
        address=found[0][0] if found else None, language=language, until=int(time.time()) + LIFE_SECONDS
    )
    yield from notify_declared(
        EVENT,
        msgspec.to_builtins(asked),
        to=[key],
        subject=key,
        key=uuid.uuid4().hex,
        tenant=tenant,
        at=None,
        ttl=None,
    )
    yield from _audit("recipient.request_address", key, checked, tenant, actor)


def confirm_address(claim: AddressClaim) -> Operation[bool]:
    """Use the address from now on. Idempotent; False if it is gone, refused by its owner or unreachable."""
    place = {"tenant": claim.tenant or "", "key": claim.recipient, "channel": claim.channel, "address": claim.address}
    rows = yield Statement(_sql["confirm"], place)
    before = rows[0][0] if rows else None
    if before == "unverified":
        yield from _audit("recipient.confirm_address", claim.recipient, claim.address, claim.tenant, None)
    return before in CONFIRMABLE


def _audit(action: str, key: str, address: str, tenant: str | None, actor: str | None) -> Operation[None]:
    detail = {"tenant": tenant, "channel": CHANNEL, "address": masked(address)}
    yield from record_audit(action, f"recipient {key}", detail, actor=actor or f"recipient {key}")
