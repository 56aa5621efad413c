"""Email over SMTP: one connection per batch, one transaction per message.

If the connection breaks before the final dot, nothing was sent; after it, the outcome is unknown. Every attempt of a
message has the same Message-ID. Reports of bounces and complaints are read as receipts; with `return_path`, each email
has a signed address for its bounces.
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.header import Header
from email.message import EmailMessage
from email.policy import SMTP as SMTP_POLICY
from email.utils import format_datetime
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from sereno.channels.callback_checks import is_secret
from sereno.channels.contract import Callback, Channel, Exchange, Message
from sereno.channels.email_callback import report_receipts
from sereno.channels.email_content import LONGEST_LINE, EmailContent, Mailbox, addr_spec, compose, mailbox
from sereno.channels.email_reports import ABOUT_SENDER, ENHANCED_CODE, one_line
from sereno.channels.http import MOST_TEXT
from sereno.channels.outcome import Down, Failed, Invalid, Outcome, Receipt, Retryable, Sent, Unknown
from sereno.channels.return_path import ReturnPath
from sereno.channels.smtp_tls import is_loopback, refusal
from sereno.errors import InvalidAddress, RejectedCallback
from sereno.telemetry.log_events import emit

# Bytes of the largest email that is sent.
LARGEST_MAIL = 10 * 1024 * 1024
# Bytes per write; the timeout applies to each write.
WRITE_SIZE = 256 * 1024
# Seconds to wait for the reply to QUIT; all emails are sent by then.
QUIT_TIMEOUT = 2.0
PORTS = {"starttls": 587, "tls": 465, "none": 25}
# Reply codes of SMTP (RFC 5321).
SUCCESS, TEMPORARY, PERMANENT = range(200, 300), range(400, 500), range(500, 600)
CLOSING, AUTH_REQUIRED, NO_MAILBOX, TOO_LARGE = 421, 530, 550, 552
# Enhanced status codes (RFC 3463) for an email that is too large.
ABOUT_SIZE = ("5.2.3", "5.3.4")
CRLF = "\r\n"
_NO_USER = re.compile(
    r"(?i)(unknown|no such) (user|mailbox)|(user|mailbox|recipient).{0,60}(unknown|n.t (found|exist))"
)


class EmailSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Server, credentials and sender. Beyond loopback TLS is required, unless `allow_plaintext` is set."""

    host: str = "localhost"
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    username: str | None = None
    password: str | None = None
    tls: Literal["starttls", "tls", "none"] = "starttls"
    allow_plaintext: bool = False
    sender: str = ""
    reply_to: str | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    # Shared with the gateway that forwards bounces to the webhook; also makes Message-IDs unguessable.
    bounce_secret: str = ""
    # The address of bounces: each email gets its own, with a signed part after a +.
    return_path: str = ""
    # Whether emails end with the links of their recipient.
    footer: bool = True

    def __repr__(self) -> str:
        return f"Settings({self.host!r})"

    @property
    def signed_path(self) -> ReturnPath | None:
        return ReturnPath(self.return_path, self.bounce_secret) if self.return_path else None

    def words(self, reply: object) -> str:
        """Return a server's reply on one line, with the password masked."""
        text, password = one_line(str(reply) or type(reply).__name__), self.password or ""
        encoded = [each.encode("utf-8", "replace") for each in (f"\0{self.username}\0{password}", password)]
        for secret in [password, *(base64.b64encode(each).decode() for each in encoded)] if password else []:
            text = text.replace(secret, "…")
        return text[:MOST_TEXT]


