"""The declaration of a queue that NATS JetStream carries, in code or by a setting. Imports nothing of NATS."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from sereno.errors import ConfigurationError
from sereno.jobs.carried import CarriedQueue

if TYPE_CHECKING:
    from sereno.carriers.contract import CarrierClient

PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
_ADDRESS = re.compile(r"(?:[^@/\s,]+@)?(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")

# The address of a queue that stays in PostgreSQL, although the code declares a carrier.
IN_POSTGRES = "postgres"
_OPTIONS = ("replicas", "prefix", "credentials", "max_bytes", "direct")


@dataclass(frozen=True, slots=True)
class JetStream:
    """Carry a queue by NATS JetStream: `JetStream("nats://a:4222,nats://b:4222,nats://c:4222", replicas=3)`.

    `replicas`: nodes that store each message before it counts as accepted. `prefix`: begins the names of streams and
    subjects; two installations on one cluster need two. `credentials`: the path of a credentials file. `max_bytes`:
    of the stream of each queue; no limit by default.
    """

    servers: str
    replicas: int = 1
    prefix: str = "sereno"
    credentials: str | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        # The address is not part of the messages: it may contain a password.
        addresses = [_address(each) for each in self.servers.split(",")]
        if not all(_ADDRESS.fullmatch(address) for _, address in addresses):
            raise ConfigurationError("JetStream: write its servers as nats://a:4222,nats://b:4222")
        if any(scheme not in ("nats", "tls") for scheme, _ in addresses):
            raise ConfigurationError("JetStream: the address of a server begins with nats:// or tls://")
        if self.replicas not in (1, 3, 5):
            raise ConfigurationError(f"JetStream: replicas {self.replicas!r:.20} is not possible: 1, 3 or 5")
        if not PLAIN_NAME.fullmatch(self.prefix):
            raise ConfigurationError(f"JetStream: the prefix {self.prefix!r:.60} has to be letters, digits, '_' or '-'")
        if self.max_bytes is not None and self.max_bytes < 1:
            raise ConfigurationError("JetStream: max_bytes must be at least 1")

    @property
    def kind(self) -> str:
        """The kind of this carrier, as commands and pages show it."""
        return "jetstream"

    @property
    def description(self) -> str:
        """The servers without credentials."""
        return ",".join(address.rpartition("@")[2] for _, address in map(_address, self.servers.split(",")))

    def __repr__(self) -> str:
        return f"JetStream({self.description!r}, replicas={self.replicas})"

    @property
    def addresses(self) -> list[str]:
        """The URL of each server."""
        return [f"{scheme}://{address}" for scheme, address in map(_address, self.servers.split(","))]

    async def connect(self) -> "CarrierClient":
        """Connect to one of the servers, or raise CarrierUnavailable."""
        try:
            from sereno.carriers.jetstream import connect  # noqa: PLC0415 - most processes do not need its client
        except ModuleNotFoundError:
            raise ConfigurationError(
                "queues carried by NATS JetStream need the package nats-py: pip install 'sereno[nats]'"
            ) from None
        return await connect(self)


def _address(text: str) -> tuple[str, str]:
    """Return the scheme and the rest of the address of a server."""
    scheme, separator, rest = text.strip().partition("://")
    return (scheme, rest) if separator else ("nats", scheme)


def carried_queue(name: str, url: str) -> CarriedQueue:
    """Parse the form of the settings: `jetstream://a:4222,b:4222,c:4222?replicas=3&direct=true`, or `postgres`."""
    if url == IN_POSTGRES:
        return CarriedQueue(name, None)
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("jetstream", "jetstream+tls"):
        raise ConfigurationError("carriers: write each address as jetstream://a:4222,b:4222?replicas=3, or postgres")
    hosts, _, query = rest.partition("?")
    given = {option: values[-1] for option, values in parse_qs(query, keep_blank_values=True).items()}
    if unknown := given.keys() - _OPTIONS:
        raise ConfigurationError(f"carriers: unknown option {min(unknown)!r:.60}; there are {', '.join(_OPTIONS)}")
    options: dict[str, Any] = dict(given)
    direct = options.pop("direct", "false")
    if direct not in ("true", "false"):
        raise ConfigurationError("carriers: direct is true or false")
    for option in options.keys() & {"replicas", "max_bytes"}:
        if not given[option].isdecimal():
            raise ConfigurationError(f"carriers: {option} is a number")
        options[option] = int(given[option])
    protocol = "tls" if scheme.endswith("+tls") else "nats"
    servers = ",".join(f"{protocol}://{host}" for host in hosts.rstrip("/").split(","))
    return CarriedQueue(name, JetStream(servers, **options), direct == "true")
