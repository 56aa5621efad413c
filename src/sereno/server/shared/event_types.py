"""The event types that the application declares, for explanations of notifications."""

from sereno.notifications.why import EventKind, declared_kind
from sereno.server.shared.context import ServerContext


def known_kinds(context: ServerContext) -> dict[str, EventKind]:
    """Return the declared event types with their active channels."""
    definitions = context.app.notifications.definitions
    return {name: declared_kind(each, context.app.channels.resolve) for name, each in definitions.items()}
