"""The inbox channel: a row in the recipient's inbox, written by the engine in the transaction of the delivery."""

from sereno.channels.contract import IN_APP, Channel


class InApp(Channel):
    """The channel without a provider and without addresses. It replaces channels that are not active."""

    name = IN_APP


in_app = InApp()
