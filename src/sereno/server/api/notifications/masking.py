"""Addresses and payloads as a role may see them."""

import msgspec

from sereno.access.identity import Principal
from sereno.access.masking import masked as hidden
from sereno.database.json_values import encoder
from sereno.notifications.operations import DeliveryDetail, RecipientDetail, masked
from sereno.notifications.rows import DeliveryLine


def recipient_shown(detail: RecipientDetail, who: Principal) -> RecipientDetail:
    for address in detail.addresses:
        address.address = masked(address.address)
    detail.recipient.data = payload_shown(detail.recipient.data, who)
    return detail


def delivery_shown(detail: DeliveryDetail, who: Principal) -> DeliveryDetail:
    if detail.delivery.address is not None:
        detail.delivery.address = masked(detail.delivery.address)
    detail.delivery.payload = payload_shown(detail.delivery.payload, who)
    line_shown(detail.delivery, who)
    return detail


def line_shown(line: DeliveryLine, who: Principal) -> DeliveryLine:
    """Mask the error message for viewers: a provider may repeat an address or a key in it."""
    if line.error_message is not None and not who.may("operator"):
        line.error_message = hidden(line.error_message)
    return line


def payload_shown(payload: msgspec.Raw, who: Principal) -> msgspec.Raw:
    """Return the payload, for viewers with likely secrets and addresses masked."""
    return payload if who.may("operator") else msgspec.Raw(encoder.encode(hidden(msgspec.json.decode(payload))))
