"""Events, deliveries, recipients and channels as a person sees them: the rows of the read operations, by name."""

from datetime import datetime
from typing import Any

import msgspec

from sereno.notifications.recipients.preference import Preference
from sereno.notifications.recipients.quiet_hours import DAYS, QuietHours


class EventLine(msgspec.Struct, kw_only=True):
    """An event. `named`: how many recipients it names; None for all who want it. `walked`: up to whom it came."""

    id: int
    type: str
    tenant: str | None
    subject: str | None
    key: str | None
    category: str | None
    channels: list[str]
    named: int | None
    critical: bool
    opt_in: bool
    due_at: datetime
    expires_at: datetime | None
    created_at: datetime
    matched_at: datetime | None
    walked: int
    note: str | None


class EventRow(EventLine, kw_only=True):
    """With what it says, and the first of those whom it names."""

    payload: msgspec.Raw
    audience: list[str] | None = None


class DeliveryLine(msgspec.Struct, kw_only=True):
    """A delivery as a list shows it. `event`, `recipient`: None when that is gone."""

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
    """Everything that its own row holds, with its address and its event; `payload` is null when that is gone."""

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
    """What became of an event for one recipient."""

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


class ReceiptRow(msgspec.Struct, kw_only=True):
    """What a provider said later."""

    id: int
    receipt_id: str
    outcome: str
    code: str | None
    at: datetime


class RecipientLine(msgspec.Struct, kw_only=True):
    """Somebody, and by which channels they can be reached."""

    id: int
    key: str
    tenant: str | None
    locale: str | None
    zone: str | None
    created_at: datetime
    changed_at: datetime
    channels: list[str]


class RecipientRow(msgspec.Struct, kw_only=True):
    """Somebody, and what the application keeps with them."""

    id: int
    key: str
    tenant: str | None
    locale: str | None
    zone: str | None
    data: msgspec.Raw
    created_at: datetime
    changed_at: datetime


class AddressRow(msgspec.Struct, kw_only=True):
    """One way to reach somebody. `has_keys`: something belongs to it that is never shown."""

    id: int
    channel: str
    address: str
    has_keys: bool
    state: str
    reason: str | None
    created_at: datetime
    changed_at: datetime


class PreferenceRow(msgspec.Struct, kw_only=True):
    """What somebody wants, or a default of their tenant."""

    id: int
    tenant: str | None
    is_own: bool
    category: str | None
    event: str | None
    channel: str | None
    wanted: bool | None
    condition: dict[str, Any] | None
    quiet: list[dict[str, Any]] | None
    changed_at: datetime
    weight: int

    def preference(self, recipient: str) -> Preference:
        """As the domain decides by it."""
        return Preference(
            tenant=self.tenant,
            recipient=recipient if self.is_own else None,
            category=self.category,
            event=self.event,
            channel=self.channel,
            wanted=self.wanted,
            condition=self.condition,
            quiet=None if self.quiet is None else [_quiet(span) for span in self.quiet],
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
    """A channel that does not work; `account` is empty when it does not work for anybody."""

    channel: str
    account: str
    reason: str
    since: datetime


def _quiet(span: dict[str, Any]) -> QuietHours:
    days = span.get("days")
    return QuietHours(span["start"][:5], span["end"][:5], None if days is None else [DAYS[day - 1] for day in days])
