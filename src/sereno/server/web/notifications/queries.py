"""Queries that return None for a missing row: the page says so itself."""

from sereno.database.statement import Operation
from sereno.errors import ConfigurationError
from sereno.jobs.filters import DeliveryFilter
from sereno.notifications import operations as notifications
from sereno.notifications.operations import DeliveryDetail, EventDetail, RecipientDetail
from sereno.notifications.rows import DeliveryLine


def event(number: int) -> Operation[EventDetail | None]:
    try:
        return (yield from notifications.show_event(number))
    except ConfigurationError:
        return None


def delivery(number: int) -> Operation[DeliveryDetail | None]:
    try:
        return (yield from notifications.show_delivery(number))
    except ConfigurationError:
        return None


def recipient(key: str, tenant: str | None) -> Operation[RecipientDetail | None]:
    try:
        return (yield from notifications.show_recipient(key, tenant=tenant))
    except ConfigurationError:
        return None


def deliveries(wanted: DeliveryFilter, limit: int, before: int | None) -> Operation[list[DeliveryLine] | None]:
    """Return the deliveries; None for an unknown recipient."""
    try:
        return (yield from notifications.list_deliveries(wanted, limit=limit, before=before))
    except ConfigurationError:
        return None
