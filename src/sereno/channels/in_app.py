"""The inbox channel: a row in the recipient's inbox, written by the engine in the transaction of the delivery."""

from sereno.channels.contract import IN_APP, Channel


class InApp(Channel):
    """The channel without provider and address; other channels fall back to it."""

    name = IN_APP


in_app = InApp()
