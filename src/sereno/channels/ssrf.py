"""Protects against SSRF: checks user-entered URLs, and refuses connections to private networks.

A name is resolved once, every address is checked, and the connection uses a checked address, so a second DNS response
cannot change it. One refused address refuses the whole name. Sockets are checked again when they are created, which
covers addresses written as numbers.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast
from urllib.parse import quote, urlsplit

import msgspec

from sereno.errors import InvalidAddress

if TYPE_CHECKING:
    import aiohttp

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Refuses: TypeAlias = Callable[[str], bool]

# Characters of a URL, and of a host name (RFC 1035).
LONGEST_URL = 2048
LONGEST_NAME = 253
DEFAULT_PORTS = {"http": 80, "https": 443}
# Addresses of one name that are tried at most; a name may have a thousand.
MOST_ADDRESSES = 8

_CLOSED_V4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # seems public, but is the host of every Azure machine
        "169.254.0.0/16",  # link-local: the metadata of clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocols
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
# All public IPv6 addresses are in here; loopback, ULA, link-local, site-local, multicast and NAT64 are not.
_OPEN_V6 = ipaddress.IPv6Network("2000::/3")
_CLOSED_V6 = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocols: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3ffe::/16",  # 6bone, returned
        "3fff::/20",  # documentation
    )
)
# Documentation addresses by version: a machine that can bind to them can bind to any address.
_UNUSED = {4: "198.51.100.1", 6: "2001:db8::1"}

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Characters of a path and a query that are not quoted.
_AS_WRITTEN = "/?%:@!$&'()*+,;=-._~[]"
_IPV4_PARTS = 4
_BYTE = 256


class AddressRefused(OSError):  # noqa: N818 - named for what happened
    """A refused connection. It reveals nothing about the network, because untrusted users may read it."""


class Resolver(Protocol):
    """A DNS resolver: any resolver of aiohttp."""

    async def resolve(self, host: str, port: int, family: socket.AddressFamily) -> list[Any]: ...


class Target(msgspec.Struct, frozen=True):
    """A normalised URL: host in lower-case ASCII, numeric hosts as an address, no fragment."""

    scheme: str
    host: str
    port: int
    path: str
    address: Address | None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"


def read_target(text: str) -> Target:
    """Parse an http(s) URL. Errors do not repeat the URL: it may contain secrets."""
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST_URL:
        raise InvalidAddress(f"a webhook's URL must have 1 to {LONGEST_URL} characters")
    # Programs interpret these differently in a URL; the check and the connection must agree.
    if "\\" in text or not text.isprintable() or any(character.isspace() for character in text):
        raise InvalidAddress("a webhook's URL cannot contain spaces, backslashes or control characters")
    try:
        parts = urlsplit(text)
        port, written = parts.port, parts.hostname or ""
    except ValueError:
        raise InvalidAddress("this is not a URL") from None
    if parts.scheme not in DEFAULT_PORTS:
        raise InvalidAddress("a webhook's URL must start with https://")
    if "@" in parts.netloc:
        raise InvalidAddress("a webhook's URL cannot contain a user or a password")
    if port == 0:
        raise InvalidAddress("port 0 is not valid")
    host, address = _read_host(written, bracketed="[" in parts.netloc)
    try:
        path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_AS_WRITTEN)
    except UnicodeEncodeError:
        raise InvalidAddress("this is not a URL") from None
    return Target(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], path, address)


def objection(target: Target, ports: Collection[int]) -> str | None:
    """Return why untrusted users may not call the target, judged by its URL; None if they may."""
    if target.scheme != "https":
        return "a webhook's URL must start with https://"
    if target.port not in ports:
        return f"a webhook's port must be one of {', '.join(map(str, sorted(ports)))}"
    if target.address is not None and not is_public(str(target.address)):
        return "a webhook's host must be public"
    return None


def is_public(ip: str) -> bool:
    """Return whether the address is a public internet address; False for anything that is not an address."""
    address = _plain(ip)
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _CLOSED_V4)
    if isinstance(address, ipaddress.IPv6Address):
        return address in _OPEN_V6 and not any(address in network for network in _CLOSED_V6)
    return False


def is_own(ip: str) -> bool:
    """Return whether the address, which may be public, belongs to this machine."""
    address = _plain(ip)
    if address is None or not _binds(str(address)):
        return False
    # With net.ipv4.ip_nonlocal_bind every address binds; then the route decides, except for secondary addresses.
    return not _binds(_UNUSED[address.version]) or _source_towards(str(address)) == str(address)


def is_refused(ip: str) -> bool:
    return not is_public(ip) or is_own(ip)


def is_never_refused(_ip: str) -> bool:
    """Allow every address, for installations that call their own networks on purpose."""
    return False


class SSRFGuard:
    """Resolver and socket factory for a connector of aiohttp that refuse addresses."""

    def __init__(self, inner: Resolver, refuses: Refuses) -> None:
        self._inner = inner
        self._refuses = refuses

    async def resolve(self, host: str, port: int, family: socket.AddressFamily) -> list[Any]:
        try:
            addresses = await self._inner.resolve(host, port, family)
        except (OSError, ValueError) as error:
            raise OSError("the name has no address") from error
        if not addresses:
            raise OSError("the name has no address")
        if any(self._refuses(address["host"]) for address in addresses):
            raise AddressRefused("address refused")
        return addresses[:MOST_ADDRESSES]

    async def close(self) -> None:
        """Do nothing: the caller owns the inner resolver."""

    def socket(self, info: Any) -> socket.socket:
        family, kind, protocol, _, address = info
        if self._refuses(address[0]):
            raise AddressRefused("address refused")
        return socket.socket(family, kind, protocol)


def guarded_session(
    timeout: float, *, inner: Resolver | None = None, refuses: Refuses = is_refused
) -> "aiohttp.ClientSession":
    """Return an HTTP session that refuses addresses; without cookies, proxies, netrc and decompression.

    The caller disables redirects with `allow_redirects=False`; a redirect that is followed is checked in the same way.
    """
    import aiohttp  # noqa: PLC0415 - see Exchange

    guard = SSRFGuard(inner or cast(Resolver, aiohttp.ThreadedResolver()), refuses)
    connector = aiohttp.TCPConnector(
        resolver=cast(Any, guard), socket_factory=guard.socket, use_dns_cache=False, force_close=True
    )
    return aiohttp.ClientSession(
        connector=connector,
        # Connecting has its own timeout: when it expires, the request was certainly not sent.
        timeout=aiohttp.ClientTimeout(total=timeout, connect=timeout / 2),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        read_bufsize=4096,
        trust_env=False,
    )


def _read_host(written: str, *, bracketed: bool) -> tuple[str, Address | None]:
    if bracketed:
        address = _plain(written)
        if address is None:
            raise InvalidAddress("the host in brackets is not an IPv6 address")
        return str(address), address
    name = _ascii(written).lower()
    labels = name.removesuffix(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):
        number = _read_numbers(labels)
        return str(number), number
    if len(name) > LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidAddress("a webhook's URL needs a valid host name")
    return ".".join(labels), None


def _ascii(name: str) -> str:
    """Return the name as it is resolved: full-width letters become ASCII, which may make it a number."""
    if name.isascii():
        return name
    try:
        import idna  # noqa: PLC0415 - comes with aiohttp

        return idna.encode(name, uts46=True).decode("ascii")
    except (ImportError, UnicodeError):
        raise InvalidAddress("the host name cannot be converted to ASCII") from None


def _read_numbers(labels: list[str]) -> ipaddress.IPv4Address:
    """Parse 127.0.0.1 in all notations that C accepts: 127.1, 0x7f000001, 0177.0.0.1, 2130706433."""
    try:
        *first, last = [_read_number(label) for label in labels]
    except ValueError:
        raise InvalidAddress("the host is neither a name nor an address") from None
    limit = _BYTE ** max(0, _IPV4_PARTS - len(first))
    if last >= limit or any(number >= _BYTE for number in first):
        raise InvalidAddress("the host is neither a name nor an address")
    high = sum(number << 8 * (_IPV4_PARTS - 1 - place) for place, number in enumerate(first))
    return ipaddress.IPv4Address(high + last)


def _read_number(label: str) -> int:
    if not _NUMBER.fullmatch(label):
        raise ValueError(label)
    if label.startswith("0x"):
        return int(label[2:] or "0", 16)
    return int(label, 8 if label.startswith("0") else 10)


def _plain(ip: str) -> Address | None:
    """Return the address; for an IPv4-mapped IPv6 address, the IPv4. None with a zone, which is never public."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return None if address.scope_id is not None else address.ipv4_mapped or address
    return address


def _binds(ip: str) -> bool:
    try:
        with socket.socket(_family(ip), socket.SOCK_DGRAM) as probe:
            probe.bind((ip, 0))
            return True
    except OSError:
        return False


def _source_towards(ip: str) -> str:
    """Return the source address that this machine would use; connecting a datagram socket sends nothing."""
    try:
        with socket.socket(_family(ip), socket.SOCK_DGRAM) as probe:
            probe.connect((ip, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _family(ip: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in ip else socket.AF_INET
