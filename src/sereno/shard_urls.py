"""The setting `shards`: the databases that one read-only server shows, by name."""

import json
import re
from collections.abc import Mapping, Sequence

from sereno.errors import ConfigurationError

# Names are part of paths: /shards/NAME/.
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_SCHEMES = ("postgresql://", "postgres://")


def check_shards(shards: Mapping[str, str]) -> None:
    """Raise ConfigurationError for an invalid name or address. Addresses are not shown: they may hold a password."""
    for name, url in shards.items():
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"shards: {name!r:.60} is not a valid name: use lower-case letters, digits, '_' and '-', at most 40"
            )
        if not url.startswith(_SCHEMES):
            raise ConfigurationError(f"shards: the address of {name} must be a URL such as postgresql://user@host/db")


def parse_shards(text: str) -> dict[str, str]:
    """Parse `{"a": "postgresql://…", "b": "postgresql://…"}`."""
    try:
        shards = json.loads(text)
    except ValueError:
        shards = None
    if not isinstance(shards, dict) or not all(isinstance(url, str) for url in shards.values()):
        raise ConfigurationError('shards: write a JSON object of names and addresses: {"a": "postgresql://host/db"}')
    return shards


def parse_shard_options(words: Sequence[str]) -> dict[str, str]:
    """Parse `["a=postgresql://…", "b=postgresql://…"]`, as on the command line."""
    shards: dict[str, str] = {}
    for word in words:
        name, separator, url = word.partition("=")
        if not separator or not _NAME.fullmatch(name):
            # The text is not shown: an address without a name may hold a password.
            raise ConfigurationError(
                "--shard: write NAME=URL; a name has lower-case letters, digits, '_' and '-', at most 40"
            )
        if name in shards:
            raise ConfigurationError(f"--shard: {name} is given twice")
        shards[name] = url
    check_shards(shards)
    return shards
