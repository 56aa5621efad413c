"""WhatsApp through Meta's Cloud API, one message per request.

Free text reaches only users who wrote within the last 24 hours. Others need a template that Meta has approved:
`options = {"template": {"name": …, "language": "pt_BR", "components": […]}}`. There is no idempotency key: a message
that may have been sent waits for an operator. Most refusals arrive later, at the webhook.

Account settings: phone_number_id, access_token, app_secret, url, version.
"""

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from sereno.channels.contract import Callback, Exchange, Message
from sereno.channels.http import HTTPResponse
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Receipt, Retryable, Sent, Unknown
from sereno.channels.single_message import (
    ChannelSettings,
    Refusal,
    SingleMessageChannel,
    Token,
    Url,
    Word,
    coded_refusal,
    fields,
    length,
    number,
    phone_number,
    post,
    provider_id,
    provider_text,
    text_of,
)
from sereno.errors import RejectedCallback

# Characters of a message.
LONGEST = 4096
# Code and subcode for a missing sender number.
NO_SENDER = (100, 33)

# Error codes that say more than "this message failed". All other codes are about the message only: 100, 131008 and
# 131009 (parameters), 131047 (outside the 24 hours), 132000 to 132016 (templates), and others.
MEANINGS: Mapping[int, Refusal] = {
    0: Down,  # credentials refused
    3: Down,  # the application may not do this
    10: Down,  # no permission
    190: Down,  # the access token is expired, revoked or malformed
    **dict.fromkeys(range(200, 300), Down),  # no permission
    368: Down,  # blocked for breaking the rules
    131005: Down,  # no permission
    131031: Down,  # account locked
    131042: Down,  # payment problem
    131045: Down,  # the sender's number is not registered
    133010: Down,  # the sender's number is not registered
    2: Retryable,  # the service is down
    4: Retryable,  # the application's rate
    80007: Retryable,  # the account's rate
    130429: Retryable,  # the number's rate
    131000: Retryable,  # internal error of Meta
    131016: Retryable,  # the service is down
    131048: Retryable,  # too many users marked it as spam
    131056: Retryable,  # too many messages to this user
    131057: Retryable,  # the account is being moved
    131021: Invalid,  # the sender's own number
    131026: Invalid,  # not on WhatsApp, or cannot be reached
}
# The outcome of a receipt for each meaning of a code.
RECEIPT_OUTCOMES: Mapping[Refusal, Literal["down", "retry", "invalid", "failed"]] = {
    Down: "down",
    Retryable: "retry",
    Invalid: "invalid",
    Failed: "failed",
}


class WhatsAppSettings(ChannelSettings, frozen=True, kw_only=True):
    """Settings of `WhatsApp`. `version`: of the Graph API; `app_secret` checks the signatures of its callbacks."""

    url: Url = "https://graph.facebook.com"
    version: Word = "v23.0"
    phone_number_id: Word = ""
    access_token: Token = ""
    app_secret: Token = ""

    def lacks(self) -> str:
        return "" if self.phone_number_id and self.access_token else "phone_number_id or access_token"


