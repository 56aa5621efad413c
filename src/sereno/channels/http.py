"""One HTTP call to a provider, and what its failure means for the messages in it.

The one question that matters: can the provider have taken the message? A connection that never opened: no, try again.
One that broke or went silent after the request had left: nobody knows.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from sereno.channels.contract import Exchange
from sereno.channels.outcome import Down, Failed, Outcome, Retryable, Unknown
from sereno.jobs.attempt import header_seconds

# No provider's answer is larger; whatever is beyond is not read.
LARGEST_ANSWER = 4 * 1024 * 1024
# Of a text by the provider, this much is kept.
MOST_TEXT = 300


class HTTPAnswer(msgspec.Struct, frozen=True):
    """What came back: small letters in the headers' names."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_ok(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    def json(self) -> Any:
        """The body, or None where it is no JSON: a provider that answers HTML has not understood."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def text(self) -> str:
        return self.body[: 4 * MOST_TEXT].decode("utf-8", "replace").replace("\x00", "")[:MOST_TEXT]


async def call(exchange: Exchange, method: str, url: str, **options: Any) -> HTTPAnswer | Retryable | Unknown:
    """One request; no redirect is followed. An answer with any status is an answer."""
    import aiohttp  # noqa: PLC0415 - see Exchange

    try:
        async with exchange.http.request(method, url, allow_redirects=False, **options) as response:
            body = await response.content.read(LARGEST_ANSWER)
            while len(body) < LARGEST_ANSWER and (more := await response.content.read(LARGEST_ANSWER - len(body))):
                body += more
            return HTTPAnswer(response.status, {name.lower(): value for name, value in response.headers.items()}, body)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        return Retryable("unreachable", _words(error))
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, UnicodeError) as error:
        return Retryable("bad_url", type(error).__name__)
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        return Unknown("no_answer", _words(error))


def refused(answer: HTTPAnswer) -> Outcome | None:
    """What the status alone says of all messages of a call; None for a success, whose body says more."""
    if answer.is_ok:
        return None
    code, text = f"http_{answer.status}", answer.text()
    if answer.status in (401, 403, 407):
        return Down(code, text)
    if answer.status in (408, 425, 429) or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Retryable(code, text, after=retry_after(answer.headers))
    return Failed(code, text)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider asks for, from a number or a date."""
    said = headers.get("retry-after")
    return None if said is None else header_seconds(said)


def _words(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:MOST_TEXT]
