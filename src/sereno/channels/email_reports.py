"""Reads reports about emails as receipts: bounces (RFC 3464) and complaints of feedback loops (ARF, RFC 5965)."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from sereno.channels.http import MOST_TEXT
from sereno.channels.outcome import Receipt, ReceiptOutcome

# Limits of a report: bytes read (the report and the returned headers come first), parts, and content type.
LARGEST_REPORT, MOST_PARTS, LONGEST_KIND = 256 * 1024, 50, 900
# Codes of 5.1.x for the sender's address, not the recipient's.
ABOUT_SENDER = ("5.1.7", "5.1.8")
ENHANCED_CODE = re.compile(r"([245]\.\d{1,3}\.\d{1,3})\b")
# Types of feedback that are complaints; the others, such as not-spam and auth-failure, are not.
COMPLAINTS: Mapping[str, ReceiptOutcome] = {
    "abuse": "complained",
    "fraud": "complained",
    "virus": "complained",
    "other": "complained",
    "opt-out": "unsubscribed",
    "opt-out-list": "unsubscribed",
}
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_MESSAGE_ID = re.compile(r"<([^<>\s@]{1,200}@[^<>\s@]{1,255})>")
_BOUNDARY = re.compile(r"""\bboundary\s*=\s*(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
_BLANK = re.compile(rb"\r?\n[ \t]*\r?\n")


def one_line(text: str) -> str:
    """Return the text on one line, without control characters, and storable."""
    return _CONTROLS.sub(" ", text).encode("utf-8", "replace").decode().strip()


class EmailReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report about one email. Headers and fields by lower-case name; `original`: the headers of that email."""

    headers: Mapping[str, str]
    original: Mapping[str, str]
    # One for each recipient; only the first is ours, unless a mailing list reports several.
    deliveries: Sequence[Mapping[str, str]] = ()
    complaint: Mapping[str, str] = {}
    id: str

    @property
    def message_id(self) -> str | None:
        found = _MESSAGE_ID.search(self.original.get("message-id", ""))
        return found[1] if found else None

    def senders(self) -> Iterator[str]:
        """Yield the texts in which the return path of the email may be."""
        for name in ("delivered-to", "x-original-to", "to"):
            yield self.headers.get(name, "")
        yield self.complaint.get("original-mail-from", "")
        yield self.original.get("return-path", "")


def read_report(body: bytes) -> EmailReport | None:
    """Return the report in an email; None for any other. Reads one level of parts in linear time."""
    headers, content = _fields(body[:LARGEST_REPORT])
    kind = headers.get("content-type", "")[:LONGEST_KIND]
    boundary = _BOUNDARY.search(kind)
    if boundary is None or not kind.lower().startswith("multipart/report"):
        return None
    mark = re.escape((boundary[1] or boundary[2]).encode())
    deliveries: list[dict[str, str]] = []
    complaint: dict[str, str] = {}
    original: dict[str, str] = {}
    for part in re.split(rb"(?:^|\n)--" + mark + rb"(?:--)?[ \t]*\r?(?:\n|$)", content, maxsplit=MOST_PARTS):
        fields, inner = _fields(part)
        kind = fields.get("content-type", "").partition(";")[0].strip().lower()
        if kind in ("message/delivery-status", "message/global-delivery-status"):
            deliveries = [_fields(each)[0] for each in _BLANK.split(inner, maxsplit=MOST_PARTS)]
        elif kind == "message/feedback-report":
            complaint = _fields(inner)[0]
        elif kind in ("message/rfc822", "text/rfc822-headers", "message/global", "message/global-headers"):
            original = _fields(inner)[0]
    if complaint:
        # Complaints are believed by the Message-ID alone, which everyone knows who has seen the email; bounces are not.
        deliveries = []
    name = hashlib.sha256(body).hexdigest()
    return EmailReport(headers=headers, original=original, deliveries=deliveries, complaint=complaint, id=name)


def receipts(report: EmailReport, provider_id: str) -> list[Receipt]:
    """Return the receipts of a report; none for one that decides nothing, such as a delay."""
    found = [receipt for fields in report.deliveries if (receipt := _delivery(fields, provider_id, report.id))]
    outcome = COMPLAINTS.get(report.complaint.get("feedback-type", "").strip().lower())
    if outcome is not None:
        by = one_line(report.complaint.get("user-agent", ""))[:MOST_TEXT]
        code = report.complaint["feedback-type"].strip().lower()
        found.append(
            Receipt(provider_id=provider_id, outcome=outcome, code=code, message=by, id=f"{provider_id}.{outcome}")
        )
    return found


def _delivery(fields: Mapping[str, str], provider_id: str, name: str) -> Receipt | None:
    status = found[1] if (found := ENHANCED_CODE.match(fields.get("status", ""))) else ""
    action = fields.get("action", "").lower()
    # A failure can have status 4.x.x: the server has given up after days of retries.
    if action != "delivered" and not (action == "failed" and status.startswith(("4", "5"))):
        return None
    is_bad_address = status.startswith("5.1.") and status not in ABOUT_SENDER
    return Receipt(
        provider_id=provider_id,
        outcome="delivered" if action == "delivered" else "invalid" if is_bad_address else "bounced",
        code=status,
        message=one_line(fields.get("diagnostic-code", ""))[:MOST_TEXT],
        id=name,
    )


def _fields(raw: bytes) -> tuple[dict[str, str], bytes]:
    """Return headers by lower-case name, the first of each, and the rest."""
    head, *rest = _BLANK.split(raw, maxsplit=1)
    fields: dict[str, str] = {}
    for line in re.sub(r"\r?\n[ \t]", " ", head.decode("utf-8", "replace")).split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip().lower(), value.strip())
    return fields, rest[0] if rest else b""
