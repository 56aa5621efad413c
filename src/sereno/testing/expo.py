"""A local Expo push service: tickets, receipts, and the errors of the real one.

async with ExpoProvider() as expo:
    expo.tickets["ExponentPushToken[gone]"] = "DeviceNotRegistered"
    …
    assert [message["to"] for message in expo.accepted] == […]
"""

import asyncio
import gzip
import re
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from sereno.testing.provider import Provider, Request

SEND = "/--/api/v2/push/send"
RECEIPTS = "/--/api/v2/push/getReceipts"
MOST_MESSAGES = 100
MOST_RECEIPTS = 1000
MOST_CONNECTIONS = 6
LARGEST = 4096
# Project of tokens without an entry in `projects`.
PROJECT = "@sereno/app"

# Stricter than the real service is fine; more lenient is not.
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TOKEN = re.compile(rf"Expo(nent)?PushToken\[[^\[\]]+\]|{_UUID.pattern}")
_FIELDS: Mapping[str, tuple[type, ...]] = {
    "to": (str,),
    "title": (str,),
    "subtitle": (str,),
    "body": (str,),
    "data": (dict,),
    "sound": (str, dict),
    "badge": (int,),
    "ttl": (int,),
    "priority": (str,),
    "channelId": (str,),
    "categoryId": (str,),
    "mutableContent": (bool,),
}


class ExpoProvider(Provider):
    """Accepts pushes like Expo.

    `access_token`: the required token, or None. `per_second`: messages per project and second, then 429. `projects`:
    project of a token. `tickets`: the error in a token's ticket. `receipts_of`: the error in its receipt; None for one
    that does not exist yet; a token without an entry is ok. `refused`: tokens for which it refuses the whole request.
    `open`: while cleared, it does not respond. `accepted`: every accepted message, in order. `keys`: every access token
    that was sent, in order.
    """

    def __init__(
        self,
        *,
        access_token: str | None = None,
        per_second: int | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.access_token = access_token
        self.per_second = per_second
        self.projects: dict[str, str] = {}
        self.tickets: dict[str, str] = {}
        self.receipts_of: dict[str, str | None] = {}
        self.refused: set[str] = set()
        self.open = asyncio.Event()
        self.open.set()
        self.accepted: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self._now = now
        self._taken: dict[str, deque[float]] = {}
        self._token_of: dict[str, str] = {}
        self._responses: deque[web.Response] = deque()
        self._connections = 0

    def say(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Respond to the next request with this content; bytes are sent unchanged."""
        self._responses.append(_response(content, status, headers))

    def batches(self) -> list[list[str]]:
        """Return the tokens of each send request."""
        return [[message["to"] for message in _read(request)] for request in self.log if request.path == SEND]

    async def answer(self, request: Request) -> web.StreamResponse:
        token_sent = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token_sent:
            self.keys.append(token_sent)
        self._connections += 1
        try:
            if self._connections > MOST_CONNECTIONS:
                return _refusal("TOO_MANY_REQUESTS", "too many connections", 429, headers={"Retry-After": "1"})
            await self.open.wait()
            return self._responses.popleft() if self._responses else self._answer(request, token_sent)
        finally:
            self._connections -= 1

    def _answer(self, request: Request, token_sent: str) -> web.Response:
        if (denied := self._denied(token_sent)) is not None:
            return denied
        if request.method != "POST" or request.path not in (SEND, RECEIPTS):
            return web.Response(status=404, text="Not Found")
        match _read(request):
            case list(messages) if request.path == SEND:
                return self._take(messages)
            case {"ids": list(ids)} if request.path == RECEIPTS:
                return self._receipts(ids)
            case _:
                return _refusal("VALIDATION_ERROR", "neither messages nor ids")

    def _denied(self, token_sent: str) -> web.Response | None:
        if self.access_token is None or token_sent == self.access_token:
            return None
        if token_sent:
            return _response({"error": "invalid_token", "error_description": f"{token_sent} is not valid"}, 401)
        return _refusal("UNAUTHORIZED", "this project requires an access token", 403)

    def _take(self, messages: list[Any]) -> web.Response:
        if len(messages) > MOST_MESSAGES:
            return _refusal("PUSH_TOO_MANY_NOTIFICATIONS", f"{len(messages)} messages, at most {MOST_MESSAGES}")
        for place, message in enumerate(messages):
            if not _is_message(message) or message["to"] in self.refused:
                return _refusal("VALIDATION_ERROR", f"[{place}] is not a message")
        projects: dict[str, list[str]] = {}
        for message in messages:
            projects.setdefault(self.projects.get(message["to"], PROJECT), []).append(message["to"])
        if len(projects) > 1:
            text = "all messages of a request must be for one project"
            return _refusal("PUSH_TOO_MANY_EXPERIENCE_IDS", text, details=projects)
        if any(not self._has_capacity(project, len(tokens)) for project, tokens in projects.items()):
            return _refusal("TOO_MANY_REQUESTS", "too many messages a second", 429, headers={"Retry-After": "1"})
        return _response({"data": [self._ticket(message) for message in messages]})

    def _has_capacity(self, project: str, count: int) -> bool:
        if self.per_second is None:
            return True
        now, taken = self._now(), self._taken.setdefault(project, deque())
        while taken and taken[0] <= now - 1:
            taken.popleft()
        if len(taken) + count > self.per_second:
            return False
        taken.extend([now] * count)
        return True

    def _ticket(self, message: dict[str, Any]) -> dict[str, Any]:
        token = message["to"]
        arriving = {name: value for name, value in message.items() if name not in ("to", "ttl", "priority")}
        is_large = len(msgspec.json.encode(arriving)) > LARGEST
        if (code := "MessageTooBig" if is_large else self.tickets.get(token)) is not None:
            return _error(token, code)
        self.accepted.append(message)
        ticket = str(uuid.uuid4())
        self._token_of[ticket] = token
        return {"status": "ok", "id": ticket}

    def _receipts(self, ids: list[Any]) -> web.Response:
        if len(ids) > MOST_RECEIPTS:
            return _refusal("PUSH_TOO_MANY_RECEIPTS", f"{len(ids)} ids, at most {MOST_RECEIPTS}")
        if not all(isinstance(each, str) and _UUID.fullmatch(each) for each in ids):
            return _refusal("VALIDATION_ERROR", "an id must be a UUID")
        receipts: dict[str, Any] = {}
        for each in ids:
            token = self._token_of.get(each)
            if token is None or (token in self.receipts_of and self.receipts_of[token] is None):
                continue
            code = self.receipts_of.get(token)
            receipts[each] = {"status": "ok"} if code is None else _error(token, code)
        return _response({"data": receipts})


def _read(request: Request) -> Any:
    """Return the decoded body; the HTTP server may have decompressed it already."""
    body = gzip.decompress(request.body) if request.body[:2] == b"\x1f\x8b" else request.body
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None


def _is_message(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and _TOKEN.fullmatch(str(message.get("to"))) is not None
        and all(type(value) in _FIELDS.get(name, ()) for name, value in message.items())
    )


def _error(token: str, code: str) -> dict[str, Any]:
    return {"status": "error", "message": f'"{token}": {code}', "details": {"error": code, "expoPushToken": token}}


def _refusal(
    code: str, message: str, status: int = 400, *, details: Any = None, headers: Mapping[str, str] | None = None
) -> web.Response:
    error = {"code": code, "message": message, "isTransient": status == 429}  # noqa: PLR2004 - too many requests
    return _response({"errors": [error if details is None else {**error, "details": details}]}, status, headers)


def _response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    body = content if isinstance(content, bytes) else msgspec.json.encode(content)
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")
