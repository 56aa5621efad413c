"""The event types that the application declares, for explanations of notifications."""

from sereno.notifications.why import EventKind
from sereno.server.shared.context import ServerContext


def known_kinds(context: ServerContext) -> dict[str, EventKind]:
    """Return the declared event types with their active channels."""
    channels = context.app.channels
    return {
        name: EventKind(
            name, channels.resolve(each.channels)[0], each.category, critical=each.critical, opt_in=each.opt_in
        )
        for name, each in context.app.notifications.definitions.items()
    }
