"""What both sources have in common: a bounded request, and what was read of a source before it failed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import aiohttp

from tenders.tender import Tender

LARGEST_RESPONSE = 4 * 1024 * 1024
TIMEOUT = aiohttp.ClientTimeout(total=20)
# Upper bound in seconds for a source's Retry-After.
LONGEST_WAIT = 300.0


class Unavailable(Exception):  # noqa: N818 - named for what happened
    """A source failed or returned invalid data. The message never contains the URL, which contains our ticket.

    `after`: the source's Retry-After in seconds, if it sent one. `body`: what it sent with an error.
    """

    def __init__(self, message: str, after: float | None = None, body: bytes = b"") -> None:
        super().__init__(message)
        self.after = None if after is None else min(after, LONGEST_WAIT)
        self.body = body


@dataclass
class Reading:
    """The tenders that a source returned. `problem`: why it was not read to the end."""

    tenders: list[Tender] = field(default_factory=list)
    problem: Unavailable | None = None


async def request(name: str, method: str, url: str, **content: Any) -> bytes:
    """Return the body of a response with status 200; `content`: arguments of aiohttp."""
    try:
        async with (
            aiohttp.ClientSession(timeout=TIMEOUT) as session,
            session.request(method, url, allow_redirects=False, **content) as response,
        ):
            body = await _body(name, response)
            if response.status != HTTPStatus.OK:
                raise Unavailable(f"{name} returned HTTP {response.status}", _retry_after(response.headers), body)
            return body
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unavailable(f"{name} did not respond: {type(error).__name__}") from None


async def _body(name: str, response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > LARGEST_RESPONSE:
            raise Unavailable(f"{name} returned more than {LARGEST_RESPONSE:,} bytes")
    return bytes(body)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    value = headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdecimal() else None
