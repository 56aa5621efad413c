"""Push to Android, iOS and web apps through Firebase Cloud Messaging (HTTP v1), one message per request.

The address is the app's registration token. The account is the file of a service account, as Google gives it:

    app.channels.add(FCM(), **json.loads(Path("service-account.json").read_text()))

With its key a token for all requests of an hour is obtained. FCM has no idempotency key: messages carry their key as
the tag on Android and as the collapse id on iOS, so that a message that arrives twice replaces itself on the screen.

Account settings: project_id, client_email, private_key, private_key_id, token_uri, url.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from sereno.channels.contract import Exchange, Message
from sereno.channels.google_token import AccessToken, GoogleTokens, ServiceAccount
from sereno.channels.http import HTTPResponse
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Retryable, Sent, Unknown
from sereno.channels.single_message import (
    Refusal,
    SingleMessageChannel,
    Url,
    Word,
    coded_refusal,
    failed_alone,
    fields,
    post,
    provider_id,
    provider_text,
    short_key,
    without_secrets,
)
from sereno.errors import InvalidAddress
from sereno.jobs.limits.limit import Rate

SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
# Bytes of notification and data together.
LARGEST = 4096
# Seconds to wait after a refusal for the quota without a Retry-After.
QUOTA_WAIT = 60
# Parts of an FCM message that a template may set; FCM checks their content.
OPTIONS = ("android", "apns", "webpush", "fcm_options")
BAD_TOKEN = "The registration token is not a valid FCM registration token"  # noqa: S105 - the text of an error
MISMATCH, QUOTA, EXPIRED = "SENDER_ID_MISMATCH", "QUOTA_EXCEEDED", "UNAUTHENTICATED"

# Meaning of FCM's codes, and of Google's for errors without one. Other codes fail the message.
MEANINGS: Mapping[str, Refusal] = {
    "UNREGISTERED": Invalid,
    # The key of Apple or Web Push that the project has: messages to Android still arrive.
    "THIRD_PARTY_AUTH_ERROR": Retryable,
    QUOTA: Retryable,
    "RESOURCE_EXHAUSTED": Retryable,
    "UNAVAILABLE": Retryable,
    "INTERNAL": Retryable,
    "DEADLINE_EXCEEDED": Retryable,
    "ABORTED": Retryable,
    EXPIRED: Down,
    "PERMISSION_DENIED": Down,
    "NOT_FOUND": Down,  # the project; a token would be UNREGISTERED
    MISMATCH: Down,
}

_TOKEN = re.compile(r"[A-Za-z0-9_:.-]{10,1000}")


class FCMSettings(ServiceAccount, frozen=True, kw_only=True):
    """Settings of `FCM`: the fields of a service account's file."""

    url: Url = "https://fcm.googleapis.com"
    project_id: Word = ""

    def lacks(self) -> str:
        return super().lacks() or ("" if self.project_id else "project_id")


