"""Web Push: messages to browsers through the push service that the browser chose (RFC 8030).

The address is the subscription's endpoint; `keys` are its `p256dh` and `auth`. Messages are encrypted for that browser
(RFC 8188, RFC 8291) and signed with the key of the account (VAPID, RFC 8292):

    account = {"vapid_private_key": "…", "subject": "mailto:ops@example.org"}

The service worker gets JSON: title, body, id, data, and the fields of the option `notification` (icon, actions, tag).
The subscriber chooses the endpoint, so its responses are trusted only about its own subscription.
"""

import asyncio
import base64
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from sereno.channels.contract import Channel, Exchange, Message
from sereno.channels.http import HTTPResponse, call, refused
from sereno.channels.jwt import SCALAR_BYTES, base64url, es256
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.channels.ssrf import guarded_session, is_never_refused, is_refused, objection, read_target
from sereno.errors import ConfigurationError, InvalidAddress

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey as Key

# Bytes that every push service accepts (RFC 8030, section 7.2); and the text's part of them, without the encryption.
LARGEST_BODY = 4096
LARGEST_TEXT = 3993
RECORD_SIZE = 4096
POINT_BYTES, AUTH_BYTES, SALT_BYTES = 65, 16, 16
# Longest and default time to live in seconds; services refuse longer ones.
LONGEST_TTL = 28 * 86400
TTL = 86400
URGENCIES = ("very-low", "low", "normal", "high")
# Seconds until a token expires; a day is allowed (RFC 8292, section 2), and half of it tolerates wrong clocks.
TOKEN_LIFE = 12 * 3600
# Seconds after which a token is replaced, and tokens that are cached.
TOKEN_USE = 3600
MOST_TOKENS = 1000
PORTS = (443,)
# Only these services are believed when they refuse our credentials: a made-up endpoint must not stop the channel.
SERVICES = (".fcm.googleapis.com", ".push.services.mozilla.com", ".notify.windows.com", ".push.apple.com")

_TOPIC = re.compile(r"[A-Za-z0-9_-]{1,32}")
_SUBJECT = re.compile(r"(mailto:|https://)[!-~]{1,200}")
_PROVIDER_ID = re.compile(r"[!-~]{1,300}")


class PushToken(msgspec.Struct):
    """A VAPID token for one push service. `is_good`: the service has accepted it."""

    since: float
    header: str
    is_good: bool = False

    def __repr__(self) -> str:
        return "PushToken(…)"


class PreparedPush(msgspec.Struct, frozen=True):
    """One message, encrypted and signed. `is_known`: its push service is one of SERVICES."""

    url: str
    body: bytes
    headers: dict[str, str]
    token: PushToken
    is_known: bool

    def __repr__(self) -> str:
        return "PreparedPush(…)"


class GuardedExchange(Exchange):
    """Calls user-entered endpoints with the SSRF protection of webhooks."""

    @property
    def http(self) -> Any:
        if self._session is None:
            self._session = guarded_session(self.timeout, refuses=is_never_refused if self.private else is_refused)
        return self._session


