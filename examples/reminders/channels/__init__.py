"""How reminders leave the house. Each file here is a channel: add a file, and reminders may ask for it by name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from sereno import Channel
from sereno.channels.contract import Chain


@dataclass(frozen=True)
class Way:
    """A channel, the settings of its provider, and what is tried after it."""

    channel: Channel
    account: Mapping[str, Any]
    chain: Chain


def ways() -> Iterator[Way]:
    """What the files of this directory call `way`."""
    for file in iter_modules(__path__, f"{__name__}."):
        yield import_module(file.name).way
