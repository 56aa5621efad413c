"""Unmasked addresses for operators; every access is recorded in the audit log."""

from sereno.database.statement import Operation
from sereno.notifications import operations as notifications
from sereno.notifications.operations import DeliveryDetail, RecipientDetail


def reveal_recipient(found: RecipientDetail, *, actor: str | None = None) -> Operation[RecipientDetail]:
    """Return the recipient with unmasked addresses, and record the access."""
    row = found.recipient
    detail = {"tenant": row.tenant, "addresses": len(found.addresses)}
    yield from notifications.record_audit("recipient.reveal", f"recipient {row.key}", detail, actor=actor)
    return found


def reveal_delivery(found: DeliveryDetail, *, actor: str | None = None) -> Operation[DeliveryDetail]:
    """Return the delivery with its unmasked address, and record the access."""
    row = found.delivery
    detail = {"tenant": row.tenant, "recipient": row.recipient, "channel": row.channel}
    yield from notifications.record_audit("delivery.reveal", f"delivery {row.id}", detail, actor=actor)
    return found
