"""A local mail server: real SMTP on loopback that behaves like public ones, including their faults.

It stores every accepted email with its envelope and bytes, so that a test checks what was sent.

    async with MailServer() as server:
        server.say("RCPT", "550 5.1.1 no such user", to="bob@example.com")
        server.say("END", "close")
"""

import asyncio
import base64
import binascii
import contextlib
import ssl
from collections.abc import Mapping
from email import message_from_bytes, policy
from email.message import EmailMessage
from types import TracebackType
from typing import Literal, Self

import msgspec

# Steps at which a fault can be set. BODY: while the email is being sent; END: after its final dot was read.
Step = Literal["CONNECT", "EHLO", "STARTTLS", "AUTH", "MAIL", "RCPT", "DATA", "BODY", "END", "RSET", "NOOP", "QUIT"]
# Instead of a reply: cut the connection, or never reply.
CLOSE = "close"
SILENCE = "silence"

LARGEST = 16 * 1024 * 1024
COMPLETED = "250 2.0.0 ok"


class Mail(msgspec.Struct, frozen=True):
    """One received email: envelope, authenticated user, whether the connection was encrypted, and the bytes."""

    sender: str
    recipients: tuple[str, ...]
    raw: bytes
    username: str | None
    encrypted: bool

    def parsed(self) -> EmailMessage:
        return message_from_bytes(self.raw, policy=policy.default)


class MailServer:
    """One SMTP server on loopback. `users`: passwords by name; without any, no authentication is required.

    `mails`: accepted emails, also those whose reply was withheld. `commands`: every received line.
    """

    def __init__(self, users: Mapping[str, str] | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        self.users = dict(users or {})
        self.tls = tls
        self.ways = "PLAIN LOGIN"
        self.mails: list[Mail] = []
        self.commands: list[str] = []
        self.connections = 0
        self.host = "127.0.0.1"
        self.port = 0
        self.ends = asyncio.Event()
        self._replies: dict[tuple[str, str], str] = {}
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def say(self, step: Step, reply: str, *, to: str = "") -> None:
        """Set the reply at a step from now on: a reply, CLOSE or SILENCE; for one recipient, or for all."""
        self._replies[step, to] = reply

    def forget(self) -> None:
        """Remove all replies that were set."""
        self._replies.clear()

    def reply(self, step: str, usual: str, to: str) -> str:
        return self._replies.get((step, to)) or self._replies.get((step, "")) or usual

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self.host, 0, limit=LARGEST)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ends.set()
        if self._server is not None:
            self._server.close()
        for writer in self._open.values():
            writer.transport.abort()
        await asyncio.gather(*self._open)
        if self._server is not None:
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        self.connections += 1
        try:
            # A client that disconnects in the middle is normal.
            with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
                await _Conversation(self, reader, writer).run()
        finally:
            writer.transport.abort()
            del self._open[task]


