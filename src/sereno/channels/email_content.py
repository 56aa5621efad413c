"""The content of an email: checked addresses, subject, texts and headers, sent over SMTP or by a provider."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from email.utils import quote
from typing import Any

import msgspec

from sereno.channels.contract import Message
from sereno.channels.email_footer import with_footer
from sereno.channels.email_reports import one_line
from sereno.channels.http import MOST_TEXT
from sereno.channels.outcome import Failed, Invalid
from sereno.errors import InvalidAddress

# Characters: limits of RFC 5321 and RFC 5322 (lines of 998 including the header name); the limit of names is our own.
LONGEST_ADDRESS, LONGEST_LOCAL, LONGEST_LINE, LONGEST_NAME = 254, 64, 900, 200
# IDNA 2003 maps these to another domain, so the email would reach another recipient.
_DEVIATING = frozenset("ßẞς\u200c\u200d")
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LOCAL = re.compile(rf"{_ATOM}(?:\.{_ATOM})*")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"(?:{_LABEL}\.)+(?!\d+$){_LABEL}")
_PLAIN = re.compile(rf"[\x21-\x7e]{{1,{LONGEST_LINE}}}")
_URL = re.compile(rf"https?://[^\x00-\x20<>\x7f-\U0010ffff]{{1,{LONGEST_LINE - 20}}}")
_OWN_HEADER = re.compile(r"X-[A-Za-z0-9-]{1,60}", re.IGNORECASE)


class Mailbox(msgspec.Struct, frozen=True):
    """A name, which may be empty, and an address."""

    name: str
    address: str

    def __str__(self) -> str:
        return f'"{quote(self.name)}" <{self.address}>' if self.name else self.address


class EmailContent(msgspec.Struct, frozen=True, kw_only=True):
    """A checked email. `headers`: plain ASCII; `own_headers`: of the template, any text on one line."""

    address: str
    sender: Mailbox
    reply_to: Mailbox | None
    subject: str
    text: str
    html: str
    headers: Mapping[str, str]
    own_headers: Mapping[str, str]


def compose(
    message: Message, sender: Mailbox, reply_to: str | None, reference: str = "", *, footer: bool = True
) -> EmailContent | Failed | Invalid:
    """Return the content of a message. `reference`: replaces a key that is not valid in a header."""
    try:
        address = addr_spec(message.address)
    except InvalidAddress as error:
        return Invalid("bad_address", str(error))
    options = message.options
    try:
        reply_to = options.get("reply_to") or reply_to
        subject, html = one_line(message.title), _storable(message.html or "")
        # Providers refuse an email without a text; a template may have a title only.
        text = _storable(message.body) or ("" if html else subject)
        if footer:
            text, html = with_footer(message, text, html)
        return EmailContent(
            address=address,
            sender=sender,
            reply_to=mailbox(reply_to) if reply_to else None,
            subject=subject,
            text=text,
            html=html,
            headers=dict(_headers(message, reference)),
            own_headers=dict(_own_headers(options)),
        )
    except Exception as error:  # noqa: BLE001 - options come from a template; one message must not fail the batch
        return Failed("bad_message", one_line(str(error))[:MOST_TEXT] or type(error).__name__)


def addr_spec(text: str) -> str:
    """Return the bare address; the domain in lower-case ASCII."""
    local, _, domain = text.strip(" ").rpartition("@")
    if len(text) > LONGEST_ADDRESS:
        raise InvalidAddress(f"an email address has at most {LONGEST_ADDRESS} characters")
    if _DEVIATING.intersection(domain):
        raise InvalidAddress("IDNA 2003 and IDNA 2008 encode this domain differently: write its xn-- form")
    try:
        domain = domain.encode("idna").decode("ascii").lower()
    except UnicodeError:
        domain = ""
    if not _DOMAIN.fullmatch(domain) or len(local) + 1 + len(domain) > LONGEST_ADDRESS:
        raise InvalidAddress("an email address needs one @, followed by a domain with a dot")
    if not _LOCAL.fullmatch(local) or len(local) > LONGEST_LOCAL:
        raise InvalidAddress("the part before the @ can have ASCII letters, digits and symbols, no spaces or quotes")
    return f"{local}@{domain}"


def mailbox(text: str) -> Mailbox:
    """Return the name and the address of "Name <a@b>" or of a bare address."""
    name, angle, address = text.strip().rpartition("<")
    name = one_line(name)
    name = name[1:-1] if name[:1] == name[-1:] == '"' else name
    if (angle and not address.endswith(">")) or len(name) > LONGEST_NAME:
        raise InvalidAddress('write a sender as "Name <name@example.com>"')
    return Mailbox(name, addr_spec(address.removesuffix(">") if angle else address))


def _headers(message: Message, reference: str) -> Iterator[tuple[str, str]]:
    key, url = message.key, message.unsubscribe_url
    plain = key if _PLAIN.fullmatch(key) else reference or hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
    yield "Auto-Submitted", "auto-generated"
    yield "X-Entity-Ref-ID", plain
    if url is not None:
        if not _URL.fullmatch(url):
            raise ValueError("unsubscribe_url must be a URL in plain ASCII")
        yield "List-Unsubscribe", f"<{url}>"
        # RFC 8058: one click is for HTTPS only.
        if url.lower().startswith("https:"):
            yield "List-Unsubscribe-Post", "List-Unsubscribe=One-Click"


def _own_headers(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "cc" in options or "bcc" in options:
        raise ValueError("cc and bcc are not supported: a delivery has one address")
    for name, value in options.get("headers", {}).items():
        if not _OWN_HEADER.fullmatch(name) or name.lower() == "x-entity-ref-id":
            raise ValueError(f"the header {name!r:.40} cannot be set: only headers that start with X- can")
        yield name, one_line(str(value))


def _storable(text: str) -> str:
    """Remove NUL and lone surrogates, which template output may contain."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
