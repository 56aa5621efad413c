"""`app.channels`: the channels of an application by name, and which of them are active."""

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Any

from sereno.channels.contract import IN_APP, Channel
from sereno.channels.in_app import in_app
from sereno.database.database import Database
from sereno.errors import ConfigurationError, InvalidAddress

# Characters of an address.
LONGEST_ADDRESS = 2000
# Entry point group in which packages register channels: name = "package.module:Class".
ENTRY_POINTS = "sereno.channels"


class Channels:
    """The channels of an application, by name."""

    def __init__(self, database: Database) -> None:
        self.known: dict[str, Channel] = {IN_APP: in_app}
        self.accounts: dict[str, dict[str, Any]] = {}
        self._database = database

    def add(self, channel: Channel, **account: Any) -> Channel:
        """Add a channel; `account`: credentials and settings for tenants without their own."""
        if channel.on_unknown not in ("retry", "park"):
            raise ConfigurationError(
                f'the channel {channel.name}: on_unknown must be "retry" or "park", not {channel.on_unknown!r:.40}'
            )
        known = self.known.setdefault(channel.name, channel)
        if known is not channel:
            raise ConfigurationError(f"there are two channels named {channel.name}: give one of them another name")
        self.accounts.setdefault(channel.name, {}).update(account)
        return channel

    def __getitem__(self, name: str) -> Channel:
        """Return a channel by name; one from an installed package is added on first use."""
        if name not in self.known:
            offered = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
            if name not in offered:
                names = ", ".join(sorted({*self.known, *offered}))
                raise ConfigurationError(
                    f"there is no channel {name!r}: add it with app.channels.add(…); known channels: {names}"
                )
            loaded = offered[name].load()
            self.add(loaded() if isinstance(loaded, type) else loaded)
        return self.known[name]

    def register(self, channel: Channel | str) -> None:
        """Register a channel of an event. An unknown name is not an error: the inbox is used instead."""
        if isinstance(channel, Channel):
            if channel is not in_app:
                self.add(channel)
        elif channel not in self.known and channel in {entry.name for entry in entry_points(group=ENTRY_POINTS)}:
            self[channel]

    def check_address(self, channel: str, address: str) -> str:
        """Return the address as it is stored; raise InvalidAddress if the channel cannot reach it."""
        if not address or len(address) > LONGEST_ADDRESS or "\x00" in address:
            raise InvalidAddress(f"{address!r:.60} is not an address for {channel}")
        known = self.known.get(channel)
        return address if known is None else known.check_address(address)

    def is_active(self, name: str) -> bool:
        active = self._database.settings.channels
        return name in self.known and (name == IN_APP or active is None or name in active)

    def resolve(self, wanted: Sequence[str]) -> tuple[list[str], str | None]:
        """Return the active channels; the inbox replaces the others, with a note."""
        missing = [name for name in wanted if not self.is_active(name)]
        found = [name for name in wanted if name not in missing]
        if not missing:
            return found, None
        note = f"{', '.join(missing)}: not active here, delivered to the inbox instead"
        return list(dict.fromkeys([*found, IN_APP])), note
