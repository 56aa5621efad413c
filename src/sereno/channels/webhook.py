"""Webhooks: a signed POST to a user-entered URL, following Standard Webhooks.

The id is the same for all attempts, so that a receiver can detect a repeat. While a secret is rotated, the old and the
new one both sign. Only the status of a response counts; its body is stored as a remark for operators.
"""

import base64
import binascii
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec

from sereno.channels.contract import Channel, Exchange, Message
from sereno.channels.http import MOST_TEXT, retry_after
from sereno.channels.outcome import Delivered, Down, Failed, Invalid, Outcome, Retryable, Unknown
from sereno.channels.ssrf import (
    AddressRefused,
    Resolver,
    guarded_session,
    is_never_refused,
    is_refused,
    objection,
    read_target,
)
from sereno.errors import ConfigurationError, InvalidAddress
from sereno.telemetry import tracing
from sereno.version import __version__

if TYPE_CHECKING:
    import aiohttp

MINUTE, HOUR = 60.0, 3600.0
# Seconds before each attempt, as Standard Webhooks specifies: about three days in total.
RETRY_DELAYS = (
    0.0,
    5.0,
    5 * MINUTE,
    30 * MINUTE,
    2 * HOUR,
    5 * HOUR,
    10 * HOUR,
    14 * HOUR,
    20 * HOUR,
    24 * HOUR,
)
PORTS = (80, 443)
# Seconds for one request, as Standard Webhooks recommends.
SHORTEST_TIMEOUT, LONGEST_TIMEOUT = 15.0, 30.0
# Bytes of a response body that are read.
LARGEST_RESPONSE = 4096

SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix of secrets, not a secret
# Bytes of a secret; and secrets that sign one request: while a secret is rotated, two.
SMALLEST_SECRET, LARGEST_SECRET = 24, 64
MOST_SECRETS = 2
# First number beyond the HTTP status codes.
_BEYOND_STATUS = 600
# Characters that are valid in a header value.
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`ports`: allowed ports. `timeout`: seconds for one request; default: that of the exchange."""

    ports: Annotated[tuple[Annotated[int, msgspec.Meta(ge=1, le=65535)], ...], msgspec.Meta(min_length=1)] = PORTS
    timeout: Annotated[float, msgspec.Meta(ge=SHORTEST_TIMEOUT, le=LONGEST_TIMEOUT)] | None = None


class _WebhookRequest(msgspec.Struct, frozen=True):
    url: str
    headers: Mapping[str, str]
    body: bytes


class _WebhookResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]
    remark: str


class Webhook(Channel):
    """Calls URLs. `keys["secrets"]` of a message: one secret, or the new and the old one.

    `private`: whether `check_address` allows http, any port and private hosts; in `send`, the exchange decides.
    `resolver`: a DNS resolver instead of the system's.
    """

    name: ClassVar[str] = "webhook"
    batch: ClassVar[int] = 1
    on_unknown: ClassVar[Literal["retry", "park"]] = "retry"
    delays: ClassVar[tuple[float, ...]] = RETRY_DELAYS[1:]

    def __init__(
        self,
        *,
        ports: Collection[int] = PORTS,
        timeout: float | None = None,
        private: bool = False,
        resolver: Resolver | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._defaults = {"ports": tuple(ports), "timeout": timeout}
        self._settings = self._read_settings({})
        self._private = private
        self._resolver = resolver
        self._now = now

    def check_address(self, address: str) -> str:
        target = read_target(address)
        if not self._private and (wrong := objection(target, self._settings.ports)):
            raise InvalidAddress(wrong)
        return target.url

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        try:
            settings = self._read_settings(exchange.account)
        except ConfigurationError as error:
            return [Down("bad_settings", str(error))] * len(batch)
        timeout = settings.timeout or min(exchange.timeout, LONGEST_TIMEOUT)
        refuses = is_never_refused if exchange.private else is_refused
        ports = None if exchange.private else settings.ports
        async with guarded_session(timeout, inner=self._resolver, refuses=refuses) as session:
            return [await self._send(message, ports, session) for message in batch]

    def _read_settings(self, account: Mapping[str, Any]) -> WebhookSettings:
        own = {name: account[name] for name in self._defaults if name in account}
        try:
            return msgspec.convert({**self._defaults, **own}, WebhookSettings)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"webhook: {error}") from None

    async def _send(self, message: Message, ports: Collection[int] | None, session: "aiohttp.ClientSession") -> Outcome:
        request = _prepare(message, ports, self._now().astimezone(UTC))
        return await _send(request, session) if isinstance(request, _WebhookRequest) else request


def _prepare(message: Message, ports: Collection[int] | None, now: datetime) -> _WebhookRequest | Outcome:
    """Return the request, or the outcome if nothing is sent. `ports`: None if every port is allowed."""
    try:
        target = read_target(message.address)
    except InvalidAddress as error:
        return Invalid("bad_address", str(error))
    if ports is not None and objection(target, ports):
        return Failed("address_refused")
    secrets = _good_secrets(message.keys.get("secrets"))
    if not secrets:
        return Failed("no_secret", "a webhook needs one or two secrets: whsec_ and 24 to 64 bytes in base64")
    if not _KEY.fullmatch(message.key):
        return Failed("bad_key", "the key of a webhook must be printable ASCII without spaces")
    try:
        body = msgspec.json.encode({"type": message.event, "timestamp": now, "data": message.data})
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        return Failed("bad_data", f"the data cannot be encoded as JSON: {type(error).__name__}")
    headers = {
        "webhook-id": message.key,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": _signatures(secrets, message.key, now, body),
        "content-type": "application/json",
        "user-agent": f"sereno/{__version__}",
    }
    return _WebhookRequest(target.url, headers, body)


def _good_secrets(secrets: Any) -> Sequence[str]:
    """Return all secrets or none: a receiver that knows only the invalid one would refuse the message."""
    if not isinstance(secrets, list | tuple) or not 1 <= len(secrets) <= MOST_SECRETS:
        return ()
    return secrets if all(map(_is_secret, secrets)) else ()


def _is_secret(secret: Any) -> bool:
    if not isinstance(secret, str) or not secret.startswith(SECRET_PREFIX):
        return False
    text = secret.removeprefix(SECRET_PREFIX)
    try:
        # Padding may be missing.
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return SMALLEST_SECRET <= len(key) <= LARGEST_SECRET


def _signatures(secrets: Sequence[str], key: str, now: datetime, body: bytes) -> str:
    import standardwebhooks  # noqa: PLC0415 - an extra that only webhooks need

    return " ".join(standardwebhooks.Webhook(secret).sign(key, now, body.decode()) for secret in secrets)


async def _send(request: _WebhookRequest, session: "aiohttp.ClientSession") -> Outcome:
    """Send one request. A failure before it was sent is retryable; after a later failure, the outcome is unknown."""
    with tracing.requesting("POST", request.url) as ended:
        response = await _post(request, session)
        if isinstance(response, _WebhookResponse):
            ended(response.status)
            return _outcome(response)
        ended(response.code)
        return response


async def _post(
    request: _WebhookRequest, session: "aiohttp.ClientSession"
) -> _WebhookResponse | Failed | Retryable | Unknown:
    import aiohttp  # noqa: PLC0415 - see Exchange

    try:
        async with session.post(
            request.url, data=request.body, headers=request.headers, allow_redirects=False
        ) as response:
            # The body of a success is not needed.
            remark = "" if response.status < HTTPStatus.MULTIPLE_CHOICES else await _remark(response)
            # Do not wait for the rest of the body.
            response.close()
            return _WebhookResponse(response.status, response.headers, remark)
    except aiohttp.ClientConnectorDNSError as error:
        return Failed("address_refused") if isinstance(error.os_error, AddressRefused) else Retryable("unresolved")
    except aiohttp.ClientSSLError as error:
        return Retryable("tls", type(error).__name__)
    except aiohttp.ClientConnectorError as error:
        return Failed("address_refused") if isinstance(error.os_error, AddressRefused) else Retryable("unreachable")
    except aiohttp.ConnectionTimeoutError:
        return Retryable("unreachable", "no connection in time")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # Only the type: the text of an error may repeat the URL.
        return Unknown("no_response", type(error).__name__)


async def _remark(response: "aiohttp.ClientResponse") -> str:
    """Return the start of the body as a remark; a partial read is enough."""
    import aiohttp  # noqa: PLC0415 - see Exchange

    body = b""
    try:
        while len(body) < LARGEST_RESPONSE and (more := await response.content.read(LARGEST_RESPONSE - len(body))):
            body += more
    except (aiohttp.ClientError, OSError):
        pass
    text = body.decode("utf-8", "replace")
    return "".join(character if character.isprintable() else " " for character in text)[:MOST_TEXT]


def _outcome(response: _WebhookResponse) -> Outcome:
    status, headers, remark = response
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return Delivered()
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return Retryable("redirect", f"status {status}: enter the new URL of the webhook")
    if status == HTTPStatus.GONE:
        return Invalid("gone", remark)
    if HTTPStatus.BAD_REQUEST <= status < _BEYOND_STATUS:
        return Retryable(f"http_{status}", remark, after=retry_after(headers))
    return Unknown("invalid_response", f"status {status}")
