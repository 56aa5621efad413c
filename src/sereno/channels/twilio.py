"""SMS through Twilio's REST API, one message per request.

A message costs money, and Twilio has no idempotency key: a message that may have been sent waits for an operator. The
response to a request only says that the message is queued. The outcome is sent to `status_callback`, if configured.

Account settings: account_sid, auth_token, from_number or messaging_service_sid, status_callback, url.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, ClassVar, Literal
from urllib.parse import parse_qsl

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
    number,
    phone_number,
    post,
    provider_id,
    provider_text,
    text_of,
)
from sereno.errors import RejectedCallback

# Characters of a message, which Twilio splits into several SMS.
LONGEST = 1600
# Upper bound of callback parameters; Twilio sends about twenty.
MOST_PARAMETERS = 200

# Error codes that say more than "this message failed". Codes that depend on the pair of sender and receiver are not
# listed: because of them, a number must not be deactivated and the channel must not stop.
MEANINGS: Mapping[int, Refusal] = {
    20003: Down,  # credentials refused
    20005: Down,  # account not active
    20404: Down,  # no such account
    21603: Down,  # no sender
    21609: Down,  # the callback's URL is invalid
    21660: Down,  # the sender belongs to another account
    21701: Down,  # no such messaging service
    21704: Down,  # a messaging service without numbers
    21705: Down,  # no id of a messaging service
    30002: Down,  # account suspended
    14107: Retryable,  # too many messages from this sender
    20429: Retryable,  # too many requests
    21611: Retryable,  # the sender's queue is full
    30001: Retryable,  # the queue is full
    30022: Retryable,  # the carrier's rate
    30023: Retryable,  # the carrier's daily limit
    63038: Retryable,  # the account's daily limit
    21211: Invalid,  # no phone number
    21214: Invalid,  # cannot be reached
    21217: Invalid,  # no phone number
    21610: Invalid,  # the recipient replied STOP
    21614: Invalid,  # no mobile number
    30003: Invalid,  # unreachable
    30005: Invalid,  # unknown
    30006: Invalid,  # a landline
}

# Codes in receipts for numbers that can never be reached.
UNREACHABLE = frozenset({"21610", "21614", "30003", "30005", "30006"})


class TwilioSettings(ChannelSettings, frozen=True, kw_only=True):
    """Settings of `Twilio`. Messages come from `from_number` or from `messaging_service_sid`."""

    url: Url = "https://api.twilio.com"
    account_sid: Word = ""
    auth_token: Token = ""
    from_number: str = ""
    messaging_service_sid: str = ""
    status_callback: str = ""

    def lacks(self) -> str:
        if not self.account_sid:
            return "account_sid"
        if not self.auth_token:
            return "auth_token"
        return "" if self.from_number or self.messaging_service_sid else "from_number or messaging_service_sid"

    @property
    def basic(self) -> str:
        return base64.b64encode(f"{self.account_sid}:{self.auth_token}".encode()).decode()


class Twilio(SingleMessageChannel[TwilioSettings]):
    """SMS to a number in E.164 format."""

    name: ClassVar[str] = "sms"
    on_unknown: ClassVar[Literal["retry", "park"]] = "park"
    settings_type = TwilioSettings

    def check(self, address: str, _settings: TwilioSettings, /) -> str:
        return phone_number(address)

    def secrets(self, _message: Message, settings: TwilioSettings, /) -> Iterable[str]:
        return (settings.auth_token, settings.basic)

    async def send_one(self, message: Message, settings: TwilioSettings, exchange: Exchange, /) -> Outcome:
        text = text_of(message)
        if not text:
            return Failed("empty", "an SMS needs text")
        if len(text) > LONGEST:
            return Failed("too_long", f"{len(text)} characters, at most {LONGEST} fit into an SMS")
        sender = (
            {"MessagingServiceSid": settings.messaging_service_sid}
            if settings.messaging_service_sid
            else {"From": settings.from_number}
        )
        form = {"To": message.address, "Body": text, **sender}
        if settings.status_callback:
            form["StatusCallback"] = settings.status_callback
        url = f"{settings.url.rstrip('/')}/2010-04-01/Accounts/{settings.account_sid}/Messages.json"
        headers = {"Authorization": f"Basic {settings.basic}"}
        return await post(exchange, url, form, self._read, headers=headers, form=True)

    def _read(self, response: HTTPResponse) -> Outcome:
        body = fields(response.json())
        if response.is_ok:
            sid = provider_id(body.get("sid"))
            return Sent(sid) if sid else Unknown("invalid_response", response.text())
        code = number(body.get("code"))
        if code is None or (code not in MEANINGS and response.status != HTTPStatus.BAD_REQUEST):
            return self.refusal(response)
        return coded_refusal(MEANINGS.get(code, Failed), code, provider_text(body.get("message")), response)

    def webhook(self, callback: Callback, account: Mapping[str, Any]) -> Sequence[Receipt]:
        """Return the receipts of a status callback. Twilio signs the URL it called, which a proxy may have changed."""
        settings = self.settings(account)
        if not settings.auth_token:
            raise RejectedCallback("no auth_token to verify the signature with")
        try:
            parameters = parse_qsl(
                callback.body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_PARAMETERS
            )
        except ValueError:
            raise RejectedCallback("the callback is not a form") from None
        received = callback.headers.get("x-twilio-signature", "").encode("utf-8", "replace")
        urls = [url for url in (settings.status_callback, callback.url) if url]
        # Always compare both, so that the time does not depend on which one matches.
        if not sum(hmac.compare_digest(signature(settings.auth_token, url, parameters), received) for url in urls):
            raise RejectedCallback("the signature is not Twilio's")
        return _receipts(dict(parameters))


def signature(auth_token: str, url: str, parameters: Iterable[tuple[str, str]]) -> bytes:
    """Return the value of X-Twilio-Signature."""
    text = url + "".join(name + value for name, value in sorted(set(parameters)))
    mac = hmac.new(auth_token.encode(), text.encode("utf-8", "replace"), hashlib.sha1)
    return base64.b64encode(mac.digest())


def _receipts(body: Mapping[str, str]) -> Sequence[Receipt]:
    sid, status = provider_id(body.get("MessageSid")), body.get("MessageStatus", "")
    code = provider_text(body.get("ErrorCode"))
    if sid is None:
        return ()
    match status:
        case "delivered" | "read":
            return (Receipt(provider_id=sid, outcome=status, id=f"{sid}.{status}"),)
        case "undelivered" | "failed":
            outcome: Literal["invalid", "failed"] = "invalid" if code in UNREACHABLE else "failed"
            text = provider_text(body.get("ErrorMessage")) or status
            return (Receipt(provider_id=sid, outcome=outcome, code=code, message=text, id=f"{sid}.{status}"),)
        case _:
            return ()