class WebPush(Channel):
    """Encrypts for the browser and signs for the push service; one request per message."""

    name = "web_push"
    batch = 20
    largest = LARGEST_BODY

    def __init__(self, now: Callable[[], float] = time.time, **defaults: Any) -> None:
        """`defaults`: vapid_private_key, subject and ttl, for accounts without their own."""
        self._now = now
        self._defaults = defaults
        self._tokens: OrderedDict[tuple[str, str, bytes], PushToken] = OrderedDict()

    def check_address(self, address: str) -> str:
        try:
            return read_target(address).url
        except InvalidAddress:
            raise InvalidAddress("the endpoint of a subscription must be an https:// URL") from None

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        account = {**self._defaults, **exchange.account}
        try:
            key, subject = private_key(account.get("vapid_private_key")), _subject(account)
        except ConfigurationError as error:
            return [Down("vapid", str(error))] * len(batch)
        prepared = [self._prepare(each, account, key, subject, exchange.private) for each in batch]
        async with GuardedExchange(account, private=exchange.private, timeout=exchange.timeout) as guarded:
            outcomes = await asyncio.gather(*(_send(each, guarded) for each in prepared))
        # Only after all requests: if one message is accepted, the key is good for the whole batch.
        return [_final_outcome(*each) for each in zip(prepared, outcomes, strict=True)]

    def _prepare(
        self, message: Message, account: Mapping[str, Any], key: "Key", subject: str, private: bool
    ) -> PreparedPush | Outcome:
        try:
            target = read_target(message.address)
        except InvalidAddress:
            return Invalid("bad_address", "the endpoint of a subscription must be an https:// URL")
        if not private and objection(target, PORTS):
            return Invalid("address_refused", "the endpoint of a subscription must be an https:// URL on a public host")
        try:
            headers, text = _headers(message.options, account), _text(message)
        except ValueError as error:
            return Failed("bad_message", str(error))
        if len(text) > LARGEST_TEXT:
            return Failed("too_large", f"{len(text)} bytes, at most {LARGEST_TEXT} are allowed")
        try:
            browser = _bytes(message.keys.get("p256dh"), POINT_BYTES)
            body = encrypt(text, browser, _bytes(message.keys.get("auth"), AUTH_BYTES))
        except ValueError:
            return Invalid("bad_keys", "p256dh must be a point of P-256 and auth 16 bytes, both in base64url")
        token = self._token(msgspec.structs.replace(target, path="").url, key, subject)
        is_known = private or f".{target.host}".endswith(SERVICES)
        return PreparedPush(target.url, body, headers | {"Authorization": token.header}, token, is_known)

    def _token(self, audience: str, key: "Key", subject: str) -> PushToken:
        """Return the token for a push service, created once an hour so that the service can cache its check."""
        now, public = self._now(), public_point(key)
        token = self._tokens.get((audience, subject, public))
        if token is None or not 0 <= now - token.since < TOKEN_USE:
            signed = vapid_token(key, audience, subject, int(now) + TOKEN_LIFE)
            token = PushToken(now, f"vapid t={signed}, k={base64url(public)}")
            self._tokens[audience, subject, public] = token
            # Endpoints are untrusted: the oldest token is dropped, so that made-up endpoints do not fill the memory.
            if len(self._tokens) > MOST_TOKENS:
                self._tokens.popitem(last=False)
        return token


