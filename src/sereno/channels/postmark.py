"""Email by Postmark, up to 100 messages per request.

Postmark has no idempotency key. It does not sign its webhooks: it sends the user and the password entered there.

Account settings: server_token, sender, reply_to, message_stream, webhook_user, webhook_password, url.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from sereno.channels.callback_checks import is_secret, json_object, receipts
from sereno.channels.contract import Callback, Exchange, Message
from sereno.channels.email_content import EmailContent
from sereno.channels.email_provider import EmailBatchProvider, EmailProviderSettings, post_json
from sereno.channels.http import HTTPResponse
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Receipt, ReceiptOutcome, Retryable, Sent, Unknown
from sereno.channels.single_message import (
    Refusal,
    Token,
    Url,
    Word,
    coded_refusal,
    fields,
    number,
    provider_id,
    provider_text,
)
from sereno.errors import RejectedCallback

# Error codes that say more than "this message failed".
MEANINGS: Mapping[int, Refusal] = {
    10: Down,  # the token is refused
    400: Down,  # no sender signature
    401: Down,  # the sender signature is not confirmed
    405: Down,  # no credits
    412: Down,  # the account is not approved yet
    413: Down,  # the account may not send
    1235: Down,  # no such message stream
    100: Retryable,  # maintenance
    429: Retryable,  # too many requests
    406: Invalid,  # bounced, or complained, or was suppressed
}
# One of the fields of a message is invalid; the text names it.
INVALID_FIELD = 300
# Reports about an address that a message did not reach. `Transient` is tried again; the others of these did arrive.
BOUNCES: Mapping[str, tuple[ReceiptOutcome, ...]] = {
    "HardBounce": ("invalid",),
    "BadEmailAddress": ("invalid",),
    "SpamComplaint": ("complained",),
    "Unsubscribe": ("unsubscribed",),
    **dict.fromkeys(("Transient", "AutoResponder", "AddressChange", "Subscribe", "ChallengeVerification"), ()),
}
EVENTS: Mapping[str, ReceiptOutcome] = {
    "Delivery": "delivered",
    "Open": "read",
    "Click": "clicked",
    "SpamComplaint": "complained",
}


class PostmarkSettings(EmailProviderSettings, frozen=True, kw_only=True):
    """Settings of `Postmark`. `webhook_user`, `webhook_password`: as entered for the webhook."""

    url: Url = "https://api.postmarkapp.com"
    server_token: Token = ""
    message_stream: Word = "outbound"
    webhook_user: str = ""
    webhook_password: str = ""

    def lacks(self) -> str:
        return "server_token" if not self.server_token else "" if self.sender else "sender"


class Postmark(EmailBatchProvider[PostmarkSettings]):
    """Email by Postmark."""

    batch: ClassVar[int] = 100
    settings_type = PostmarkSettings

    def secrets(self, _message: Message, settings: PostmarkSettings, /) -> Iterable[str]:
        return (settings.server_token, settings.webhook_password)

    async def send_many(
        self, contents: Sequence[EmailContent], settings: PostmarkSettings, exchange: Exchange, /
    ) -> Sequence[Outcome]:
        emails = [_email(content, settings.message_stream) for content in contents]
        headers = {"Accept": "application/json", "X-Postmark-Server-Token": settings.server_token}
        response = await post_json(exchange, f"{settings.url.rstrip('/')}/email/batch", emails, headers)
        if not isinstance(response, HTTPResponse):
            return [response] * len(contents)
        results = response.json()
        if not response.is_ok:
            return [self._refused(response, fields(results))] * len(contents)
        if not isinstance(results, list) or len(results) != len(contents):
            return [Unknown("invalid_response", response.text())] * len(contents)
        return [self._result(response, fields(each)) for each in results]

    def _refused(self, response: HTTPResponse, body: Mapping[str, Any]) -> Outcome:
        code = number(body.get("ErrorCode"))
        if code is None or code not in MEANINGS:
            return self.refusal(response)
        return coded_refusal(MEANINGS[code], code, provider_text(body.get("Message")), response)

    def _result(self, response: HTTPResponse, result: Mapping[str, Any]) -> Outcome:
        code, text = number(result.get("ErrorCode")), provider_text(result.get("Message"))
        if code == 0:
            name = provider_id(result.get("MessageID"))
            return Sent(name) if name else Unknown("invalid_response", text)
        if code is None:
            return Unknown("invalid_response", text)
        kind = MEANINGS.get(code, Failed)
        if code == INVALID_FIELD and "'To'" in text:
            kind = Invalid
        elif code == INVALID_FIELD and "'From'" in text:
            kind = Down
        return coded_refusal(kind, code, text, response)

    def webhook(self, callback: Callback, account: Mapping[str, Any]) -> Sequence[Receipt]:
        """Return the receipts of an event, if the request has the user and the password of the settings."""
        settings = self.settings(account)
        if not settings.webhook_password:
            raise RejectedCallback("no webhook_password to check the request with")
        scheme, _, received = callback.headers.get("authorization", "").partition(" ")
        expected = base64.b64encode(f"{settings.webhook_user}:{settings.webhook_password}".encode()).decode()
        if not is_secret(received.strip(), expected) or scheme.lower() != "basic":
            raise RejectedCallback("the user or the password is not that of the webhook")
        return _receipts(json_object(callback))


def _email(content: EmailContent, stream: str) -> dict[str, Any]:
    headers = {**content.headers, **content.own_headers}
    email: dict[str, Any] = {
        "From": str(content.sender),
        "To": content.address,
        "Subject": content.subject,
        "MessageStream": stream,
        "Headers": [{"Name": name, "Value": value} for name, value in headers.items()],
    }
    if content.reply_to is not None:
        email["ReplyTo"] = str(content.reply_to)
    if content.text:
        email["TextBody"] = content.text
    if content.html:
        email["HtmlBody"] = content.html
    return email


def _receipts(event: Mapping[str, Any]) -> list[Receipt]:
    name, kind = event.get("MessageID"), str(event.get("RecordType"))
    match kind:
        case "Bounce":
            code = str(event.get("Type"))
            text = event.get("Details") or event.get("Description")
            return receipts(name, *BOUNCES.get(code, ("bounced",)), code=code, message=text)
        case "SubscriptionChange":
            # A bounce and a complaint have reports of their own.
            is_refused = event.get("SuppressSending") is True and event.get("Origin") == "Recipient"
            has_left = is_refused and event.get("SuppressionReason") == "ManualSuppression"
            return receipts(name, "unsubscribed") if has_left else []
        case _:
            return receipts(name, EVENTS[kind]) if kind in EVENTS else []