class FCM(SingleMessageChannel[FCMSettings]):
    """A push to an app that uses Firebase."""

    name: ClassVar[str] = "fcm"
    batch: ClassVar[int] = 100
    # The default quota of a project: 600,000 a minute.
    rate: ClassVar[Rate | None] = Rate(10_000, per="1s")
    at_once: ClassVar[int | None] = 10
    largest: ClassVar[int | None] = LARGEST
    settings_type = FCMSettings

    def __init__(self, now: Callable[[], float] = time.time, **defaults: str) -> None:
        super().__init__(**defaults)
        self._tokens = GoogleTokens(SCOPE, now)

    def check(self, address: str, _settings: FCMSettings, /) -> str:
        token = address.strip(" ")
        if not _TOKEN.fullmatch(token):
            raise InvalidAddress("a registration token of FCM has 10 to 1000 letters, digits and _ : . -")
        return token

    def secrets(self, message: Message, settings: FCMSettings, /) -> Iterable[str]:
        return (message.address, settings.private_key)

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        """Send the messages; Down for a foreign token only if the account was never accepted for another one."""
        outcomes = await super().send(batch, exchange)
        text = "the token belongs to another project"
        return failed_alone(outcomes, MISMATCH, text, lambda: self._has_succeeded(exchange))

    def _has_succeeded(self, exchange: Exchange) -> bool:
        return self._tokens.has_succeeded(self.settings(exchange.account, alone=exchange.stands_alone))

    async def send_one(self, message: Message, settings: FCMSettings, exchange: Exchange, /) -> Outcome:
        try:
            content = _content(message)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            return Failed("malformed", provider_text(str(error)))
        if not content.keys() & {"notification", "data"}:
            return Failed("empty", "a push needs text or data")
        token = await self._tokens.get(settings, exchange)
        outcome = await self._post(content, token, settings, exchange)
        if isinstance(token, AccessToken) and isinstance(outcome, Down) and outcome.code == EXPIRED:
            # Revoked before its time. Nothing was sent, and a new one shows whether the account is at fault.
            self._tokens.drop(settings, token)
            outcome = await self._post(content, await self._tokens.get(settings, exchange), settings, exchange)
        if isinstance(outcome, Sent):
            self._tokens.mark_success(settings)
        return outcome

    async def _post(
        self, content: Mapping[str, Any], token: AccessToken | Outcome, settings: FCMSettings, exchange: Exchange
    ) -> Outcome:
        if not isinstance(token, AccessToken):
            return token
        url = f"{settings.url.rstrip('/')}/v1/projects/{settings.project_id}/messages:send"
        headers = {"Authorization": f"Bearer {token.value}"}
        outcome = await post(exchange, url, {"message": content}, self._read, headers=headers)
        return without_secrets(outcome, (token.value,))

    def _read(self, response: HTTPResponse) -> Outcome:
        body = fields(response.json())
        if response.is_ok:
            # projects/…/messages/<id>
            message_id = (provider_id(body.get("name")) or "").rpartition("/")[2]
            return Sent(message_id) if message_id else Unknown("invalid_response", response.text())
        error = fields(body.get("error"))
        code, message = _code(error), provider_text(error.get("message"))
        if not code:
            return self.refusal(response)
        kind = Invalid if code == "INVALID_ARGUMENT" and _is_about_token(error) else MEANINGS.get(code, Failed)
        wait = QUOTA_WAIT if code == QUOTA and "retry-after" not in response.headers else None
        return coded_refusal(kind, code, message, response, wait)


def _content(message: Message) -> dict[str, Any]:
    """Return the message in FCM's format; ValueError if an option or the payload does not fit in it."""
    options = message.options
    shown = {"title": message.title, "body": message.body, "image": options.get("image")}
    notification = {name: text for name, text in shown.items() if text and str(text).strip()}
    content: dict[str, Any] = {"token": message.address}
    if data := _data(options.get("data", message.data)):
        content["data"] = data
    if notification:
        same = short_key(message.key)
        content["notification"] = notification
        content["android"] = {"notification": {"tag": same}}
        content["apns"] = {"headers": {"apns-collapse-id": same}}
    chosen = {name: options[name] for name in OPTIONS if name in options}
    if wrong := [name for name, value in chosen.items() if not isinstance(value, Mapping)]:
        raise ValueError(f"the option {wrong[0]} must be a mapping")
    return _merged(content, chosen)


def _data(payload: Any) -> dict[str, str]:
    """Return the payload with texts as values, which is all that FCM takes: other values as JSON."""
    if not isinstance(payload, Mapping):
        raise ValueError("the option data must be a mapping")  # noqa: TRY004 - one kind of refusal
    for name in payload:
        if name in ("from", "message_type") or name.startswith(("google", "gcm")):
            raise ValueError(f"FCM reserves the name {name!r:.40} in data: choose others with the option data")
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in payload.items()
    }


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        name: _merged(base[name], over[name])
        for name in base.keys() & over.keys()
        if isinstance(base[name], Mapping) and isinstance(over[name], Mapping)
    }
    return {**base, **over, **both}


def _code(error: Mapping[str, Any]) -> str:
    """Return FCM's code, or else Google's status; empty if the response is not from Google."""
    found = (fields(detail).get("errorCode") for detail in _list(error.get("details")))
    return provider_text(next((code for code in found if isinstance(code, str) and code), error.get("status")))


def _is_about_token(error: Mapping[str, Any]) -> bool:
    details = [fields(detail) for detail in _list(error.get("details"))]
    violations = [fields(each) for detail in details for each in _list(detail.get("fieldViolations"))]
    return error.get("message") == BAD_TOKEN or any(each.get("field") == "message.token" for each in violations)


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
