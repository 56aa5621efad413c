"""Trusted proxies: their headers name the client and the scheme. From all other peers these headers are ignored."""

import ipaddress
from collections.abc import Iterator, MutableMapping, Sequence
from functools import lru_cache
from typing import Any

from starlette.requests import HTTPConnection

Scope = MutableMapping[str, Any]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# A request that carries one of these has passed through a proxy, trusted or not.
FORWARDING_HEADERS = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
# Characters of an address: 45 for IPv6, and a zone.
LONGEST_ADDRESS = 64
# A key of the ASGI scope: the request was handed over by a trusted proxy.
_IS_TRUSTED = "sereno.trusted_proxy"


def resolve_client(scope: Scope, trusted: Sequence[str] | None) -> Scope:
    """Return the scope with the client's own address and scheme, as a trusted proxy reports them."""
    peer = scope.get("client")
    if not trusted or not peer or not _is_trusted(peer[0], tuple(trusted)):
        return {**scope, _IS_TRUSTED: False}
    changes: Scope = {_IS_TRUSTED: True}
    scheme = _header(scope, b"x-forwarded-proto")
    if scheme in ("http", "https"):
        changes["scheme"] = scheme
    client = _client(_header(scope, b"x-forwarded-for"), tuple(trusted))
    if client is not None:
        changes["client"] = (client, 0)
    return {**scope, **changes}


def is_by_trusted_proxy(request: HTTPConnection) -> bool:
    """Return whether a trusted proxy handed this request over."""
    return bool(request.scope.get(_IS_TRUSTED, False))


def is_forwarded(request: HTTPConnection) -> bool:
    """Return whether any proxy handed this request over, so that its sender may be on another machine."""
    return any(name in request.headers for name in FORWARDING_HEADERS)


def _header(scope: Scope, name: bytes) -> str:
    return ", ".join(value.decode("latin-1") for key, value in scope["headers"] if key == name).strip().lower()


def _client(forwarded_for: str, trusted: tuple[str, ...]) -> str | None:
    """Return the last address that is no trusted proxy: each proxy appends its peer, and the client writes the rest."""
    found = None
    for address in _addresses(forwarded_for):
        found = address
        if address is None or not _is_trusted(address, trusted):
            break
    return found


def _addresses(forwarded_for: str) -> Iterator[str | None]:
    """Yield the addresses from the last to the first, without ports; None for an invalid one."""
    for entry in reversed(forwarded_for.split(",")):
        text = entry.strip()
        if text.startswith("["):
            text = text[1:].partition("]")[0]
        elif text.count(":") == 1:
            text = text.partition(":")[0]
        try:
            yield str(ipaddress.ip_address(text[:LONGEST_ADDRESS]))
        except ValueError:
            yield None


@lru_cache(maxsize=4096)
def _is_trusted(host: str, trusted: tuple[str, ...]) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in network for network in _networks(trusted))


@lru_cache(maxsize=16)
def _networks(trusted: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(each) for each in trusted)
