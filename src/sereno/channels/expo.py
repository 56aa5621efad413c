"""Expo push: a request has up to a hundred messages of one project, and its response a ticket for each.

A ticket only says that Expo accepted the message. The response of Apple or Google is in the receipt, available 15
minutes later for a day. Expo has no idempotency key: a message that is sent again after a lost response may arrive
twice.

A request that Expo refuses as a whole sent nothing: it is split by project or in halves until the faulty message is
alone. The parts are sent one after the other, because Expo allows only a few connections.
"""

import gzip
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from sereno.channels.contract import Channel, Exchange, Message
from sereno.channels.http import MOST_TEXT, HTTPResponse, call, refused, retry_after
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Receipt, Retryable, Sent, Unknown
from sereno.errors import InvalidAddress
from sereno.jobs.limits.limit import Rate

URL = "https://exp.host"
SEND = "/--/api/v2/push/send"
RECEIPTS = "/--/api/v2/push/getReceipts"
# Largest message in bytes for Apple and Google, without what Expo adds.
LARGEST = 4096
# Receipts per request.
MOST_RECEIPTS = 1000
# Expo requires gzip above this size in bytes.
GZIP_ABOVE = 1024
# The fastest level: the default, 6, saves 5 % of the bytes and takes 50 % longer.
GZIP_LEVEL = 1
# Characters of a ticket's id.
LONGEST_ID = 200
# Characters. Shorter access tokens are not masked: they could be part of any word of a response.
SHORTEST_SECRET = 8
# Meaning of a code in a ticket and in a receipt. Other codes, such as MessageTooBig, fail the message.
CODES: Mapping[str, tuple[type[Invalid | Failed | Retryable | Down], Literal["invalid", "retry", "down", "failed"]]] = {
    "DeviceNotRegistered": (Invalid, "invalid"),
    "MessageRateExceeded": (Retryable, "retry"),
    "MismatchSenderId": (Down, "down"),
    "InvalidCredentials": (Down, "down"),
    "TOO_MANY_REQUESTS": (Retryable, "failed"),
    "ProviderError": (Retryable, "failed"),
    "ExpoError": (Retryable, "failed"),
}
# HTTP statuses for a faulty request. Any other refusal means that the URL of the service is wrong.
WRONG_REQUEST = (400, 413, 422)

_TOKEN = re.compile(r"Expo(?:nent)?PushToken\[[!-Z^-~]{1,200}\]")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_URL = re.compile(r"https?://(?:[\w-]{1,63}(?:\.[\w-]{1,63})*|\[[\da-f:.]+\])(?::\d{1,5})?(?:/[\w.~/-]*)?", re.ASCII)
_SECRET = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_CODE = re.compile(r"[\w.-]{1,64}", re.ASCII)


