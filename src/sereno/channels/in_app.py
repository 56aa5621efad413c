"""Told inside the application: a row in the inbox. The engine writes it, in the transaction of the delivery."""

from sereno.channels.contract import IN_APP, Channel


class InApp(Channel):
    """The one channel that needs no provider and no address, and the one that others fall back to."""

    name = IN_APP


in_app = InApp()