def encrypt(text: bytes, browser: bytes, auth: bytes, sender: "Key | None" = None, salt: bytes | None = None) -> bytes:
    """Return one aes128gcm record for the owner of the public key `browser`; ValueError if it is not on the curve.

    `sender` and `salt` are random for each message, unless a test sets them.
    """
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - needed only for Web Push
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - the same

    peer = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), browser)
    sender = sender or ec.generate_private_key(ec.SECP256R1())
    salt = salt or os.urandom(SALT_BYTES)
    point = public_point(sender)
    shared = _derive(sender.exchange(ec.ECDH(), peer), auth, b"WebPush: info\0" + browser + point, 32)
    content_key = _derive(shared, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(shared, salt, b"Content-Encoding: nonce\0", 12)
    # The byte 2 marks the last record; there is only one.
    record = AESGCM(content_key).encrypt(nonce, text + b"\x02", None)
    return salt + RECORD_SIZE.to_bytes(4) + bytes([len(point)]) + point + record


def vapid_token(key: "Key", audience: str, subject: str, expires: int) -> str:
    """Return a JWT signed with ES256, which identifies the sender to one push service."""
    return es256(key, {"aud": audience, "exp": expires, "sub": subject}, {})


def application_server_key(private: str) -> str:
    """Return the public key for `pushManager.subscribe`, from the private key of the account."""
    return base64url(public_point(private_key(private)))


def private_key(text: Any) -> "Key":
    """Load the key of an account, from PEM or from 32 bytes in base64url."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - see encrypt
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - the same
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415 - the same

    refusal = ConfigurationError("vapid_private_key must be a private key of P-256, as PEM or as 32 bytes in base64url")
    if not isinstance(text, str):
        raise refusal
    try:
        if "-----BEGIN" not in text:
            return ec.derive_private_key(int.from_bytes(_bytes(text, SCALAR_BYTES)), ec.SECP256R1())
        key = load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The message of the exception may quote the key.
        raise refusal from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise refusal
    return key


def public_point(key: "Key") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415 - see encrypt

    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _derive(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - see encrypt
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415 - the same

    return HKDF(hashes.SHA256(), length, salt, info).derive(secret)


def _subject(account: Mapping[str, Any]) -> str:
    subject = account.get("subject")
    if not isinstance(subject, str) or not _SUBJECT.fullmatch(subject):
        raise ConfigurationError("subject must be a contact for the push service: mailto:… or https://…")
    return subject


def _headers(options: Mapping[str, Any], account: Mapping[str, Any]) -> dict[str, str]:
    ttl = options.get("ttl", account.get("ttl", TTL))
    if type(ttl) is not int or not 0 <= ttl <= LONGEST_TTL:
        raise ValueError(f"ttl must be a whole number of seconds from 0 to {LONGEST_TTL}")
    headers = {"TTL": str(ttl), "Content-Encoding": "aes128gcm", "Content-Type": "application/octet-stream"}
    urgency, topic = options.get("urgency"), options.get("topic")
    if urgency is not None and urgency not in URGENCIES:
        raise ValueError(f"urgency must be one of {', '.join(URGENCIES)}")
    if topic is not None and not (isinstance(topic, str) and _TOPIC.fullmatch(topic)):
        raise ValueError("topic can have at most 32 letters, digits, - or _")
    return headers | ({"Urgency": urgency} if urgency else {}) | ({"Topic": topic} if topic else {})


def _text(message: Message) -> bytes:
    more = message.options.get("notification", {})
    if not isinstance(more, Mapping):
        raise ValueError("notification must be a mapping of options for showNotification")  # noqa: TRY004 - one kind of refusal
    content = {"title": message.title, "body": message.body, "id": message.key, "data": message.data, **more}
    try:
        return msgspec.json.encode(content)
    except (TypeError, ValueError, RecursionError):
        raise ValueError("the data cannot be encoded as JSON") from None


async def _send(push: PreparedPush | Outcome, exchange: Exchange) -> Outcome:
    if not isinstance(push, PreparedPush):
        return push
    response = await call(exchange, "POST", push.url, data=push.body, headers=push.headers)
    if not isinstance(response, HTTPResponse):
        return response
    if response.status in (200, 201, 202):
        # A push service never returns HTML; a captive portal does.
        if "html" in response.headers.get("content-type", "").lower():
            return Unknown("no_push_service", "the response is an HTML page, not from a push service")
        push.token.is_good = True
        message_id = response.headers.get("location", "").rpartition("/")[2]
        return Sent(message_id if _PROVIDER_ID.fullmatch(message_id) else None)
    if response.status in (404, 410):
        return Invalid("gone", "the subscription has ended")
    try:
        # The text of an untrusted server is not stored.
        outcome = refused(response if push.is_known else HTTPResponse(response.status, response.headers, b""))
    except OverflowError:
        # Retry-After has a date beyond the range of datetime.
        return Retryable(f"http_{response.status}")
    return outcome or Unknown(f"http_{response.status}", "not a response of a push service")


def _final_outcome(push: PreparedPush | Outcome, outcome: Outcome) -> Outcome:
    """Return Down only if a known push service refuses our credentials and has never accepted them.

    If the service accepts other messages with our key, this subscription was created with another key. A refusal by an
    unknown endpoint says nothing about our credentials.
    """
    if not isinstance(push, PreparedPush) or not isinstance(outcome, Down):
        return outcome
    if push.token.is_good:
        return Failed("other_key", "the push service accepts our key, but not for this subscription")
    return outcome if push.is_known else Failed(outcome.code, outcome.message)


def _bytes(text: Any, length: int) -> bytes:
    """Decode `length` bytes from base64url, with or without padding; ValueError for anything else."""
    plain = text.strip().rstrip("=") if isinstance(text, str) else ""
    decoded = base64.b64decode(plain[: 2 * length] + "=" * (-len(plain) % 4), altchars=b"-_", validate=True)
    if len(decoded) != length:
        raise ValueError(f"{len(decoded)} bytes instead of {length}")
    return decoded
