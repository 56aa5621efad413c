"""Downloads a report from the address that the partner returns. The address and the file are untrusted.

Only listed hosts are called, never an address in a private network. Redirects are not followed; the size is bounded.
The address is a secret while it is valid, so no error contains it.
"""

from fnmatch import fnmatchcase
from http import HTTPStatus

import aiohttp
from yarl import URL

from reconciliation import settings
from reconciliation.errors import PartnerError, UnsafeLink
from sereno.channels.ssrf import (
    DEFAULT_PORTS,
    AddressRefused,
    Refuses,
    Target,
    guarded_session,
    is_never_refused,
    is_refused,
    objection,
    read_target,
)
from sereno.errors import InvalidAddress

# The largest file that is accepted, in bytes, and how long it may take, in seconds.
MOST_PACKED = 8_000_000
PATIENCE = 60.0
EXPIRED = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


class ExpiredLink(PartnerError):  # noqa: N818 - named for what happened
    """The address is no longer valid; the partner returns a new one at each poll."""


async def download(link: str) -> bytes:
    """Return the file."""
    target, refuses = checked_link(link)
    try:
        async with (
            guarded_session(PATIENCE, refuses=refuses) as session,
            # The signature covers the address as it is written.
            session.get(URL(target.url, encoded=True), allow_redirects=False) as response,
        ):
            if response.status in EXPIRED:
                raise ExpiredLink(f"download: HTTP {response.status}, the link has expired")
            if response.status != HTTPStatus.OK:
                raise PartnerError(f"download: HTTP {response.status}")
            return await read_body("download", response, MOST_PACKED)
    except aiohttp.ClientConnectorError as error:
        if isinstance(error.os_error, AddressRefused):
            raise UnsafeLink(f"download: {target.host} is in a private network") from None
        raise PartnerError(f"download: {target.host} is unreachable") from None
    except (aiohttp.ClientError, TimeoutError) as error:
        raise PartnerError(f"download: {type(error).__name__}") from None


def checked_link(link: str) -> tuple[Target, Refuses]:
    """Return the address to call, and which addresses a connection refuses. Raises UnsafeLink."""
    try:
        target = read_target(link)
    except InvalidAddress:
        raise UnsafeLink("download: the address of the report is not a valid URL") from None
    for host in settings.DOWNLOAD_HOSTS:
        if "://" in host:
            if _origin(target) == _origin(read_target(host)):
                return target, is_never_refused
        elif fnmatchcase(target.host, host) and objection(target, {DEFAULT_PORTS["https"]}) is None:
            return target, is_refused
    raise UnsafeLink(
        f"download: {target.scheme}://{target.host:.100}:{target.port} is not one of RECONCILIATION_DOWNLOAD_HOSTS"
    )


def _origin(target: Target) -> tuple[str, str, int]:
    return target.scheme, target.host, target.port


async def read_body(stage: str, response: aiohttp.ClientResponse, most: int) -> bytes:
    """Return the body of a response of bounded size."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(65536):
        body += chunk
        if len(body) > most:
            raise PartnerError(f"{stage}: a response of more than {most:,} bytes")
    return bytes(body)
