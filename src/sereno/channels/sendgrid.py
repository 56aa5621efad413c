"""Email by SendGrid, one message per request.

SendGrid has no idempotency key. A response only says that the message is queued; everything else is reported to its
event webhook, in batches signed with its key.

Account settings: api_key, sender, reply_to, verification_key, url.
"""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, ClassVar

from sereno.channels.callback_checks import check_age, json_of, receipts
from sereno.channels.contract import Callback, Exchange, Message
from sereno.channels.email_content import EmailContent, Mailbox
from sereno.channels.email_provider import EmailProvider, EmailProviderSettings, post_json
from sereno.channels.http import HTTPResponse
from sereno.channels.outcome import Down, Invalid, Outcome, Receipt, ReceiptOutcome, Retryable, Sent, Unknown
from sereno.channels.single_message import Token, Url, fields, provider_id, provider_text, wait
from sereno.errors import ConfigurationError, RejectedCallback

# Seconds. SendGrid repeats a callback for a day, and does not document whether it signs it anew.
OLDEST_CALLBACK = 25 * 3600.0
# The id of a message, in the id with which events name it: the rest is about servers of SendGrid.
_SERVERS = re.compile(r"\.(?:filter|recv).*", re.DOTALL)

EVENTS: Mapping[str, ReceiptOutcome] = {
    "delivered": "delivered",
    "open": "read",
    "click": "clicked",
    "spamreport": "complained",
    "unsubscribe": "unsubscribed",
    "group_unsubscribe": "unsubscribed",
}
# Why SendGrid has not sent a message that it accepted.
DROPS: Mapping[str, tuple[ReceiptOutcome, ...]] = {
    "Bounced Address": ("invalid",),
    "Invalid": ("invalid",),
    "Spam Reporting Address": ("failed", "complained"),
    "Unsubscribed Address": ("failed", "unsubscribed"),
}


class SendGridSettings(EmailProviderSettings, frozen=True, kw_only=True):
    """Settings of `SendGrid`. `verification_key`: the public key of the signed event webhook."""

    url: Url = "https://api.sendgrid.com"
    api_key: Token = ""
    verification_key: Token = ""

    def lacks(self) -> str:
        return "api_key" if not self.api_key else "" if self.sender else "sender"


class SendGrid(EmailProvider[SendGridSettings]):
    """Email by SendGrid."""

    largest: ClassVar[int | None] = 20 * 1024 * 1024
    settings_type = SendGridSettings

    def secrets(self, _message: Message, settings: SendGridSettings, /) -> Iterable[str]:
        return (settings.api_key,)

    async def send_content(self, content: EmailContent, settings: SendGridSettings, exchange: Exchange, /) -> Outcome:
        headers = {"Authorization": f"Bearer {settings.api_key}"}
        response = await post_json(exchange, f"{settings.url.rstrip('/')}/v3/mail/send", _email(content), headers)
        return self._read(response) if isinstance(response, HTTPResponse) else response

    def _read(self, response: HTTPResponse) -> Outcome:
        if response.status == HTTPStatus.ACCEPTED:
            name = provider_id(response.headers.get("x-message-id"))
            return Sent(name) if name else Unknown("invalid_response", "no X-Message-Id")
        if response.status == HTTPStatus.TOO_MANY_REQUESTS:
            return Retryable("http_429", response.text(), after=self._reset(response.headers))
        error = _first_error(response)
        about, text = str(error.get("field")), provider_text(error.get("message"))
        if response.status == HTTPStatus.BAD_REQUEST and about.startswith("personalizations.0.to"):
            return Invalid("http_400", text)
        if response.status == HTTPStatus.BAD_REQUEST and about.startswith("from"):
            return Down("http_400", text)
        return self.refusal(response)

    def _reset(self, headers: Mapping[str, str]) -> float | None:
        """Return the seconds until the rate is free again: SendGrid names the instant."""
        at = headers.get("x-ratelimit-reset", "")
        is_instant = at.isascii() and at.isdigit() and len(at) <= 12  # noqa: PLR2004 - until the year 33658
        return wait(max(0.0, int(at) - self._now().timestamp()) if is_instant else None, headers)

    def webhook(self, callback: Callback, account: Mapping[str, Any]) -> Sequence[Receipt]:
        """Return the receipts of a batch of events, if it is signed with SendGrid's key."""
        settings = self.settings(account)
        timestamp = callback.headers.get("x-twilio-email-event-webhook-timestamp", "")
        signed = timestamp.encode("utf-8", "replace") + callback.body
        signature = callback.headers.get("x-twilio-email-event-webhook-signature", "")
        if not settings.verification_key or not _is_signed(settings.verification_key, signature, signed):
            raise RejectedCallback("the signature is not SendGrid's, or there is no verification_key")
        check_age(timestamp, self._now(), OLDEST_CALLBACK)
        events = json_of(callback)
        if not isinstance(events, list):
            raise RejectedCallback("the callback is not a list of events")
        return [receipt for event in events for receipt in _receipts(fields(event))]


def _email(content: EmailContent) -> dict[str, Any]:
    texts = (("text/plain", content.text), ("text/html", content.html))
    email: dict[str, Any] = {
        "personalizations": [{"to": [{"email": content.address}]}],
        "from": _mailbox(content.sender),
        "subject": content.subject,
        "content": [{"type": kind, "value": text} for kind, text in texts if text],
        "headers": {**content.headers, **content.own_headers},
    }
    if content.reply_to is not None:
        email["reply_to"] = _mailbox(content.reply_to)
    return email


def _mailbox(about: Mailbox) -> dict[str, str]:
    return {"email": about.address, **({"name": about.name} if about.name else {})}


def _first_error(response: HTTPResponse) -> Mapping[str, Any]:
    errors = fields(response.json()).get("errors")
    return fields(errors[0]) if isinstance(errors, list) and errors else {}


def _is_signed(key: str, signature: str, signed: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm  # noqa: PLC0415 - an extra
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - the same
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - the same
    from cryptography.hazmat.primitives.serialization import load_der_public_key  # noqa: PLC0415 - the same

    try:
        public = load_der_public_key(base64.b64decode(key, validate=True))
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigurationError("verification_key is not a public key in base64") from None
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise ConfigurationError("verification_key is not a key of SendGrid: those are of an elliptic curve")
    try:
        public.verify(base64.b64decode(signature, validate=True), signed, ec.ECDSA(SHA256()))
    except (ValueError, InvalidSignature):
        return False
    return True


def _receipts(event: Mapping[str, Any]) -> list[Receipt]:
    name, kind = event.get("sg_message_id"), str(event.get("event"))
    name = _SERVERS.sub("", name) if isinstance(name, str) else None
    code, reason = str(event.get("status") or ""), event.get("reason")
    match kind:
        case "bounce":
            # A `blocked` message was refused for another reason than its address.
            outcome: ReceiptOutcome = "bounced" if event.get("type") == "blocked" else "invalid"
            return receipts(name, outcome, code=code, message=reason)
        case "dropped":
            return receipts(name, *DROPS.get(str(reason), ("failed",)), code="dropped", message=reason)
        case _:
            return receipts(name, EVENTS[kind]) if kind in EVENTS else []
