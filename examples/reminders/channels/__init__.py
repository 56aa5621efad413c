"""The channels of reminders. Each file here is a channel: add a file, and reminders can name it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from sereno import Channel, Content
from sereno.channels.contract import Chain


@dataclass(frozen=True)
class Way:
    """A channel, the settings of its provider, and its fallbacks.

    `adapt`: changes the usual text for a provider that needs another form.
    """

    channel: Channel
    account: Mapping[str, Any]
    chain: Chain
    adapt: Callable[[Content], Content] | None = None


def ways() -> Iterator[Way]:
    """Yield the `way` of each module in this directory."""
    for file in iter_modules(__path__, f"{__name__}."):
        yield import_module(file.name).way
