"""Email by Amazon SES (API v2), one message per request; its events arrive by SNS.

SES has no idempotency key. Events are published to a topic of SNS by a configuration set; the callback of this channel
confirms the subscription of the topic by itself. Raw message delivery must be off: raw messages have no signature.

Account settings: region, access_key_id, secret_access_key, session_token, sender, reply_to, configuration_set,
topic_arn, url.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from io import BytesIO
from typing import Annotated, Any, ClassVar

import msgspec

from sereno.channels import sns
from sereno.channels.aws_signature import AwsCredentials, signed_headers
from sereno.channels.callback_checks import receipts
from sereno.channels.contract import Callback, Exchange, Message
from sereno.channels.email_content import EmailContent
from sereno.channels.email_provider import QUOTA_WAIT, EmailProvider, EmailProviderSettings
from sereno.channels.http import HTTPResponse, call
from sereno.channels.outcome import Down, Failed, Outcome, Receipt, ReceiptOutcome, Retryable, Sent, Unknown
from sereno.channels.single_message import Refusal, Token, Word, coded_refusal, fields, provider_id, provider_text
from sereno.errors import RejectedCallback
from sereno.jobs.limits.limit import Rate

PATH = "/v2/email/outbound-emails"
# Certificates of SNS that are kept; it changes them about once a year.
MOST_CERTIFICATES = 8
# Refusals for the quota of a day and for the rate have one type.
DAILY_QUOTA = "Daily message quota exceeded"

# Error types that say more than their status.
MEANINGS: Mapping[str, Refusal] = {
    "AccountSuspendedException": Down,
    "SendingPausedException": Down,
    "MailFromDomainNotVerifiedException": Down,
    "NotFoundException": Down,  # no such configuration set
    "MessageRejected": Failed,
    "BadRequestException": Failed,
    "TooManyRequestsException": Retryable,
    "ThrottlingException": Retryable,
    "LimitExceededException": Retryable,
}
EVENTS: Mapping[str, ReceiptOutcome] = {
    "Delivery": "delivered",
    "Open": "read",
    "Click": "clicked",
    "Reject": "failed",
    "Rendering Failure": "failed",
}


class SESSettings(EmailProviderSettings, frozen=True, kw_only=True):
    """Settings of `SES`. `session_token`: of a role. `topic_arn`: the topic of SNS whose messages are accepted."""

    url: Annotated[str, msgspec.Meta(pattern=r"\A(https?://[^\s/?#@\\]+/?)?\Z")] = ""
    region: Annotated[str, msgspec.Meta(pattern=r"\A([a-z0-9-]+)?\Z")] = ""
    access_key_id: Word = ""
    secret_access_key: Token = ""
    session_token: Token = ""
    configuration_set: Word = ""
    topic_arn: Token = ""

    def lacks(self) -> str:
        needed = ("region", "access_key_id", "secret_access_key", "sender")
        return next((name for name in needed if not getattr(self, name)), "")

    @property
    def server(self) -> str:
        china = ".cn" if self.region.startswith("cn-") else ""
        return self.url.rstrip("/") or f"https://email.{self.region}.amazonaws.com{china}"

    @property
    def credentials(self) -> AwsCredentials:
        return AwsCredentials(
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
            session_token=self.session_token,
            region=self.region,
            service="ses",
        )


class SES(EmailProvider[SESSettings]):
    """Email by Amazon SES. `sns_url`: a local SNS for tests; by default that of Amazon in the region of the topic."""

    # What a new account may send per second; a batch counts as a whole, and its requests are sent at once.
    rate: ClassVar[Rate | None] = Rate(14)
    batch: ClassVar[int] = 7
    settings_type = SESSettings

    def __init__(
        self, *, now: Callable[[], datetime] = lambda: datetime.now(UTC), sns_url: str = "", **defaults: str | bool
    ) -> None:
        super().__init__(now=now, **defaults)
        self._sns_url = sns_url.rstrip("/")
        self._certificates: dict[str, bytes] = {}

    def secrets(self, _message: Message, settings: SESSettings, /) -> Iterable[str]:
        return (settings.secret_access_key, settings.session_token, settings.access_key_id)

    async def send_content(self, content: EmailContent, settings: SESSettings, exchange: Exchange, /) -> Outcome:
        url, body = settings.server + PATH, msgspec.json.encode(_email(content, settings))
        plain = {"Content-Type": "application/json"}
        headers = signed_headers(settings.credentials, "POST", url, plain, body, self._now())
        response = await call(exchange, "POST", url, data=BytesIO(body), headers=headers)
        return self._read(response, content) if isinstance(response, HTTPResponse) else response

    def _read(self, response: HTTPResponse, content: EmailContent) -> Outcome:
        body = fields(response.json())
        if response.is_ok:
            name = provider_id(body.get("MessageId"))
            return Sent(name) if name else Unknown("invalid_response", response.text())
        code = provider_text(response.headers.get("x-amzn-errortype")).partition(":")[0]
        text = provider_text(body.get("message") or body.get("Message"))
        kind = MEANINGS.get(code)
        if kind is None:
            return self.refusal(response)
        # An address that is not verified is named: that of the sender, or in the sandbox that of the recipient.
        if code == "MessageRejected" and "not verified" in text and content.sender.address in text:
            kind = Down
        wait = QUOTA_WAIT if text.startswith(DAILY_QUOTA) else None
        return coded_refusal(kind, code, text, response, wait)

    async def read_callback(self, callback: Callback, exchange: Exchange) -> Sequence[Receipt]:
        """Load the certificate of a message of SNS, verify the message, and confirm a subscription."""
        message = self._message(callback, exchange.account)
        if message.certificate not in self._certificates:
            certificate = await _get(exchange, message.certificate)
            # Stored only when it has verified a message: others would fill the memory.
            sns.verify(message, certificate, self._now())
            while len(self._certificates) >= MOST_CERTIFICATES:
                del self._certificates[next(iter(self._certificates))]
            self._certificates[message.certificate] = certificate
        found = self.webhook(callback, exchange.account)
        if message.type == "SubscriptionConfirmation":
            await _get(exchange, message.subscribe_url or "")
        return found

    def webhook(self, callback: Callback, account: Mapping[str, Any]) -> Sequence[Receipt]:
        """Return the receipts of a message whose certificate `read_callback` has loaded."""
        message = self._message(callback, account)
        certificate = self._certificates.get(message.certificate)
        if certificate is None:
            raise RejectedCallback("the certificate of the message is not loaded")
        sns.verify(message, certificate, self._now())
        return _receipts(message.message) if message.type == "Notification" else ()

    def _message(self, callback: Callback, account: Mapping[str, Any]) -> sns.SnsMessage:
        topic = self.settings(account).topic_arn
        return sns.read_message(callback, topic, self._sns_url or sns.server_of(topic))


async def _get(exchange: Exchange, url: str) -> bytes:
    """Return the body at a URL that was checked. After a ConnectionError, SNS posts its message again."""
    response = await call(exchange, "GET", url)
    if not isinstance(response, HTTPResponse) or response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise ConnectionError("SNS cannot be reached to verify or confirm its message")
    if not response.is_ok:
        raise RejectedCallback(f"SNS refuses the certificate or the confirmation: status {response.status}")
    return response.body


def _email(content: EmailContent, settings: SESSettings) -> dict[str, Any]:
    texts = (("Text", content.text), ("Html", content.html))
    headers = {**content.headers, **content.own_headers}
    simple = {
        "Subject": _text(content.subject),
        "Body": {name: _text(text) for name, text in texts if text},
        "Headers": [{"Name": name, "Value": value} for name, value in headers.items()],
    }
    email: dict[str, Any] = {
        "FromEmailAddress": str(content.sender),
        "Destination": {"ToAddresses": [content.address]},
        "Content": {"Simple": simple},
    }
    if content.reply_to is not None:
        email["ReplyToAddresses"] = [str(content.reply_to)]
    if settings.configuration_set:
        email["ConfigurationSetName"] = settings.configuration_set
    return email


def _text(text: str) -> dict[str, str]:
    return {"Data": text, "Charset": "UTF-8"}


def _receipts(text: str) -> list[Receipt]:
    try:
        event = fields(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError):
        return []
    kind = str(event.get("eventType") or event.get("notificationType"))
    name = fields(event.get("mail")).get("messageId")
    match kind:
        case "Bounce":
            bounce = fields(event.get("bounce"))
            recipients = bounce.get("bouncedRecipients")
            about = fields(recipients[0]) if isinstance(recipients, list) and recipients else {}
            outcome: ReceiptOutcome = "invalid" if bounce.get("bounceType") == "Permanent" else "bounced"
            return receipts(name, outcome, code=bounce.get("bounceSubType"), message=about.get("diagnosticCode"))
        case "Complaint":
            complaint = fields(event.get("complaint"))
            # SES has not sent the message, because of an earlier complaint.
            is_unsent = complaint.get("complaintSubType") == "OnAccountSuppressionList"
            kinds: tuple[ReceiptOutcome, ...] = ("failed", "complained") if is_unsent else ("complained",)
            return receipts(name, *kinds, message=complaint.get("complaintFeedbackType"))
        case "Subscription":
            preferences = fields(fields(event.get("subscription")).get("newTopicPreferences"))
            return receipts(name, "unsubscribed") if preferences.get("unsubscribeAll") is True else []
        case _:
            return receipts(name, EVENTS[kind]) if kind in EVENTS else []
