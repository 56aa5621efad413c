"""Push to iPhones, iPads, Macs and watches through Apple (APNs), over one HTTP/2 connection.

The address is the app's device token. Requests are authenticated with a token that is signed with the team's key, and
renewed every half hour. Needs `sereno[apns]`.

Every attempt of a message has the same apns-id, and its key is the collapse id, so that a message that arrives twice
replaces itself on the screen.

Account settings: key_id, team_id, private_key (the content of the .p8 file), topic (the bundle id of the app), url.
"""

import importlib.util
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from sereno.channels.contract import Exchange, Message
from sereno.channels.http import HTTPResponse, retry_after
from sereno.channels.jwt import es256
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.channels.single_message import (
    ChannelSettings,
    Refusal,
    SingleMessageChannel,
    Url,
    Word,
    coded_refusal,
    failed_alone,
    fields,
    number,
    provider_text,
    short_key,
)
from sereno.errors import ConfigurationError, InvalidAddress

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey as Key

# Bytes of a payload.
LARGEST = 4096
# Seconds. Apple refuses tokens that are older than an hour, and keys whose token changes within 20 minutes: so all
# workers date their tokens at the same half hours.
TOKEN_USE = 1800
# Seconds to wait after a server error of Apple.
ERROR_WAIT = 900.0
# Longest time to live in seconds: Apple stores a message for 30 days at most.
LONGEST_TTL = 30 * 86400
# Accounts whose tokens are cached.
MOST_ACCOUNTS = 1000
PUSH_TYPES = {"alert": 10, "background": 5}
PRIORITIES = (1, 5, 10)
# The id of a message is derived from its key.
KEYS = uuid.UUID("4b1c0a3f-6f5e-4d57-9f0e-2f7a5f1d9c60")
EXPIRED, FOREIGN = "ExpiredProviderToken", "DeviceTokenNotForTopic"

# Meaning of Apple's reasons. Other reasons fail the message.
MEANINGS: Mapping[str, Refusal] = {
    "BadDeviceToken": Invalid,
    "ExpiredToken": Invalid,
    "Unregistered": Invalid,
    FOREIGN: Down,
    EXPIRED: Down,
    "BadCertificate": Down,
    "BadCertificateEnvironment": Down,
    "BadEnvironmentKeyIdInToken": Down,
    "BadTopic": Down,
    "Forbidden": Down,
    "InvalidProviderToken": Down,
    "MissingProviderToken": Down,
    "MissingTopic": Down,
    "TopicDisallowed": Down,
    "UnrelatedKeyIdInToken": Down,
    "IdleTimeout": Retryable,
    "InternalServerError": Retryable,
    "ServiceUnavailable": Retryable,
    "Shutdown": Retryable,
    "TooManyProviderTokenUpdates": Retryable,
    "TooManyRequests": Retryable,
}
SERVER_ERRORS = ("InternalServerError", "ServiceUnavailable", "Shutdown")

_TOKEN = re.compile(r"(?:[0-9a-f]{2}){16,200}")


class APNsSettings(ChannelSettings, frozen=True, kw_only=True):
    """Settings of `APNs`. For apps in development, `url` is https://api.sandbox.push.apple.com."""

    url: Url = "https://api.push.apple.com"
    key_id: Word = ""
    team_id: Word = ""
    private_key: str = ""
    topic: Word = ""

    def lacks(self) -> str:
        return next((name for name in ("key_id", "team_id", "private_key", "topic") if not getattr(self, name)), "")


class _Account(msgspec.Struct):
    """A key and its token. `dated`: when the token was made. `has_succeeded`: a message was accepted with it."""

    key: Any
    token: str = ""
    dated: float = 0.0
    has_succeeded: bool = False

    def __repr__(self) -> str:
        return "_Account(…)"


class APNs(SingleMessageChannel[APNsSettings]):
    """A push to an Apple device."""

    name: ClassVar[str] = "apns"
    batch: ClassVar[int] = 100
    # On one connection, and never more than Apple allows.
    concurrent: ClassVar[int] = 100
    largest: ClassVar[int | None] = LARGEST
    settings_type = APNsSettings

    def __init__(self, now: Callable[[], float] = time.time, **defaults: str) -> None:
        if importlib.util.find_spec("h2") is None:
            raise ConfigurationError(
                "the channel apns needs a package that is not installed: pip install 'sereno[apns]'"
            )
        super().__init__(**defaults)
        self._now = now
        self._accounts: dict[APNsSettings, _Account] = {}

    def check(self, address: str, _settings: APNsSettings, /) -> str:
        token = address.strip(" ").lower()
        if not _TOKEN.fullmatch(token):
            raise InvalidAddress("a device token of Apple is written in hexadecimal, usually with 64 digits")
        return token

    def secrets(self, message: Message, settings: APNsSettings, /) -> Iterable[str]:
        account = self._accounts.get(settings)
        return (message.address, settings.private_key, account.token if account else "")

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        """Send the messages; Down for a token of another app only if the account was never accepted for its own."""
        outcomes = await super().send(batch, exchange)
        text = "the device token belongs to another app"
        return failed_alone(outcomes, FOREIGN, text, lambda: self._has_succeeded(exchange))

    def _has_succeeded(self, exchange: Exchange) -> bool:
        account = self._accounts.get(self.settings(exchange.account, alone=exchange.stands_alone))
        return account is not None and account.has_succeeded

    async def send_one(self, message: Message, settings: APNsSettings, exchange: Exchange, /) -> Outcome:
        try:
            headers, payload = _headers(message, settings, self._now()), _payload(message)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            return Failed("malformed", provider_text(str(error)))
        if payload is None:
            return Failed("empty", "a push needs text or data")
        if len(payload) > LARGEST:
            return Failed("too_large", f"{len(payload)} bytes, at most {LARGEST} are allowed")
        try:
            account = self._account(settings)
        except ConfigurationError as error:
            return Down("bad_settings", str(error))
        url = f"{settings.url.rstrip('/')}/3/device/{message.address}"
        token = self._token(account, settings)
        outcome = await _post(url, headers, token, payload, exchange)
        if isinstance(outcome, Down) and outcome.code == EXPIRED:
            # Nothing was sent. A token of this moment is the last resort of a clock that is slow.
            token = self._token(account, settings, refused=token)
            outcome = await _post(url, headers, token, payload, exchange)
        if isinstance(outcome, Sent):
            account.has_succeeded = True
        return outcome

    def _account(self, settings: APNsSettings) -> _Account:
        account = self._accounts.get(settings)
        if account is None:
            account = self._accounts[settings] = _Account(signing_key(settings.private_key))
            if len(self._accounts) > MOST_ACCOUNTS:
                del self._accounts[next(iter(self._accounts))]
        return account

    def _token(self, account: _Account, settings: APNsSettings, refused: str | None = None) -> str:
        """Return the token; a new one in each half hour, and once for all that were refused with the same one."""
        now = self._now()
        dated = now - now % TOKEN_USE
        if account.token == refused:
            dated = now
        if not account.token or account.token == refused or not 0 <= now - account.dated < TOKEN_USE:
            claims = {"iss": settings.team_id, "iat": int(dated)}
            account.token, account.dated = es256(account.key, claims, {"kid": settings.key_id}), dated
        return account.token


