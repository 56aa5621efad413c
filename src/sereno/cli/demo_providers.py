"""Where the demo's messages go: an Expo and a mail server in this process, with the ordinary troubles of the real ones.

Everything here needs the extra `channels`.
"""

import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from sereno.app import Sereno
from sereno.channels.email import Email
from sereno.channels.expo import Expo
from sereno.cli.demo_post import BUSY_MAILBOX, GONE_MAILBOX, LOST_PHONE, OLD_PHONES, mailbox, token
from sereno.domain.limits import Rate
from sereno.testing.expo import SEND, ExpoProvider
from sereno.testing.provider import Request
from sereno.testing.smtp import MailServer

# Seconds before each new try: a show has no minutes.
DELAYS = (0.5, 0.5, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0)
# Of the requests to push, these find Expo busy: the first, because what is tried again waits for ten seconds.
BUSY_REQUESTS = (1, 2)
# The busy mailbox says so often that one is to come back.
BUSY_ANSWERS = 1


class QuickExpo(Expo):
    """The channel as it is, with less patience, and a rate that only a service on this machine would bear."""

    rate = Rate(100_000, per="1s")
    delays = DELAYS
    receipts_after = 1.0


class QuickEmail(Email):
    """The channel as it is, with less patience."""

    delays = DELAYS


class Phones(ExpoProvider):
    """An Expo that is busy now and then, and knows some phones that are gone."""

    def __init__(self) -> None:
        super().__init__()
        self.tickets = {token(number): "DeviceNotRegistered" for number in OLD_PHONES}
        self.receipts_of = {token(LOST_PHONE): "DeviceNotRegistered"}
        self._requests = 0

    async def answer(self, request: Request) -> web.StreamResponse:
        if request.path == SEND:
            self._requests += 1
            if self._requests in BUSY_REQUESTS:
                self.say("busy", 503)
        return await super().answer(request)


class Mailboxes(MailServer):
    """A mail server with one mailbox that is gone, and one that is busy at first."""

    def __init__(self) -> None:
        super().__init__()
        self.say("RCPT", "550 5.1.1 no such user", to=mailbox(GONE_MAILBOX))
        self._refusals = 0

    def reply(self, step: str, usual: str, to: str) -> str:
        if step == "RCPT" and to == mailbox(BUSY_MAILBOX) and self._refusals < BUSY_ANSWERS:
            self._refusals += 1
            return "450 4.2.1 busy, come back later"
        return super().reply(step, usual, to)


@contextlib.asynccontextmanager
async def providers(app: Sereno) -> AsyncIterator[None]:
    """Both of them, and the channels of the application that lead to them."""
    async with Phones() as phones, Mailboxes() as mail:
        app.channels.add(QuickExpo(url=phones.url))
        app.channels.add(
            QuickEmail(host=mail.host, port=mail.port, tls="none", sender="The restaurants <post@example.org>")
        )
        yield
