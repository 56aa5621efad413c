"""Reads bounce reports of emails (RFC 3464) as receipts."""

import hashlib
import re
from collections.abc import Iterator

from sereno.channels.http import MOST_TEXT
from sereno.channels.outcome import Receipt

# Limits of a bounced email: bytes read (the report and the returned headers come first), parts, and content type.
LARGEST_REPORT, MOST_PARTS, LONGEST_KIND = 256 * 1024, 50, 900
# Codes of 5.1.x for the sender's address, not the recipient's.
ABOUT_SENDER = ("5.1.7", "5.1.8")
ENHANCED_CODE = re.compile(r"([245]\.\d{1,3}\.\d{1,3})\b")
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_MESSAGE_ID = re.compile(r"<([^<>\s@]{1,200}@[^<>\s@]{1,255})>")
_BOUNDARY = re.compile(r"""\bboundary\s*=\s*(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
_BLANK = re.compile(rb"\r?\n[ \t]*\r?\n")


def one_line(text: str) -> str:
    """Return the text on one line, without control characters, and storable."""
    return _CONTROLS.sub(" ", text).encode("utf-8", "replace").decode().strip()


def receipts(body: bytes) -> Iterator[Receipt]:
    """Yield the receipts of a report. Reads one level of parts in linear time: the sender is not trusted."""
    fields, content = _fields(body[:LARGEST_REPORT])
    kind = fields.get("content-type", "")[:LONGEST_KIND]
    boundary = _BOUNDARY.search(kind)
    if boundary is None or not kind.lower().startswith("multipart/report"):
        return
    mark = re.escape((boundary[1] or boundary[2]).encode())
    reports: list[bytes] = []
    original = None
    for part in re.split(rb"(?:^|\n)--" + mark + rb"(?:--)?[ \t]*\r?(?:\n|$)", content, maxsplit=MOST_PARTS):
        fields, inner = _fields(part)
        kind = fields.get("content-type", "").partition(";")[0].strip().lower()
        if kind in ("message/delivery-status", "message/global-delivery-status"):
            reports = _BLANK.split(inner, maxsplit=MOST_PARTS)
        elif kind in ("message/rfc822", "text/rfc822-headers", "message/global", "message/global-headers"):
            original = _MESSAGE_ID.search(_fields(inner)[0].get("message-id", ""))
    if original is None:
        return
    for report in reports:
        fields, _ = _fields(report)
        found = ENHANCED_CODE.match(fields.get("status", ""))
        status = found[1] if found else ""
        action, is_bad_address = (
            fields.get("action", "").lower(),
            status.startswith("5.1.") and status not in ABOUT_SENDER,
        )
        # A failure can have status 4.x.x: the server has given up after days of retries.
        if action == "delivered" or (action == "failed" and status.startswith(("4", "5"))):
            yield Receipt(
                provider_id=original[1],
                outcome="delivered" if action == "delivered" else "invalid" if is_bad_address else "bounced",
                code=status,
                message=one_line(fields.get("diagnostic-code", ""))[:MOST_TEXT],
                id=hashlib.sha256(body).hexdigest(),
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