async def _post(url: str, headers: Mapping[str, str], token: str, payload: bytes, exchange: Exchange) -> Outcome:
    signed = {"authorization": f"bearer {token}", **headers}
    response = await exchange.http2.post(url, signed, payload, exchange.timeout)
    return _outcome(response, headers["apns-id"]) if isinstance(response, HTTPResponse) else response


def _outcome(response: HTTPResponse, sent_id: str) -> Outcome:
    if response.is_ok:
        # Only Apple knows the id.
        is_accepted = response.headers.get("apns-id", "").lower() == sent_id
        return Sent(sent_id) if is_accepted else Unknown("invalid_response", response.text())
    body = fields(response.json())
    reason = provider_text(body.get("reason"))
    if reason not in MEANINGS and (response.status == 429 or response.status >= 500):  # noqa: PLR2004 - as HTTP defines
        return Retryable(f"http_{response.status}", provider_text(reason), after=retry_after(response.headers))
    if reason not in MEANINGS and response.status in (401, 403):
        return Down(f"http_{response.status}", reason or response.text())
    kind = MEANINGS.get(reason, Failed)
    text = _since(body) if kind is Invalid else ""
    wait = ERROR_WAIT if reason in SERVER_ERRORS and "retry-after" not in response.headers else None
    return coded_refusal(kind, reason or f"http_{response.status}", text or reason or response.text(), response, wait)


def _since(body: Mapping[str, Any]) -> str:
    """Return since when Apple knows that the token is not valid; it sends the time in milliseconds."""
    milliseconds = number(body.get("timestamp"))
    if milliseconds is None:
        return ""
    try:
        return f"since {datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return ""


def _headers(message: Message, settings: APNsSettings, now: float) -> dict[str, str]:
    """Return Apple's headers; ValueError for a wrong option."""
    options = message.options
    kind = options.get("push_type", "alert" if _alert(message) else "background")
    if kind not in PUSH_TYPES:
        raise ValueError(f"push_type must be one of {', '.join(PUSH_TYPES)}")
    priority = options.get("priority", PUSH_TYPES[kind])
    if type(priority) is not int or priority not in PRIORITIES:
        raise ValueError("priority must be 1, 5 or 10")
    same = options.get("collapse_id", short_key(message.key))
    if not (isinstance(same, str) and same == short_key(same) and same.isascii() and same.isprintable()):
        raise ValueError("collapse_id can have at most 64 plain characters")
    headers = {
        "apns-id": str(uuid.uuid5(KEYS, message.key)),
        "apns-topic": settings.topic,
        "apns-push-type": kind,
        "apns-priority": str(priority),
        "apns-collapse-id": same,
    }
    if (ttl := options.get("ttl")) is not None:
        if type(ttl) is not int or not 0 <= ttl <= LONGEST_TTL:
            raise ValueError(f"ttl must be a whole number of seconds from 0 to {LONGEST_TTL}")
        headers["apns-expiration"] = str(int(now) + ttl if ttl else 0)
    return headers


def _alert(message: Message) -> dict[str, str]:
    return {name: text for name, text in (("title", message.title), ("body", message.body)) if text.strip()}


def _payload(message: Message) -> bytes | None:
    """Return Apple's JSON, with the event's payload beside `aps`; None for a push without any content."""
    own, data = message.options.get("aps", {}), message.options.get("data", message.data)
    if not isinstance(own, Mapping) or not isinstance(data, Mapping):
        raise ValueError("the options aps and data must be mappings")  # noqa: TRY004 - one kind of refusal
    if "aps" in data:
        raise ValueError("Apple reserves the name aps in the data: choose others with the option data")
    alert = _alert(message)
    if not alert and not own and not data:
        return None
    aps = {"alert": alert} if alert else {"content-available": 1}
    return msgspec.json.encode({**data, "aps": {**aps, **own}})


def signing_key(pem: str) -> "Key":
    """Load the team's key; ConfigurationError without its text for anything else."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - an extra, needed only to sign
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - the same
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415 - the same

    try:
        key = load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ConfigurationError("private_key must be the content of the .p8 file of a key for APNs")
    return key
