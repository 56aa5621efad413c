"""Microsoft Teams through a workflow's webhook, one message per request.

The address is the URL of the workflow's trigger. Its signature is a secret: it appears in no outcome. Microsoft accepts
a message before the workflow posts it, so an accepted one is sent, and there is no report whether it was posted.

The text is shown as it is, without Markdown. `options = {"card": {…}}` sends an Adaptive Card instead.

Account settings: url, for a host other than Microsoft's.
"""

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import parse_qs

import msgspec

from sereno.channels.contract import Exchange, Message
from sereno.channels.http import HTTPResponse
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.channels.single_message import (
    ChannelSettings,
    Refusal,
    SingleMessageChannel,
    Url,
    coded_refusal,
    fields,
    origin,
    post,
    provider_id,
    provider_text,
)
from sereno.errors import InvalidAddress

# Bytes of a message. A larger one is accepted, and then the workflow fails.
LARGEST = 28 * 1024
CARD_TYPE = "application/vnd.microsoft.card.adaptive"
SCHEMA = "http://adaptivecards.io/schemas/adaptive-card.json"
# The newest version that Teams shows on all devices.
CARD_VERSION = "1.4"
NOT_ENABLED = "WorkflowTriggerIsNotEnabled"

# Meaning of the gateway's codes. Other codes fail the message.
MEANINGS: Mapping[str, Refusal] = {
    "WorkflowNotFound": Invalid,
    "WorkflowTriggerNotFound": Invalid,
    "DirectApiAuthorizationRequired": Invalid,
    "DirectApiInvalidAuthorizationScheme": Invalid,
    "AuthorizationFailed": Invalid,
    "InvalidSignature": Invalid,
    "TooManyRequests": Retryable,
    "WorkflowRunActionRepetitionQuotaExceeded": Retryable,
}

_URL = re.compile(
    r"https?://[^/?#@\\\s]+(?:/powerautomate/automations/direct(?:/[a-z0-9]{1,20}){0,4})?"
    r"/workflows/[A-Za-z0-9]{1,64}/triggers/[A-Za-z0-9_-]{1,80}/paths/invoke/?\?([A-Za-z0-9._~%&=+/-]{1,1000})"
)
_HOST = re.compile(r"https://(?:[a-z0-9-]{1,63}\.)+(?:logic\.azure\.com|api\.powerplatform\.com)(?::443)?")


class TeamsSettings(ChannelSettings, frozen=True, kw_only=True):
    """Settings of `Teams`. `url`: where it sends; tests set their own."""

    url: Url = "https://api.powerplatform.com"


class Teams(SingleMessageChannel[TeamsSettings]):
    """A card in a channel or chat of Microsoft Teams."""

    name: ClassVar[str] = "teams"
    largest: ClassVar[int | None] = LARGEST
    settings_type = TeamsSettings

    def check(self, address: str, settings: TeamsSettings, /) -> str:
        address = address.strip(" ")
        found, server = _URL.fullmatch(address), origin(address)
        is_known = _HOST.fullmatch(server) or server == origin(settings.url)
        if not (found and is_known and _signature(address)):
            raise InvalidAddress(
                "the address of a Teams workflow is the URL of its webhook, with sig=…, at logic.azure.com or"
                " api.powerplatform.com"
            )
        return address

    def secrets(self, message: Message, _settings: TeamsSettings, /) -> Iterable[str]:
        return (message.address, _signature(message.address))

    async def send_one(self, message: Message, _settings: TeamsSettings, exchange: Exchange, /) -> Outcome:
        card = message.options.get("card") or _card(message)
        if not isinstance(card, Mapping):
            return Failed("malformed", "the option card must be an Adaptive Card")
        if not card.get("body"):
            return Failed("empty", "a message needs text or a card")
        attachment = {"contentType": CARD_TYPE, "contentUrl": None, "content": card}
        content = {"type": "message", "attachments": [attachment]}
        try:
            size = len(msgspec.json.encode(content))
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            return Failed("malformed", f"the message cannot be encoded: {type(error).__name__}")
        if size > LARGEST:
            return Failed("too_large", f"{size} bytes, at most {LARGEST} are allowed")
        return await post(exchange, message.address, content, self._read)

    def _read(self, response: HTTPResponse) -> Outcome:
        if response.is_ok:
            run = provider_id(response.headers.get("x-ms-workflow-run-id"))
            # Other responses than 202 are those of a workflow that responds itself, or not from Microsoft.
            is_accepted = run is not None or response.status == HTTPStatus.ACCEPTED
            return Sent(run) if is_accepted else Unknown("invalid_response", response.text())
        error = fields(fields(response.json()).get("error"))
        code, text = provider_text(error.get("code")), provider_text(error.get("message"))
        if code == NOT_ENABLED:
            # One that is only turned off keeps its URL, and can be turned on again.
            return coded_refusal(Invalid if "'Deleted'" in text else Failed, code, text, response)
        if code in MEANINGS:
            return coded_refusal(MEANINGS[code], code, text, response)
        refusal = self.refusal(response)
        # Users enter addresses, and a workflow may respond with any status: it must not stop the channel.
        return Retryable(refusal.code, refusal.message) if isinstance(refusal, Down) else refusal


def _signature(address: str) -> str:
    return parse_qs(address.partition("?")[2]).get("sig", [""])[0]


def _card(message: Message) -> dict[str, Any]:
    """Return a card with title and text. Text runs, other than text blocks, have no Markdown, so no hidden links."""
    lines = [(message.title, True), *((line, False) for line in message.body.splitlines())]
    body = [
        {
            "type": "RichTextBlock",
            "inlines": [
                {"type": "TextRun", "text": text, **({"weight": "Bolder", "size": "Large"} if is_title else {})}
            ],
        }
        for text, is_title in lines
        if text.strip()
    ]
    return {"$schema": SCHEMA, "type": "AdaptiveCard", "version": CARD_VERSION, "body": body}
