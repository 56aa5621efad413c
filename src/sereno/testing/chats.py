"""Local Discord, Slack, Microsoft Teams and Telegram: their limits, errors and ids."""

import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web

from sereno.testing.provider import RETRY_AFTER, Provider, Request

# Seconds in the body of a 429, finer than the header allows.
FINE_RETRY_AFTER = 1.25


class DiscordProvider(Provider):
    """`refuses`: the (status, code) of all further responses. `sent`: accepted messages by id."""

    def __init__(self) -> None:
        super().__init__()
        self.token = secrets.token_urlsafe(51)
        self.refuses: tuple[int, int] | None = None
        self.sent: dict[str, dict[str, Any]] = {}

    @property
    def address(self) -> str:
        return f"{self.url}/api/webhooks/1088834422309888000/{self.token}"

    async def answer(self, request: Request) -> web.StreamResponse:
        path, _, query = request.path.partition("?")
        content = request.json()
        refusal = self.refuses or self._refusal(path, content)
        if refusal is not None:
            status, code = refusal
            if status == web.HTTPTooManyRequests.status_code:
                limited = {"message": "You are being rate limited.", "retry_after": FINE_RETRY_AFTER, "global": False}
                return web.json_response(limited, status=status, headers={"Retry-After": "2"})
            return web.json_response({"message": f"Refused: {path}", "code": code}, status=status)
        name = str(1088834422309888000 + len(self.sent) + 1)
        self.sent[name] = content
        if query != "wait=true":
            return web.Response(status=204)
        return web.json_response({"id": name, "type": 0, "content": content.get("content", "")})

    def _refusal(self, path: str, content: Mapping[str, Any]) -> tuple[int, int] | None:
        *_, number, token = path.split("/")
        if number != "1088834422309888000":
            return 404, 10015
        if token != self.token:
            return 401, 50027
        if not content.get("content") and not content.get("embeds"):
            return 400, 50006
        return (400, 50035) if len(content.get("content", "")) > 2000 else None  # noqa: PLR2004 - the limit


class SlackProvider(Provider):
    """`refuses`: the error of all further responses; for webhooks with `status`. `sent`: accepted messages in order."""

    def __init__(self) -> None:
        super().__init__()
        self.bot_token = f"xoxb-{secrets.token_hex(24)}"
        self.hook = secrets.token_hex(12)
        self.refuses = ""
        self.status = 404
        self.sent: list[dict[str, Any]] = []

    @property
    def account(self) -> dict[str, str]:
        return {"url": self.url, "bot_token": self.bot_token}

    @property
    def address(self) -> str:
        return f"{self.url}/services/T00000000/B00000000/{self.hook}"

    async def answer(self, request: Request) -> web.StreamResponse:
        content = request.json()
        if request.path.startswith("/services/"):
            return self._to_hook(request, content)
        is_known = request.headers.get("authorization") == f"Bearer {self.bot_token}"
        word = self.refuses or ("" if is_known else "invalid_auth")
        if word == "ratelimited":
            headers = {"Retry-After": str(RETRY_AFTER)}
            return web.json_response({"ok": False, "error": word}, status=429, headers=headers)
        if word:
            needed = {"needed": "chat:write", "provided": "identify"} if word == "missing_scope" else {}
            return web.json_response({"ok": False, "error": word, **needed})
        self.sent.append(content)
        stamp = f"1503435956.{len(self.sent):06}"
        return web.json_response({"ok": True, "channel": content["channel"], "ts": stamp, "message": content})

    def _to_hook(self, request: Request, content: dict[str, Any]) -> web.Response:
        word = self.refuses or ("" if request.path.endswith(f"/{self.hook}") else "no_service")
        if word:
            return web.Response(status=self.status, text=word)
        self.sent.append(content)
        return web.Response(text="ok")


class TeamsProvider(Provider):
    """`refuses`: the (status, code, message) of all further responses. `sent`: accepted cards in order."""

    def __init__(self) -> None:
        super().__init__()
        self.signature = secrets.token_urlsafe(32)
        self.refuses: tuple[int, str, str] | None = None
        self.sent: list[dict[str, Any]] = []

    @property
    def address(self) -> str:
        trigger = f"{self.url}/powerautomate/automations/direct/workflows/{'0a' * 16}/triggers/manual/paths/invoke"
        return f"{trigger}?api-version=1&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig={self.signature}"

    async def answer(self, request: Request) -> web.StreamResponse:
        path, _, query = request.path.partition("?")
        parameters = parse_qs(query)
        refusal = self.refuses
        if "/workflows/" + "0a" * 16 not in path:
            refusal = 404, "WorkflowNotFound", f"The workflow of {request.path} could not be found."
        elif parameters.get("sig") != [self.signature] or parameters.get("sp") != ["/triggers/manual/run"]:
            refusal = 401, "DirectApiAuthorizationRequired", "The request must be authenticated by a signature."
        if refusal is not None:
            status, code, message = refusal
            headers = {"Retry-After": str(RETRY_AFTER)} if status == web.HTTPTooManyRequests.status_code else {}
            return web.json_response({"error": {"code": code, "message": message}}, status=status, headers=headers)
        # The workflow runs after the response: a card without this form is accepted and never posted.
        for attachment in request.json().get("attachments", ()):
            if attachment["contentType"] == "application/vnd.microsoft.card.adaptive":
                self.sent.append(attachment["content"])
        return web.Response(status=202, headers={"x-ms-workflow-run-id": f"0858{len(self.log):026}CU21"})


class TelegramProvider(Provider):
    """`refuses`: the (status, description) of all further responses. `sent`: accepted messages in order."""

    def __init__(self) -> None:
        super().__init__()
        self.bot_token = f"110201543:{secrets.token_urlsafe(26)}"
        self.refuses: tuple[int, str] | None = None
        self.parameters: dict[str, Any] = {}
        self.sent: list[dict[str, Any]] = []

    @property
    def account(self) -> dict[str, str]:
        return {"url": self.url, "bot_token": self.bot_token}

    async def answer(self, request: Request) -> web.StreamResponse:
        content = request.json()
        refusal = self.refuses or self._refusal(request.path, content)
        if refusal is not None:
            status, description = refusal
            response: dict[str, Any] = {"ok": False, "error_code": status, "description": description}
            if self.parameters:
                response["parameters"] = self.parameters
            return web.json_response(response, status=status)
        self.sent.append(content)
        # The response has the number of the chat, also for a named chat.
        chat = content["chat_id"] if isinstance(content["chat_id"], int) else -1001234567890
        result = {"message_id": len(self.sent), "chat": {"id": chat}, "date": 1441645532, "text": content["text"]}
        return web.json_response({"ok": True, "result": result})

    def _refusal(self, path: str, content: Mapping[str, Any]) -> tuple[int, str] | None:
        bot, _, method = path.lstrip("/").partition("/")
        if bot != f"bot{self.bot_token}":
            return 401, "Unauthorized"
        if method != "sendMessage":
            return 404, "Not Found"
        if not content.get("text"):
            return 400, "Bad Request: message text is empty"
        is_long = len(content["text"].encode("utf-16-le")) // 2 > 4096  # noqa: PLR2004 - the limit
        return (400, "Bad Request: message is too long") if is_long else None
