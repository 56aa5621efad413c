"""Email by Resend, one message per request with its idempotency key, or many without.

For 24 hours Resend sends a message with the same key once, so an email with an unknown outcome is safe to send again.

Account settings: api_key, sender, reply_to, webhook_secret, url.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, ClassVar

from sereno.channels.callback_checks import check_age, json_object, receipts
from sereno.channels.contract import Callback, Exchange, Message
from sereno.channels.email_content import EmailContent
from sereno.channels.email_provider import (
    QUOTA_WAIT,
    EmailBatchProvider,
    EmailProvider,
    EmailProviderSettings,
    post_json,
)
from sereno.channels.http import HTTPResponse
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Receipt, ReceiptOutcome, Retryable, Sent, Unknown
from sereno.channels.single_message import (
    Refusal,
    Token,
    Url,
    coded_refusal,
    fields,
    number,
    provider_id,
    provider_text,
)
from sereno.errors import ConfigurationError, RejectedCallback
from sereno.jobs.limits.limit import Rate

# Characters of an idempotency key.
LONGEST_KEY = 256
# Requests per second that every account has.
RATE = 2
# Seconds. Resend signs each try of a callback anew.
OLDEST_CALLBACK = 300.0
SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix of secrets, not a secret
DAILY_QUOTA = "daily_quota_exceeded"

# Names of errors that say more than "this message failed".
MEANINGS: Mapping[str, Refusal] = {
    "missing_api_key": Down,
    "restricted_api_key": Down,
    "invalid_api_key": Down,
    "invalid_from_address": Down,
    "not_found": Down,
    "monthly_quota_exceeded": Down,
    "rate_limit_exceeded": Retryable,
    DAILY_QUOTA: Retryable,
    "concurrent_idempotent_requests": Retryable,
}
# An earlier try, with other content, has used the key.
KEY_IS_USED = "invalid_idempotent_request"
EVENTS: Mapping[str, tuple[ReceiptOutcome, ...]] = {
    "email.delivered": ("delivered",),
    "email.opened": ("read",),
    "email.clicked": ("clicked",),
    "email.complained": ("complained",),
    "email.failed": ("failed",),
    "email.suppressed": ("invalid",),
}


class ResendSettings(EmailProviderSettings, frozen=True, kw_only=True):
    """Settings of `Resend`. `webhook_secret`: whsec_…, with which the webhook is signed."""

    url: Url = "https://api.resend.com"
    api_key: Token = ""
    webhook_secret: Token = ""

    def lacks(self) -> str:
        return "api_key" if not self.api_key else "" if self.sender else "sender"


class Resend(EmailProvider[ResendSettings]):
    """Email by Resend, each message once."""

    # A batch counts as a whole, and its requests are sent at once.
    batch: ClassVar[int] = 1
    rate: ClassVar[Rate | None] = Rate(RATE)
    largest: ClassVar[int | None] = 20 * 1024 * 1024
    settings_type = ResendSettings

    def secrets(self, _message: Message, settings: ResendSettings, /) -> Iterable[str]:
        return (settings.api_key, settings.webhook_secret)

    async def send_content(self, content: EmailContent, settings: ResendSettings, exchange: Exchange, /) -> Outcome:
        response = await _post(exchange, settings, "/emails", _email(content), idempotency_key([content]))
        if not isinstance(response, HTTPResponse):
            return response
        if not response.is_ok:
            return _refused(response) or self.refusal(response)
        return _sent(response, fields(response.json()))

    def webhook(self, callback: Callback, account: Mapping[str, Any]) -> Sequence[Receipt]:
        """Return the receipt of an event, if it is signed with the secret of the webhook."""
        secret = self.settings(account).webhook_secret
        if not secret:
            raise RejectedCallback("no webhook_secret to verify the signature with")
        name, timestamp = (callback.headers.get(f"svix-{each}", "") for each in ("id", "timestamp"))
        expected = signature(secret, name, timestamp, callback.body)
        # While a secret is rotated, both sign. All are compared, so that the time does not depend on which one matches.
        signatures = [each.encode("utf-8", "replace") for each in callback.headers.get("svix-signature", "").split(" ")]
        if not sum(hmac.compare_digest(each, expected) for each in signatures):
            raise RejectedCallback("the signature is not Resend's")
        check_age(timestamp, self._now(), OLDEST_CALLBACK)
        return _receipts(json_object(callback))


class ResendBatch(EmailBatchProvider[ResendSettings], Resend):
    """Email by Resend, up to 100 messages per request. A try after an unknown outcome may send a message twice."""

    batch: ClassVar[int] = 100
    rate: ClassVar[Rate | None] = Rate(100 * RATE)

    async def send_many(
        self, contents: Sequence[EmailContent], settings: ResendSettings, exchange: Exchange, /
    ) -> Sequence[Outcome]:
        emails = [_email(content) for content in contents]
        response = await _post(exchange, settings, "/emails/batch", emails, idempotency_key(contents))
        if not isinstance(response, HTTPResponse):
            return [response] * len(contents)
        if not response.is_ok:
            return [_refused(response) or self.refusal(response)] * len(contents)
        return _batch_outcomes(response, len(contents))


def idempotency_key(contents: Sequence[EmailContent]) -> str:
    """Return the key of a message, or one of all messages of a request."""
    keys = [content.headers["X-Entity-Ref-ID"] for content in contents]
    if len(keys) == 1 and len(keys[0]) <= LONGEST_KEY:
        return keys[0]
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()


def signature(secret: str, name: str, timestamp: str, body: bytes) -> bytes:
    """Return the signature of a callback."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        # Anyone can sign with an empty key.
        raise ConfigurationError("webhook_secret is not whsec_ and base64: copy the signing secret from Resend")
    signed = f"{name}.{timestamp}.".encode("utf-8", "replace") + body
    return b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())


