"""Email by Mailgun, one message per request.

Mailgun has no idempotency key. It signs a time and a token beside each event, but not the event: callbacks must arrive
over HTTPS. In the EU, `url` is https://api.eu.mailgun.net.

Account settings: api_key, domain, sender, reply_to, signing_key, url.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from io import BytesIO
from typing import Any, ClassVar
from urllib.parse import urlencode

from sereno.channels.callback_checks import check_age, is_secret, json_object, receipts
from sereno.channels.contract import Callback, Exchange, Message
from sereno.channels.email_content import EmailContent
from sereno.channels.email_provider import EmailProvider, EmailProviderSettings
from sereno.channels.http import HTTPResponse, call
from sereno.channels.outcome import Down, Invalid, Outcome, Receipt, ReceiptOutcome, Sent, Unknown
from sereno.channels.single_message import Token, Url, Word, fields, provider_id, provider_text
from sereno.errors import RejectedCallback

# Seconds. Mailgun repeats a callback for eight hours, and does not document whether it signs it anew.
OLDEST_CALLBACK = 9 * 3600.0

EVENTS: Mapping[str, ReceiptOutcome] = {
    "delivered": "delivered",
    "opened": "read",
    "clicked": "clicked",
    "complained": "complained",
    "unsubscribed": "unsubscribed",
    "rejected": "failed",
}
# Why Mailgun has given up a message.
REASONS: Mapping[str, tuple[ReceiptOutcome, ...]] = {
    "bounce": ("invalid",),
    "suppress-bounce": ("invalid",),
    "suppress-complaint": ("failed", "complained"),
    "suppress-unsubscribe": ("failed", "unsubscribed"),
}


class MailgunSettings(EmailProviderSettings, frozen=True, kw_only=True):
    """Settings of `Mailgun`. `domain`: from which it sends. `signing_key`: with which its webhooks are signed."""

    url: Url = "https://api.mailgun.net"
    api_key: Token = ""
    domain: Word = ""
    signing_key: Token = ""

    def lacks(self) -> str:
        return next((name for name in ("api_key", "domain", "sender") if not getattr(self, name)), "")

    @property
    def basic(self) -> str:
        return base64.b64encode(f"api:{self.api_key}".encode()).decode()


class Mailgun(EmailProvider[MailgunSettings]):
    """Email by Mailgun."""

    settings_type = MailgunSettings
    largest: ClassVar[int | None] = 20 * 1024 * 1024

    def secrets(self, _message: Message, settings: MailgunSettings, /) -> Iterable[str]:
        return (settings.api_key, settings.basic, settings.signing_key)

    async def send_content(self, content: EmailContent, settings: MailgunSettings, exchange: Exchange, /) -> Outcome:
        url = f"{settings.url.rstrip('/')}/v3/{settings.domain}/messages"
        headers = {"Authorization": f"Basic {settings.basic}", "Content-Type": "application/x-www-form-urlencoded"}
        form = BytesIO(urlencode(list(_form(content))).encode())
        response = await call(exchange, "POST", url, data=form, headers=headers)
        return self._read(response) if isinstance(response, HTTPResponse) else response

    def _read(self, response: HTTPResponse) -> Outcome:
        body = fields(response.json())
        if response.is_ok:
            name = body.get("id")
            valid = provider_id(name.strip("<>")) if isinstance(name, str) else None
            return Sent(valid) if valid else Unknown("invalid_response", response.text())
        text = provider_text(body.get("message"))
        if response.status == HTTPStatus.BAD_REQUEST and text.startswith(("to parameter", "'to' parameter")):
            return Invalid("http_400", text)
        # No such domain, one of another account, or an unpaid one.
        if response.status in (HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.NOT_FOUND):
            return Down(f"http_{response.status}", text)
        return self.refusal(response)

    def webhook(self, callback: Callback, account: Mapping[str, Any]) -> Sequence[Receipt]:
        """Return the receipts of an event, if its time and token are signed with the key of the account."""
        key = self.settings(account).signing_key
        if not key:
            raise RejectedCallback("no signing_key to verify the signature with")
        body = json_object(callback)
        signed = fields(body.get("signature"))
        timestamp, token = str(signed.get("timestamp")), str(signed.get("token"))
        expected = signature(key, timestamp, token)
        # Events of a subaccount are also signed with the key of the main account.
        received = [str(signed.get(name)) for name in ("signature", "parent-signature")]
        if not sum(is_secret(each, expected) for each in received):
            raise RejectedCallback("the signature is not Mailgun's")
        check_age(timestamp, self._now(), OLDEST_CALLBACK)
        return _receipts(fields(body.get("event-data")))


def signature(key: str, timestamp: str, token: str) -> str:
    """Return the signature of a callback."""
    return hmac.new(key.encode(), f"{timestamp}{token}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _form(content: EmailContent) -> Iterator[tuple[str, str]]:
    yield "from", str(content.sender)
    yield "to", content.address
    yield "subject", content.subject
    if content.text:
        yield "text", content.text
    if content.html:
        yield "html", content.html
    if content.reply_to is not None:
        yield "h:Reply-To", str(content.reply_to)
    for name, value in {**content.headers, **content.own_headers}.items():
        yield f"h:{name}", value


def _receipts(event: Mapping[str, Any]) -> list[Receipt]:
    kind = str(event.get("event"))
    name = fields(fields(event.get("message")).get("headers")).get("message-id")
    if kind != "failed":
        return receipts(name, EVENTS[kind]) if kind in EVENTS else []
    if event.get("severity") != "permanent":
        # It is tried again.
        return []
    status = fields(event.get("delivery-status"))
    text = status.get("message") or status.get("description")
    reason = str(event.get("reason"))
    return receipts(name, *REASONS.get(reason, ("bounced",)), code=reason, message=text)