class _Conversation:
    """The dialogue of one connection."""

    def __init__(self, server: MailServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._username: str | None = None
        self._encrypted = False
        self._sender: str | None = None
        self._recipients: list[str] = []

    async def run(self) -> None:
        try:
            await self._listen()
        finally:
            # After STARTTLS the transport is another than the server's.
            self._writer.transport.abort()

    async def _listen(self) -> None:
        await self._say("CONNECT", "220 mail.sereno.test ESMTP")
        while line := await self._reader.readline():
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            self._server.commands.append(text)
            verb, _, rest = text.partition(" ")
            await self._obey(verb.upper(), rest)
            if verb.upper() == "QUIT":
                return

    async def _obey(self, verb: str, rest: str) -> None:
        match verb:
            case "EHLO" | "HELO":
                await self._say("EHLO", self._offers() if verb == "EHLO" else "250 mail.sereno.test")
            case "STARTTLS":
                await self._encrypt()
            case "AUTH":
                await self._sign_in(rest)
            case "MAIL" | "RCPT" | "DATA" if self._server.users and self._username is None:
                await self._write("530 5.7.0 sign in first")
            case "MAIL":
                await self._mail(rest)
            case "RCPT":
                await self._rcpt(rest)
            case "DATA":
                await self._data()
            case "RSET":
                self._reset()
                await self._say("RSET", COMPLETED)
            case "NOOP":
                await self._say("NOOP", COMPLETED)
            case "QUIT":
                await self._say("QUIT", "221 2.0.0 bye")
            case _:
                await self._write("502 5.5.1 no such command")

    def _offers(self) -> str:
        offers = ["mail.sereno.test", "ENHANCEDSTATUSCODES", f"SIZE {LARGEST}"]
        if self._server.users:
            offers.append(f"AUTH {self._server.ways}")
        if self._server.tls is not None and not self._encrypted:
            offers.append("STARTTLS")
        return "\r\n".join([*(f"250-{offer}" for offer in offers[:-1]), f"250 {offers[-1]}"])

    async def _encrypt(self) -> None:
        if self._server.tls is None:
            await self._write("502 5.5.1 no such command")
        elif await self._say("STARTTLS", "220 2.0.0 go ahead"):
            loop, plain = asyncio.get_running_loop(), self._writer.transport
            protocol = plain.get_protocol()
            encrypted = await loop.start_tls(plain, protocol, self._server.tls, server_side=True)
            # StreamWriter.start_tls does not expect a client that rejects the certificate and disconnects.
            if encrypted is None:
                raise ConnectionAbortedError
            self._writer = asyncio.StreamWriter(encrypted, protocol, self._reader, loop)
            self._encrypted = True

    async def _sign_in(self, rest: str) -> None:
        way, _, first = rest.partition(" ")
        try:
            if way.upper() == "PLAIN":
                _, username, password = (await self._secret(first, "")).split("\0")
            elif way.upper() == "LOGIN":
                username = await self._secret(first, "Username:")
                password = await self._secret("", "Password:")
            else:
                await self._write("504 5.5.4 no such way to sign in")
                return
        except ValueError:
            await self._write("501 5.5.2 cannot be read")
            return
        known = self._server.users.get(username) == password
        if await self._say("AUTH", "235 2.7.0 welcome" if known else "535 5.7.8 credentials refused"):
            self._username = username

    async def _secret(self, given: str, prompt: str) -> str:
        """Return what came with the command, or the reply to a prompt."""
        if not given:
            await self._write(f"334 {base64.b64encode(prompt.encode()).decode()}")
            given = (await self._reader.readline()).decode("ascii").strip()
        try:
            return base64.b64decode(given, validate=True).decode()
        except binascii.Error as error:
            raise ValueError(given) from error

    async def _mail(self, rest: str) -> None:
        if self._sender is not None:
            await self._write("503 5.5.1 one mail after the other")
        elif await self._say("MAIL", COMPLETED):
            self._sender = _path(rest)

    async def _rcpt(self, rest: str) -> None:
        if self._sender is None:
            await self._write("503 5.5.1 MAIL comes first")
        elif await self._say("RCPT", COMPLETED, _path(rest)):
            self._recipients.append(_path(rest))

    async def _data(self) -> None:
        if not self._recipients:
            await self._write("503 5.5.1 RCPT comes first")
            return
        to = self._recipients[0]
        if not await self._say("DATA", "354 go ahead", to):
            return
        lines: list[bytes] = []
        while (line := await self._reader.readuntil(b"\r\n")) != b".\r\n":
            lines.append(line.removeprefix(b"."))
            if self._server.reply("BODY", "", to) == CLOSE:
                raise ConnectionAbortedError
        reply = self._server.reply("END", COMPLETED, to)
        if reply.startswith("2") or reply in (CLOSE, SILENCE):
            assert self._sender is not None
            mail = Mail(self._sender, tuple(self._recipients), b"".join(lines), self._username, self._encrypted)
            self._server.mails.append(mail)
        self._reset()
        await self._say("END", reply, to)

    def _reset(self) -> None:
        self._sender = None
        self._recipients = []

    async def _say(self, step: Step, usual: str, to: str = "") -> bool:
        """Send the reply. Return whether it is positive."""
        reply = self._server.reply(step, usual, to)
        if reply == SILENCE:
            await self._server.ends.wait()
        if reply in (CLOSE, SILENCE):
            raise ConnectionAbortedError
        await self._write(reply)
        return reply.startswith(("2", "3"))

    async def _write(self, reply: str) -> None:
        self._writer.write(reply.encode("utf-8", "surrogateescape") + b"\r\n")
        await self._writer.drain()


def _path(text: str) -> str:
    """Return the address in FROM:<…> or TO:<…>."""
    return text.partition("<")[2].partition(">")[0]
