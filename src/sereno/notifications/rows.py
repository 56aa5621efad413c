"""Row types of the read operations: events, deliveries, recipients and channels."""

from datetime import datetime
from typing import Any

import msgspec

from sereno.notifications.recipients.preference import Preference
from sereno.notifications.recipients.quiet_hours import DAYS, QuietHours


class EventLine(msgspec.Struct, kw_only=True):
    """An event. `named`: number of named recipients; None: a topic or all. `walked`: the last recipient fanned out."""

    id: int
    type: str
    tenant: str | None
    subject: str | None
    key: str | None
    category: str | None
    channels: list[str]
    named: int | None
    topic: str | None
    critical: bool
    opt_in: bool
    due_at: datetime
    expires_at: datetime | None
    created_at: datetime
    matched_at: datetime | None
    walked: int
    note: str | None
    rate: float | None
    cancelled_at: datetime | None


class EventRow(EventLine, kw_only=True):
    """An event with its payload and the first recipients that it names."""

    payload: msgspec.Raw
    audience: list[str] | None = None


class VariantTally(msgspec.Struct, kw_only=True):
    """Deliveries of an event with one variant of its message, by outcome.

    `sent`: accepted by the provider, also those that were delivered, read or bounced since; `delivered`: also those
    that were read. `failed`: bounced, failed, invalid, expired, dead or unknown.
    """

    variant: str
    deliveries: int
    sent: int
    delivered: int
    read: int
    failed: int


class DeliveryLine(msgspec.Struct, kw_only=True):
    """A delivery in a list. `event`, `recipient`: None when that row was deleted."""

    id: int
    state: str
    event: str | None
    event_id: int
    recipient: str | None
    channel: str
    tenant: str | None
    attempts: int
    due_at: datetime
    sent_at: datetime | None
    created_at: datetime
    changed_at: datetime
    reason: str | None
    error_code: str | None
    error_message: str | None


class DeliveryRow(DeliveryLine, kw_only=True):
    """A delivery with its address and event; `payload` is null when the event was deleted."""

    recipient_id: int
    address_id: int | None
    account: str | None
    expires_at: datetime | None
    unknowns: int
    job_id: int | None
    provider_id: str | None
    receipt_at: datetime | None
    address: str | None
    address_state: str | None
    address_reason: str | None
    subject: str | None
    event_key: str | None
    payload: msgspec.Raw


class DeliveryDetailRow(msgspec.Struct, kw_only=True):
    """A delivery of one recipient, for `why`. `queue`: of the jobs that send it, while it is pending."""

    id: int
    state: str
    event_id: int
    channel: str
    attempts: int
    due_at: datetime
    sent_at: datetime | None
    created_at: datetime
    changed_at: datetime
    reason: str | None
    error_code: str | None
    error_message: str | None
    expires_at: datetime | None
    job_id: int | None
    receipt_at: datetime | None
    account: str
    address: str | None
    queue: str | None = None
    # Belongs to a digest.
    is_collected: bool = False


class ReceiptRow(msgspec.Struct, kw_only=True):
    """A receipt from a provider."""

    id: int
    receipt_id: str
    outcome: str
    code: str | None
    at: datetime


class RecipientLine(msgspec.Struct, kw_only=True):
    """A recipient in a list, with the channels of its active addresses."""

    id: int
    key: str
    tenant: str | None
    locale: str | None
    zone: str | None
    created_at: datetime
    changed_at: datetime
    channels: list[str]


class RecipientRow(msgspec.Struct, kw_only=True):
    """A recipient with the data that the application stores with it."""

    id: int
    key: str
    tenant: str | None
    locale: str | None
    zone: str | None
    data: msgspec.Raw
    created_at: datetime
    changed_at: datetime


class AddressRow(msgspec.Struct, kw_only=True):
    """An address of a recipient. `has_keys`: it has secret keys, which are never shown."""

    id: int
    channel: str
    address: str
    has_keys: bool
    state: str
    reason: str | None
    created_at: datetime
    changed_at: datetime


class PreferenceRow(msgspec.Struct, kw_only=True):
    """A preference of a recipient, or a default of the tenant."""

    id: int
    tenant: str | None
    is_own: bool
    category: str | None
    event: str | None
    channel: str | None
    wanted: bool | None
    condition: dict[str, Any] | None
    quiet: list[dict[str, Any]] | None
    # Seconds for which messages of event types with a digest are collected.
    digest: float | None
    changed_at: datetime
    weight: int

    def preference(self, recipient: str) -> Preference:
        """Return it as the Preference that decisions use."""
        return Preference(
            tenant=self.tenant,
            recipient=recipient if self.is_own else None,
            category=self.category,
            event=self.event,
            channel=self.channel,
            wanted=self.wanted,
            condition=self.condition,
            quiet=None if self.quiet is None else [_quiet(span) for span in self.quiet],
            digest=self.digest,
        )


class ChannelLine(msgspec.Struct, kw_only=True):
    """A channel. `pending` is counted up to PENDING_BOUND; the others are counted among the newest deliveries."""

    channel: str
    is_known: bool
    pending: int
    sent: int
    failed: int
    unknown: int


class ChannelPause(msgspec.Struct, kw_only=True):
    """A paused channel; `account` is empty when the pause holds for all accounts."""

    channel: str
    account: str
    reason: str
    since: datetime


def _quiet(span: dict[str, Any]) -> QuietHours:
    days = span.get("days")
    return QuietHours(span["start"][:5], span["end"][:5], None if days is None else [DAYS[day - 1] for day in days])