class Email(Channel):
    """Email through an SMTP server. The account's settings override the constructor's: see EmailSettings."""

    name: ClassVar[str] = "email"
    batch: ClassVar[int] = 20
    on_unknown: ClassVar[Literal["retry", "park"]] = "retry"
    largest: ClassVar[int | None] = LARGEST_MAIL

    def __init__(self, **defaults: Any) -> None:
        known = msgspec.structs.asdict(EmailSettings(**defaults))
        self._defaults = {name: value for name, value in known.items() if value is not None}

    def check_address(self, address: str) -> str:
        return addr_spec(address)

    async def send(self, batch: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
        try:
            settings = msgspec.convert({"timeout": exchange.timeout, **exchange.over(self._defaults)}, EmailSettings)
            mailbox(settings.sender)
            mailbox(settings.reply_to or settings.sender)
            connection = _SMTPConnection(settings, settings.signed_path)
        except (msgspec.ValidationError, InvalidAddress) as error:
            return [Down("bad_settings", one_line(str(error))[:MOST_TEXT])] * len(batch)
        try:
            if batch:
                await connection.open()
            outcomes = [connection.failure or await connection.send(message) for message in batch]
            await connection.quit()
            return outcomes
        finally:
            connection.abort()

    def webhook(self, callback: Callback, account: Mapping[str, Any]) -> Sequence[Receipt]:
        """Return the receipt of a report about an email, forwarded unchanged by a mail gateway."""
        own = {name: value for name, value in account.items() if value is not None}
        try:
            settings = msgspec.convert({**self._defaults, **own}, EmailSettings)
            if is_secret(callback.headers.get("x-sereno-secret", ""), settings.bounce_secret):
                return report_receipts(callback, settings.signed_path, settings.sender)
        except (msgspec.ValidationError, InvalidAddress) as error:
            raise RejectedCallback(f"a setting of the account is invalid: {one_line(str(error))}") from None
        raise RejectedCallback("the header x-sereno-secret is not the bounce_secret of the account")


# A step, the expected codes, and the words of the command.
_Command = tuple[str, Sequence[int], Sequence[bytes]]


class _SMTPConnection:
    """One SMTP connection. `failure`: once it is unusable, the outcome of all remaining messages."""

    def __init__(self, settings: EmailSettings, path: ReturnPath | None) -> None:
        self.failure: Outcome | None = None
        self._settings = settings
        self._path = path
        # An aiosmtplib.SMTP and its exceptions; imported on first use, like the library of every channel.
        self._client: Any = None
        self._errors: tuple[type[Exception], ...] = (OSError,)
        self._is_open_transaction = False

    async def open(self) -> None:
        from aiosmtplib import SMTP, SMTPException, SMTPResponseException  # noqa: PLC0415 - an extra

        settings, self._errors = self._settings, (SMTPException, OSError)
        try:
            self._client = client = SMTP(
                hostname=settings.host,
                port=settings.port or PORTS[settings.tls],
                timeout=settings.timeout,
                use_tls=settings.tls == "tls",
                start_tls=None if settings.tls == "starttls" else False,
                local_hostname=mailbox(settings.sender).address.rpartition("@")[2],
            )
            await client.connect()
            if client.is_ehlo_or_helo_needed:
                await client.ehlo()
            self._check_encryption(client)
            if settings.username is not None:
                await self._sign_in(client, settings.username, settings.password or "")
        except SMTPResponseException as error:
            kind = Down if error.code in PERMANENT else Retryable
            self.failure = kind(f"smtp_{error.code}", settings.words(error.message))
        except self._errors as error:
            self.failure = Retryable("unreachable", settings.words(error))
        except ValueError as error:
            self.failure = Down("bad_settings", settings.words(error))

    def _check_encryption(self, client: Any) -> None:
        if client.get_transport_info("sslcontext") is not None:
            return
        settings, peer = self._settings, client.get_transport_info("peername")
        allowed, has_password = settings.allow_plaintext, settings.username is not None
        if reason := refusal(peer, tls=settings.tls, allowed=allowed, has_password=has_password):
            raise ValueError(reason)
        if not is_loopback(peer):
            message = f"email is sent to {settings.host} without TLS: allow_plaintext is set"
            emit(logging.WARNING, "channel.plaintext", message, channel=Email.name)

    async def _sign_in(self, client: Any, username: str, password: str) -> None:
        methods = {"plain": client.auth_plain, "login": client.auth_login, "cram-md5": client.auth_crammd5}
        # One method is enough: a second one with the same password would only count as a second failure.
        method = next((methods[name] for name in methods if name in client.server_auth_methods), None)
        if method is None:
            raise ValueError("the server offers no supported authentication method")
        await method(username, password)

    async def send(self, message: Message) -> Outcome:
        """Run one transaction, from MAIL to the reply after the final dot."""
        # In a thread: encoding a large email takes a second.
        email = await asyncio.to_thread(write, message, self._settings)
        if isinstance(email, Failed | Invalid):
            return email
        message_id, address, wire = email
        is_complete = False
        try:
            for step, expected, command in self._commands(message_id, address, len(wire)):
                code, reply = await self._client.execute_command(*command)
                if code not in expected:
                    return self._refused(step, code, reply)
            protocol = await self._upload(wire)
            protocol.write(b".\r\n")
            is_complete = True
            code, reply = await protocol.read_response(timeout=self._settings.timeout)
        except self._errors as error:
            self.failure = Retryable("connection_lost", self._settings.words(error))
            return Unknown("no_response", self.failure.message) if is_complete else self.failure
        if code not in SUCCESS:
            return self._refused("END", code, reply)
        self._is_open_transaction = False
        return Sent(message_id)

    def _commands(self, message_id: str, address: str, size: int) -> Iterator[_Command]:
        if self._is_open_transaction:
            yield "RSET", (250,), (b"RSET",)
        self._is_open_transaction = True
        sized = [f"SIZE={size}".encode()] if self._client.supports_extension("size") else []
        path, digest = self._path, message_id.partition("@")[0]
        sender = mailbox(self._settings.sender).address if path is None else path.address(digest)
        yield "MAIL", (250,), (b"MAIL", f"FROM:<{sender}>".encode(), *sized)
        yield "RCPT", (250, 251), (b"RCPT", f"TO:<{address}>".encode())
        yield "DATA", (354,), (b"DATA",)

    async def _upload(self, wire: bytes) -> Any:
        """Write the email without its final dot. Without the dot, the server cannot deliver it."""
        if (protocol := self._client.protocol) is None:
            raise ConnectionResetError("the connection was closed")
        for start in range(0, len(wire), WRITE_SIZE):
            protocol.write(wire[start : start + WRITE_SIZE])
            async with asyncio.timeout(self._settings.timeout):
                await protocol._drain_helper()  # noqa: SLF001 - as asyncio's StreamWriter does
        return protocol

    def _refused(self, step: str, code: int, reply: str) -> Outcome:
        later = Retryable(f"smtp_{code}", self._settings.words(reply))
        outcome: Outcome = later
        if code in PERMANENT and step != "RSET":
            outcome = _permanent_failure(step, code, later.message)
        elif code not in TEMPORARY and step == "END":
            outcome = Unknown(later.code, later.message)
        if isinstance(outcome, Down):
            self.failure = outcome
        elif code == CLOSING or step == "RSET" or not (code in TEMPORARY or code in PERMANENT):
            self.failure = later
        return outcome

    async def quit(self) -> None:
        if self._client is not None and not isinstance(self.failure, Retryable):
            with contextlib.suppress(*self._errors):
                await self._client.quit(timeout=QUIT_TIMEOUT)

    def abort(self) -> None:
        """Close the connection at once; a transport that is only closed would keep trying to send the rest."""
        if self._client is not None and self._client.transport is not None:
            self._client.transport.abort()
            self._client.close()


def _permanent_failure(step: str, code: int, words: str) -> Outcome:
    """Return the outcome of a 5xx reply, which is about the address, the sender or this email only."""
    name, found = f"smtp_{code}", ENHANCED_CODE.match(words)
    enhanced = found[1] if found else ""
    if step == "MAIL" and code != TOO_LARGE and enhanced not in ABOUT_SIZE:
        return Down(name, words)
    # Many servers refuse the sender only at RCPT.
    if step == "RCPT" and (code == AUTH_REQUIRED or enhanced in ABOUT_SENDER or "sender address" in words.lower()):
        return Down(name, words)
    is_unknown = enhanced.startswith("5.1.") or (code == NO_MAILBOX and not enhanced and _NO_USER.search(words))
    return Invalid(name, words) if step == "RCPT" and is_unknown else Failed(name, words)


def write(message: Message, settings: EmailSettings) -> tuple[str, str, bytes] | Failed | Invalid:
    """Return Message-ID, address, and the email as sent: dots are doubled, the final dot is missing."""
    key, sender = message.key.encode("utf-8", "replace"), mailbox(settings.sender)
    digest = hmac.new(settings.bounce_secret.encode("utf-8", "replace"), key, hashlib.sha256).hexdigest()[:40]
    message_id = f"{digest}@{sender.address.rpartition('@')[2]}"
    content = compose(message, sender, settings.reply_to, digest, footer=settings.footer)
    if not isinstance(content, EmailContent):
        return content
    try:
        lines = [f"To: {content.address}", f"Message-ID: <{message_id}>", *_headers(content)]
        raw = "".join(line + CRLF for line in lines).encode("ascii") + _body(content)
    except Exception as error:  # noqa: BLE001 - the email library raises many exceptions; one message must not fail the batch
        return Failed("bad_message", one_line(str(error))[:MOST_TEXT] or type(error).__name__)
    if len(raw) > LARGEST_MAIL:
        return Failed("too_large", f"the email has {len(raw):,} bytes, at most {LARGEST_MAIL:,} are allowed")
    return message_id, content.address, re.sub(rb"(?m)^\.", b"..", raw)


def _headers(content: EmailContent) -> Iterator[str]:
    yield _mailbox_header("From", content.sender)
    if content.reply_to is not None:
        yield _mailbox_header("Reply-To", content.reply_to)
    yield _text_header("Subject", content.subject)
    yield f"Date: {format_datetime(datetime.now(UTC))}"
    yield from (f"{name}: {value}" for name, value in content.headers.items())
    yield from (_text_header(name, value) for name, value in content.own_headers.items())


def _text_header(name: str, text: str) -> str:
    """Return one header line, folded; line breaks in the text cannot start another header."""
    text = one_line(text)
    is_plain = text.isascii() and "=?" not in text and len(text) <= LONGEST_LINE
    return f"{name}: {Header(text, 'us-ascii' if is_plain else 'utf-8', header_name=name).encode(linesep=CRLF)}"


def _mailbox_header(name: str, about: Mailbox) -> str:
    if about.name.isascii() and "=?" not in about.name:
        return f"{name}: {about}"
    return f"{_text_header(name, about.name)} <{about.address}>"


def _body(content: EmailContent) -> bytes:
    mail = EmailMessage(policy=SMTP_POLICY.clone(cte_type="7bit"))
    mail.set_content(content.text)
    if content.html:
        mail.add_alternative(content.html, subtype="html")
    return mail.as_bytes()
