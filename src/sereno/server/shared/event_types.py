"""The kinds of events that the application declares, as whoever explains a decision needs them."""

from sereno.notifications.why import EventKind
from sereno.server.shared.context import ServerContext


def known_kinds(context: ServerContext) -> dict[str, EventKind]:
    """What the application declares, with the channels that are active."""
    channels = context.app.channels
    return {
        name: EventKind(
            name, channels.resolve(each.channels)[0], each.category, critical=each.critical, opt_in=each.opt_in
        )
        for name, each in context.app.notifications.definitions.items()
    }
