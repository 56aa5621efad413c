"""The form of the preference centre: fields as they were shown and as they were sent, and what has changed.

Every choice is sent with its state on the page, so that only those are written which the recipient has changed: what
another window or the application has changed meanwhile stays.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

import msgspec

from sereno.errors import InvalidArguments
from sereno.notifications.recipients.digest_choices import DigestChange
from sereno.notifications.recipients.preference_centre import (
    LONGEST_ZONE,
    MOST_CHANGES,
    MOST_STOPPED,
    PreferenceCentre,
    PreferenceChanges,
    QuietSpan,
)
from sereno.notifications.recipients.preference_choices import ChoiceChange
from sereno.notifications.recipients.quiet_hours import DAYS, MOST_SPANS, QuietHours

# A form with 100 event types on 12 channels has 200 kB.
LARGEST_FORM = 512 * 1024
MOST_FIELDS = 2 * MOST_CHANGES + MOST_STOPPED + MOST_SPANS * (len(DAYS) + 2) + 10
# The choice of one's own quiet hours, where there are also those of a default.
OWN = "own"
# As the page shows it: the recipient has set no hours.
NONE = "null"
# The value of a digest without a choice of one's own; another one is a number of seconds, or MIXED.
USUAL, MIXED = "usual", "mixed"

_ID = re.compile(r"[0-9]{1,19}")
# Category, event, channel, and whether it was on.
_cells = msgspec.json.Decoder(tuple[str | None, str | None, str, bool])
# Category, event, and the value that was shown.
_digest_fields = msgspec.json.Decoder(tuple[str | None, str | None, str])
_seconds = msgspec.json.Decoder(float)
_Fields = Mapping[str, Sequence[str]]


class InvalidQuietHours(InvalidArguments):
    """The quiet hours of the form are not valid; `spans`: as they were written."""

    def __init__(self, spans: list[QuietSpan]) -> None:
        super().__init__("these quiet hours are not valid")
        self.spans = spans


def cell_value(category: str | None, event: str | None, channel: str, wanted: bool) -> str:
    """Return the hidden field of a choice."""
    return msgspec.json.encode((category, event, channel, wanted)).decode()


def digest_value(category: str | None, event: str | None, shown: str) -> str:
    """Return the hidden field of a digest."""
    return msgspec.json.encode((category, event, shown)).decode()


def parse(raw: bytes) -> dict[str, list[str]]:
    """Return the fields; raise InvalidArguments for what no browser sends."""
    try:
        text = raw.decode("utf-8", "replace")
        return parse_qs(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise InvalidArguments("this form has too many fields") from None


def changes(fields: _Fields) -> PreferenceChanges:
    """Return what differs from what was shown."""
    # A longer name would be compared with those of all zones.
    zone = _one(fields, "zone")[:LONGEST_ZONE]
    return PreferenceChanges(
        choices=_choices(fields),
        digests=_digests(fields),
        quiet=_quiet(fields),
        zone=zone if zone and zone != _one(fields, "zone_shown") else None,
        stop=[int(each) for each in fields.get("stop", ())[:MOST_STOPPED] if _ID.fullmatch(each)],
    )


def quiet_shown(centre: PreferenceCentre) -> str:
    """Return the hidden field of the quiet hours."""
    return msgspec.json.encode(centre.quiet.own).decode()


def _choices(fields: _Fields) -> list[ChoiceChange]:
    on = set(fields.get("on", ()))
    found = []
    for number, raw in enumerate(fields.get("cell", ())[:MOST_CHANGES]):
        try:
            category, event, channel, was_on = _cells.decode(raw.encode("utf-8", "replace"))
        except msgspec.DecodeError:
            raise InvalidArguments("this form is not from this page") from None
        if (str(number) in on) != was_on:
            found.append(ChoiceChange(category=category, event=event, channel=channel, wanted=not was_on))
    return found


def _digests(fields: _Fields) -> list[DigestChange]:
    found = []
    shown, sent = fields.get("digest_shown", ())[:MOST_CHANGES], fields.get("digest", ())[:MOST_CHANGES]
    for raw, value in zip(shown, sent, strict=False):
        try:
            category, event, before = _digest_fields.decode(raw.encode("utf-8", "replace"))
            if value not in (before, MIXED):
                digest = None if value == USUAL else _seconds.decode(value.encode("utf-8", "replace"))
                found.append(DigestChange(category=category, event=event, digest=digest))
        except msgspec.DecodeError:
            raise InvalidArguments("this form is not from this page") from None
    return found


def _quiet(fields: _Fields) -> list[QuietHours] | msgspec.UnsetType | None:
    if "quiet_shown" not in fields:
        return msgspec.UNSET
    spans = [span for span in _spans(fields) if span.start or span.end]
    shown = _one(fields, "quiet_shown")
    # Hours that were written beside those of the default are meant, too. Without a default, no hours and none of one's
    # own are the same.
    is_new = bool(spans) and shown == NONE
    is_own = is_new or _one(fields, "quiet") == OWN if "quiet" in fields else bool(spans) or shown == "[]"
    wanted = spans if is_own else None
    if msgspec.json.encode(wanted).decode() == shown:
        return msgspec.UNSET
    try:
        return None if wanted is None else [QuietHours(each.start, each.end, each.days) for each in wanted]
    except InvalidArguments:
        raise InvalidQuietHours(spans) from None


def _spans(fields: _Fields) -> list[QuietSpan]:
    starts, ends = fields.get("start", ())[:MOST_SPANS], fields.get("end", ())[:MOST_SPANS]
    found = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=False)):
        days = [day for day in DAYS if day in fields.get(f"days{number}", ())]
        # A span on no day would never begin: all days are meant, as where none is named.
        every = not days or len(days) == len(DAYS)
        found.append(QuietSpan(start=start, end=end, days=None if every else days))
    return found


def _one(fields: _Fields, name: str) -> str:
    values: Any = fields.get(name) or [""]
    return str(values[0])
