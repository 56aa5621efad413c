"""Whether `sereno server` may listen: on loopback, or where someone can sign in."""

import ipaddress
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from sereno.errors import ConfigurationError, DatabaseUnavailable, SchemaError

if TYPE_CHECKING:
    from sereno.app import Sereno

# Shards that are checked at once.
MOST_THREADS = 16


def check_shard_access(shards: "Mapping[str, Sereno]", host: str) -> str | None:
    """Return a notice for the operator when no one can sign in; refuse to listen beyond loopback then.

    A shard that does not respond is shown as such; the schemas of the others are checked.
    """
    from sereno.access.authentication import token_status  # noqa: PLC0415 - slow to import; --help needs none

    first = next(iter(shards))
    # At the same time: a host that is away takes seconds to be noticed.
    with ThreadPoolExecutor(MOST_THREADS) as threads:
        responds = dict(zip(shards, threads.map(_responds, shards, shards.values()), strict=True))
    if shards[first].settings.proxy_user_header is not None:
        return None
    if not responds[first]:
        return f"The shard {first} does not respond: it has the tokens, so no one can sign in until it does."
    if shards[first].database.run(token_status()).is_valid:
        return None
    create = f"create one in the database of the shard {first}: sereno token create me"
    if not is_loopback(host):
        raise ConfigurationError(f"no valid token exists, and {host} can be reached from other machines: {create}")
    return f"No one can sign in, as no valid token exists: {create}"


def _responds(name: str, app: "Sereno") -> bool:
    try:
        app.check_schema()
    except DatabaseUnavailable:
        return False
    except SchemaError as error:
        raise SchemaError(f"shard {name}: {error}") from None
    return True


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