class _ExpoPush(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A message in Expo's format. Its types are checked, because one faulty message fails the whole request."""

    to: str = ""
    title: str = ""
    body: str = ""
    data: dict[str, Any] = {}
    # Options that a template may set.
    sound: str | dict[str, Any] | None = None
    badge: int | None = None
    ttl: int | None = None
    priority: Literal["default", "normal", "high"] | None = None
    channel_id: str | None = None
    category_id: str | None = None
    subtitle: str | None = None
    mutable_content: bool | None = None


class _EncodedPush(NamedTuple):
    """One encoded message and its position in the batch."""

    position: int
    address: str
    body: bytes


class _ExpoReply(NamedTuple):
    """The result of one request: outcomes by position, and parts to send again."""

    outcomes: dict[int, Outcome]
    resend: list[list[_EncodedPush]]
    # Set if the service itself fails: the remaining parts are not sent, and are retried later.
    failure: Retryable | Unknown | None = None


class Expo(Channel):
    """Push to apps made with Expo. `access_token`: for projects that require one."""

    name = "expo"
    batch = 100
    rate = Rate(600, per="1s")
    at_once = 6
    receipts_after = 900.0
    receipts_for = 24 * 3600.0
    receipts_batch = 300
    largest = LARGEST

    def __init__(self, access_token: str | None = None, url: str = URL) -> None:
        self._defaults: dict[str, Any] = {"access_token": access_token, "url": url}

    def check_address(self, address: str) -> str:
        token = address.strip() if isinstance(address, str) else ""
        if not (_TOKEN.fullmatch(token) or _UUID.fullmatch(token)):
            raise InvalidAddress("an Expo push token is ExponentPushToken[…], ExpoPushToken[…] or a UUID")
        return token

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        outcomes: dict[int, Outcome] = {}
        pushes: list[_EncodedPush] = []
        for position, message in enumerate(batch):
            encoded = self._encode(position, message)
            if isinstance(encoded, _EncodedPush):
                pushes.append(encoded)
            else:
                outcomes[position] = encoded
        waiting = _chunks(pushes, self.batch)
        while waiting:
            part = waiting.pop(0)
            reply = await self._request(part, exchange)
            outcomes |= reply.outcomes
            waiting[:0] = reply.resend
            if reply.failure is not None:
                after = reply.failure.after if isinstance(reply.failure, Retryable) else None
                unsent = Retryable("not_sent", f"an earlier part of the batch failed with {reply.failure.code}", after)
                outcomes |= {push.position: unsent for left in waiting for push in left}
                break
        return [outcomes[position] for position in range(len(batch))]

    async def receipts(self, ids: Sequence[str], exchange: Exchange) -> Sequence[Receipt]:
        """Return what Apple and Google reported. "delivered": they accepted it, but a phone may not have shown it."""
        found: list[Receipt] = []
        waiting = _chunks(list(dict.fromkeys(ids)), MOST_RECEIPTS)
        while waiting:
            part = waiting.pop(0)
            response = await self._call(RECEIPTS, msgspec.json.encode({"ids": part}), exchange)
            receipts = _content(response).get("data") if isinstance(response, HTTPResponse) and response.is_ok else None
            if isinstance(receipts, dict):
                found += [receipt for each in part if (receipt := _receipt(each, receipts.get(each))) is not None]
            elif isinstance(response, HTTPResponse) and response.status in WRONG_REQUEST:
                # Too many ids, or an invalid one: request the halves separately.
                waiting[:0] = _halves(part)
            else:
                break
        return tuple(found)

    def _encode(self, position: int, message: Message) -> _EncodedPush | Outcome:
        try:
            address = self.check_address(message.address)
        except InvalidAddress as error:
            return Invalid("InvalidAddress", str(error))
        data = dict(message.data)
        try:
            push = _ExpoPush(address, message.title, message.body, data)
            if message.options:
                # Only options can have wrong types.
                own = {"to": address, "title": message.title, "body": message.body, "data": data}
                push = msgspec.convert({**message.options, **own}, _ExpoPush)
            body = msgspec.json.encode(push)
            size = len(body)
            if size > LARGEST:
                # The other fields control the delivery and are not part of the message that arrives.
                size = len(msgspec.json.encode(msgspec.structs.replace(push, to="", ttl=None, priority=None)))
        except (TypeError, ValueError, ArithmeticError, RecursionError, msgspec.MsgspecError) as error:
            return Failed("Malformed", str(error)[:MOST_TEXT])
        if size > LARGEST:
            return Failed("MessageTooBig", f"{size} bytes, at most {LARGEST} are allowed")
        return _EncodedPush(position, address, body)

    async def _request(self, part: list[_EncodedPush], exchange: Exchange) -> _ExpoReply:
        """Send one request, and return the outcome of each message."""
        response = await self._call(SEND, b"[" + b",".join(push.body for push in part) + b"]", exchange)
        if not isinstance(response, HTTPResponse):
            return _for_all(part, response)
        content = _content(response)
        tickets, error = content.get("data"), _error(response, content)
        if error is not None and not (response.is_ok and tickets):
            return _refused(part, response, error)
        if not isinstance(tickets, list) or len(tickets) != len(part):
            return _for_all(part, Unknown("invalid_response", f"a success without {len(part)} tickets"))
        return _ExpoReply({push.position: _outcome(ticket) for push, ticket in zip(part, tickets, strict=True)}, [])

    async def _call(self, path: str, body: bytes, exchange: Exchange) -> HTTPResponse | Retryable | Unknown | Down:
        settings = exchange.over(self._defaults)
        url, secret = settings.get("url", URL), settings.get("access_token")
        if not isinstance(url, str) or not _URL.fullmatch(url):
            return Down("bad_url", "the setting url is not a plain http or https URL")
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if secret not in (None, ""):
            if not isinstance(secret, str) or not _SECRET.fullmatch(secret):
                return Down("bad_access_token", "the setting access_token is not valid in a header")
            headers["Authorization"] = f"Bearer {secret}"
        if len(body) > GZIP_ABOVE:
            body = gzip.compress(body, GZIP_LEVEL, mtime=0)
            headers["Content-Encoding"] = "gzip"
        response = await call(exchange, "POST", url.rstrip("/") + path, data=body, headers=headers)
        if isinstance(secret, str) and len(secret) >= SHORTEST_SECRET and isinstance(response, HTTPResponse):
            return _mask(secret, response)
        return response


def _refused(part: list[_EncodedPush], response: HTTPResponse, error: Mapping[str, Any]) -> _ExpoReply:
    """Return the outcomes of a request that was refused as a whole."""
    code, message = _reason(error, error.get("code", ""))
    by_status, (by_code, _) = refused(response), CODES.get(code, (Failed, "failed"))
    if isinstance(by_status, Down) or (by_code is Down and not isinstance(by_status, Retryable)):
        return _for_all(part, Down(code, message))
    if isinstance(by_status, Retryable) or by_code is Retryable:
        return _for_all(part, Retryable(code, message, retry_after(response.headers)))
    if code == "PUSH_TOO_MANY_EXPERIENCE_IDS":
        return _by_project(part, error.get("details"), Retryable(code, message))
    if code in ("VALIDATION_ERROR", "PUSH_TOO_MANY_NOTIFICATIONS") or response.status in WRONG_REQUEST:
        return _ExpoReply({}, _halves(part)) if len(part) > 1 else _for_all(part, Failed(code, message))
    if response.is_ok:
        return _for_all(part, Unknown(code, message))
    # A redirect, 404 or 405: the server at this URL is not Expo.
    return _for_all(part, Down(code, message))


def _by_project(part: list[_EncodedPush], details: Any, unnamed: Retryable) -> _ExpoReply:
    """Split into one request per project, as far as the response names the projects."""
    project_of: dict[str, str] = {}
    for project, tokens in details.items() if isinstance(details, dict) else ():
        for token in tokens if isinstance(tokens, list) else ():
            if isinstance(token, str):
                project_of.setdefault(token, project)
    groups: dict[str | None, list[_EncodedPush]] = {}
    for push in part:
        groups.setdefault(project_of.get(push.address), []).append(push)
    later = groups.pop(None, [])
    if any(len(group) == len(part) for group in groups.values()):
        # All messages are of one project: the same request would be refused again, endlessly.
        groups, later = {}, part
    return _ExpoReply({push.position: unnamed for push in later}, list(groups.values()))


def _for_all(part: list[_EncodedPush], outcome: Outcome) -> _ExpoReply:
    failure = outcome if isinstance(outcome, Retryable | Unknown) else None
    return _ExpoReply({push.position: outcome for push in part}, [], failure)


def _outcome(ticket: Any) -> Outcome:
    if not isinstance(ticket, dict):
        return Unknown("invalid_response", "a ticket that is not an object")
    status, provider_id = ticket.get("status"), ticket.get("id")
    if status == "ok" and isinstance(provider_id, str) and 0 < len(provider_id) <= LONGEST_ID:
        return Sent(provider_id)
    if status == "error":
        code, message = _reason(ticket)
        meaning, _ = CODES.get(code, (Failed, "failed"))
        return meaning(code, message)
    return Unknown("invalid_response", "a ticket that is neither ok with an id nor an error")


def _receipt(provider_id: str, receipt: Any) -> Receipt | None:
    match receipt:
        case {"status": "ok"}:
            return Receipt(provider_id=provider_id, outcome="delivered")
        case {"status": "error"}:
            code, message = _reason(receipt)
            _, outcome = CODES.get(code, (Failed, "failed"))
            return Receipt(provider_id=provider_id, outcome=outcome, code=code, message=message)
        case _:
            return None


def _reason(entry: Mapping[str, Any], code: Any = None) -> tuple[str, str]:
    """Return Expo's code and message. A push token is a secret, so it is masked in the message."""
    match entry:
        case {"details": {"error": error}} if code is None:
            code = error
    message = entry.get("message")
    words = _TOKEN.sub("ExponentPushToken[…]", message)[:MOST_TEXT] if isinstance(message, str) else ""
    return code if isinstance(code, str) and _CODE.fullmatch(code) else "unspecified", words


def _error(response: HTTPResponse, content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the error of the whole request; Expo sends one. None for a success."""
    match content.get("errors"):
        case [dict(first), *_]:
            return first
        case _:
            return None if response.is_ok else {"code": f"http_{response.status}", "message": response.text()}


def _content(response: HTTPResponse) -> Mapping[str, Any]:
    """Return the object in the response; empty for any other content."""
    try:
        content = msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _mask(secret: str, response: HTTPResponse) -> HTTPResponse:
    """Mask the access token in the response. JSON is decoded first, because an escape could hide the token."""
    body = msgspec.json.encode(content) if (content := _content(response)) else response.body
    return msgspec.structs.replace(response, body=body.replace(secret.encode(), b"***"))


def _chunks(items: list[Any], size: int) -> list[list[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _halves(items: list[Any]) -> list[list[Any]]:
    return _chunks(items, (len(items) + 1) // 2) if len(items) > 1 else []