async def _post(
    exchange: Exchange, settings: ResendSettings, path: str, content: Any, key: str
) -> HTTPResponse | Retryable | Unknown:
    headers = {
        "Authorization": f"Bearer {settings.api_key}",
        "Idempotency-Key": key,
        # One invalid message of a batch does not refuse the others.
        "x-batch-validation": "permissive",
    }
    return await post_json(exchange, f"{settings.url.rstrip('/')}{path}", content, headers)


def _email(content: EmailContent) -> dict[str, Any]:
    email: dict[str, Any] = {
        "from": str(content.sender),
        "to": [content.address],
        "subject": content.subject,
        "headers": {**content.headers, **content.own_headers},
    }
    if content.reply_to is not None:
        email["reply_to"] = str(content.reply_to)
    if content.text:
        email["text"] = content.text
    if content.html:
        email["html"] = content.html
    return email


def _refused(response: HTTPResponse) -> Outcome | None:
    """Return the outcome of an error with a name that says more than its status."""
    body = fields(response.json())
    name, text = provider_text(body.get("name")), provider_text(body.get("message"))
    if name == KEY_IS_USED:
        return Unknown(name, text)
    kind = MEANINGS.get(name)
    if name == "validation_error" and "`to`" in text:
        kind = Invalid
    # The domain of the sender is not verified.
    elif name == "validation_error" and (response.status == HTTPStatus.FORBIDDEN or "`from`" in text):
        kind = Down
    wait = QUOTA_WAIT if name == DAILY_QUOTA else None
    return None if kind is None else coded_refusal(kind, name, text, response, wait)


def _sent(response: HTTPResponse, email: Mapping[str, Any]) -> Outcome:
    name = provider_id(email.get("id"))
    return Sent(name) if name else Unknown("invalid_response", response.text())


def _batch_outcomes(response: HTTPResponse, count: int) -> Sequence[Outcome]:
    """Return the outcomes of a batch: ids of accepted messages in order, and errors with the index of a message."""
    body = fields(response.json())
    accepted, errors = body.get("data"), body.get("errors")
    found = [fields(each) for each in errors] if isinstance(errors, list) else []
    refused = {number(each.get("index")): provider_text(each.get("message")) for each in found}
    if not isinstance(accepted, list) or len(accepted) + len(refused) != count or not set(refused) <= set(range(count)):
        return [Unknown("invalid_response", response.text())] * count
    ids = iter(accepted)
    return [
        Failed("validation_error", refused[position]) if position in refused else _sent(response, fields(next(ids)))
        for position in range(count)
    ]


def _receipts(event: Mapping[str, Any]) -> list[Receipt]:
    kind, data = str(event.get("type")), fields(event.get("data"))
    name = data.get("email_id")
    if kind == "email.bounced":
        bounce = fields(data.get("bounce"))
        outcome: ReceiptOutcome = "invalid" if bounce.get("type") == "Permanent" else "bounced"
        return receipts(name, outcome, code=bounce.get("subType"), message=bounce.get("message"))
    reason = fields(data.get("failed")).get("reason")
    return receipts(name, *EVENTS[kind], message=reason) if kind in EVENTS else []
