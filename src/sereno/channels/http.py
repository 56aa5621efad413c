"""One HTTP call to a provider, and what its failure means for the messages in it.

A message may be sent again only if the provider cannot have accepted it. If the connection never opened, it cannot:
retry. If the connection broke or timed out after the request was sent, the outcome is unknown.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from sereno.channels.contract import Exchange
from sereno.channels.outcome import Down, Failed, Outcome, Retryable, Unknown
from sereno.jobs.attempt import header_seconds
from sereno.telemetry import tracing

# Largest response in bytes; the rest is not read.
LARGEST_RESPONSE = 4 * 1024 * 1024
# Characters of a provider's text that are stored.
MOST_TEXT = 300


class HTTPResponse(msgspec.Struct, frozen=True):
    """A response; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_ok(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    def json(self) -> Any:
        """Return the decoded body; None if it is not JSON, such as an HTML error page."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def text(self) -> str:
        return self.body[: 4 * MOST_TEXT].decode("utf-8", "replace").replace("\x00", "")[:MOST_TEXT]


async def call(exchange: Exchange, method: str, url: str, **options: Any) -> HTTPResponse | Retryable | Unknown:
    """Send one request without following redirects. A response with any status is returned."""
    with tracing.requesting(method, url) as ended:
        response = await _call(exchange, method, url, options)
        ended(response.status if isinstance(response, HTTPResponse) else response.code)
        return response


async def _call(
    exchange: Exchange, method: str, url: str, options: Mapping[str, Any]
) -> HTTPResponse | Retryable | Unknown:
    import aiohttp  # noqa: PLC0415 - see Exchange

    try:
        async with exchange.http.request(method, url, allow_redirects=False, **options) as response:
            body = await response.content.read(LARGEST_RESPONSE)
            while len(body) < LARGEST_RESPONSE and (more := await response.content.read(LARGEST_RESPONSE - len(body))):
                body += more
            return HTTPResponse(
                response.status, {name.lower(): value for name, value in response.headers.items()}, body
            )
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        return Retryable("unreachable", _text_of(error))
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, UnicodeError) as error:
        return Retryable("bad_url", type(error).__name__)
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        return Unknown("no_response", _text_of(error))


def refused(response: HTTPResponse) -> Outcome | None:
    """Return the outcome of all messages of a call whose status is an error; None for a success."""
    if response.is_ok:
        return None
    code, text = f"http_{response.status}", response.text()
    if response.status in (401, 403, 407):
        return Down(code, text)
    if response.status in (408, 425, 429) or response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Retryable(code, text, after=retry_after(response.headers))
    return Failed(code, text)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the provider requests, given as a number or a date."""
    value = headers.get("retry-after")
    return None if value is None else header_seconds(value)


def _text_of(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:MOST_TEXT]
