"""Local stand-ins for the mail server, Twilio, Expo, WhatsApp and Telegram, with typical faults."""

import random
from contextlib import AsyncExitStack
from typing import Any, Self

from aiohttp import web

from sereno.testing.chats import TelegramProvider
from sereno.testing.expo import ExpoProvider
from sereno.testing.provider import Request
from sereno.testing.smtp import CLOSE, MailServer
from sereno.testing.twilio import TwilioProvider
from sereno.testing.whatsapp import WhatsAppProvider

# A mailbox that does not exist, and one whose server is busy until a test changes it.
NO_MAILBOX = "no-mailbox@example.org"
BUSY = "busy@example.org"


class Mails(MailServer):
    def __init__(self, trouble: float) -> None:
        super().__init__()
        self._trouble = trouble
        self.busy = {BUSY}

    def reply(self, step: str, usual: str, to: str) -> str:
        if step == "RCPT" and to == NO_MAILBOX:
            return "550 5.1.1 no such user"
        if step == "RCPT" and (to in self.busy or _bad_luck(self._trouble)):
            return "451 4.7.1 try again later"
        if step == "END" and _bad_luck(self._trouble / 4):
            return CLOSE
        return super().reply(step, usual, to)


class Phones(TwilioProvider):
    def __init__(self, trouble: float) -> None:
        super().__init__()
        self._trouble = trouble

    async def answer(self, request: Request) -> web.StreamResponse:
        if _bad_luck(self._trouble):
            return web.Response(status=429, headers={"Retry-After": "2"}, text="too many requests")
        return await super().answer(request)


class Chats(TelegramProvider):
    def __init__(self, trouble: float) -> None:
        super().__init__()
        self._trouble = trouble

    async def answer(self, request: Request) -> web.StreamResponse:
        if _bad_luck(self._trouble):
            return web.Response(status=503, text="upstream gone")
        return await super().answer(request)


class Pushes(ExpoProvider):
    def __init__(self, trouble: float) -> None:
        super().__init__()
        self._trouble = trouble

    async def answer(self, request: Request) -> web.StreamResponse:
        if _bad_luck(self._trouble):
            return web.Response(status=502, text="bad gateway")
        return await super().answer(request)


class WhatsApps(WhatsAppProvider):
    def __init__(self, trouble: float) -> None:
        super().__init__()
        self._trouble = trouble

    async def answer(self, request: Request) -> web.StreamResponse:
        if _bad_luck(self._trouble):
            return web.Response(status=429, text="too many requests")
        return await super().answer(request)


class StandIns:
    """All providers. `trouble`: the share of messages that fail."""

    def __init__(self, trouble: float = 0.0) -> None:
        self.mails = Mails(trouble)
        self.phones = Phones(trouble)
        self.chats = Chats(trouble)
        self.pushes = Pushes(trouble)
        self.whatsapps = WhatsApps(trouble)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for server in (self.mails, self.phones, self.chats, self.pushes, self.whatsapps):
            await self._stack.enter_async_context(server)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def accounts(self) -> dict[str, dict[str, Any]]:
        """Return the arguments of `app.channels.add`, by channel."""
        mail = {"host": self.mails.host, "port": self.mails.port, "tls": "none"}
        return {
            "email": mail,
            "sms": self.phones.account,
            "telegram": self.chats.account,
            "push": {"url": self.pushes.url},
            "whatsapp": self.whatsapps.account,
        }

    @property
    def environment(self) -> dict[str, str]:
        """Return the same as environment variables, for a worker in another process, with all channels active."""
        providers = {"email": "SMTP", "sms": "TWILIO", "telegram": "TELEGRAM", "push": "EXPO", "whatsapp": "WHATSAPP"}
        active = {"NOTIFICATION_ACTIVE_CHANNELS": ",".join(name.upper() for name in providers)}
        return active | {
            f"REMINDERS_{providers[channel]}_{name.upper()}": str(value)
            for channel, account in self.accounts.items()
            for name, value in account.items()
        }


def _bad_luck(share: float) -> bool:
    return random.random() < share  # noqa: S311 - chance, not secrets