class WhatsApp(SingleMessageChannel[WhatsAppSettings]):
    """WhatsApp to a number in E.164 format."""

    name: ClassVar[str] = "whatsapp"
    on_unknown: ClassVar[Literal["retry", "park"]] = "park"
    settings_type = WhatsAppSettings

    def check(self, address: str, _settings: WhatsAppSettings, /) -> str:
        return phone_number(address)

    def secrets(self, _message: Message, settings: WhatsAppSettings, /) -> Iterable[str]:
        return (settings.access_token, settings.app_secret)

    async def send_one(self, message: Message, settings: WhatsAppSettings, exchange: Exchange, /) -> Outcome:
        content = _template(message.options["template"]) if "template" in message.options else _text(message)
        if isinstance(content, Failed):
            return content
        whole = {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to": message.address,
            **content,
        }
        url = f"{settings.url.rstrip('/')}/{settings.version}/{settings.phone_number_id}/messages"
        return await post(
            exchange, url, whole, self._read, headers={"Authorization": f"Bearer {settings.access_token}"}
        )

    def _read(self, response: HTTPResponse) -> Outcome:
        body = fields(response.json())
        error = fields(body.get("error"))
        code = number(error.get("code"))
        if response.is_ok and not error:
            name = next((provider_id(message.get("id")) for message in _objects(body, "messages")), None)
            return Sent(name) if name else Unknown("invalid_response", response.text())
        # The sender's number does not exist or belongs to another account: no message can be sent.
        if (code, error.get("error_subcode")) == NO_SENDER:
            return Down(str(code), _explained(error))
        if code is None or (code not in MEANINGS and response.status not in (400, 403, 404)):
            return self.refusal(response)
        return coded_refusal(MEANINGS.get(code, Failed), code, _explained(error), response)

    def webhook(self, callback: Callback, account: Mapping[str, Any]) -> Sequence[Receipt]:
        """Return the receipts of message statuses. Messages from users arrive at the same webhook, and are ignored."""
        settings = self.settings(account)
        if not settings.app_secret:
            raise RejectedCallback("no app_secret to verify the signature with")
        received = callback.headers.get("x-hub-signature-256", "").encode("utf-8", "replace")
        if not hmac.compare_digest(signature(settings.app_secret, callback.body), received):
            raise RejectedCallback("the signature is not Meta's")
        try:
            body = msgspec.json.decode(callback.body)
        except (msgspec.DecodeError, RecursionError):
            raise RejectedCallback("the callback is not JSON") from None
        statuses = [
            status
            for entry in _objects(fields(body), "entry")
            for change in _objects(entry, "changes")
            for status in _objects(fields(change.get("value")), "statuses")
        ]
        return [receipt for status in statuses if (receipt := _receipt(status)) is not None]


def signature(app_secret: str, body: bytes) -> bytes:
    """Return the value of X-Hub-Signature-256."""
    return b"sha256=" + hmac.new(app_secret.encode(), body, hashlib.sha256).hexdigest().encode()


def _text(message: Message) -> dict[str, Any] | Failed:
    text = text_of(message)
    if not text:
        return Failed("empty", "a message needs text or a template")
    if length(text) > LONGEST:
        return Failed("too_long", f"{length(text)} characters, at most {LONGEST} fit into a message")
    return {"type": "text", "text": {"preview_url": False, "body": text}}


def _template(body: Any) -> dict[str, Any] | Failed:
    match body:
        case {"name": str(name), "language": str(language)} | {"name": str(name), "language": {"code": str(language)}}:
            content = {"name": name, "language": {"code": language}, "components": body.get("components") or []}
            return {"type": "template", "template": content}
        case _:
            return Failed("bad_template", 'a template needs "name" and "language", and may have "components"')


def _receipt(status: Mapping[str, Any]) -> Receipt | None:
    name, kind = provider_id(status.get("id")), status.get("status")
    if name is None:
        return None
    match kind:
        case "delivered" | "read":
            outcome: Literal["delivered", "read"] = kind
            return Receipt(provider_id=name, outcome=outcome, id=f"{name}.{kind}")
        case "failed":
            error = next(_objects(status, "errors"), {})
            code = number(error.get("code"))
            later = "failed" if code is None else RECEIPT_OUTCOMES[MEANINGS.get(code, Failed)]
            text = _explained(error)
            return Receipt(provider_id=name, outcome=later, code=str(code or ""), message=text, id=f"{name}.failed")
        case _:
            return None


def _explained(error: Mapping[str, Any]) -> str:
    text = provider_text(error.get("message")) or provider_text(error.get("title"))
    details = provider_text(fields(error.get("error_data")).get("details"))
    return provider_text(f"{text}: {details}" if text and details else text or details)


def _objects(parent: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    """Return the objects of a list; other items are ignored."""
    listed = parent.get(name)
    return (each for each in (listed if isinstance(listed, list) else []) if isinstance(each, dict))
