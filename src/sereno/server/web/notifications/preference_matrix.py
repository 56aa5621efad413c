"""The matrix of preferences by event type and channel, with their origin: for a recipient, or the defaults."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sereno.channels.contract import IN_APP
from sereno.duration import duration_text
from sereno.notifications.recipients.preference import Preference, resolve
from sereno.notifications.recipients.quiet_hours import DAYS
from sereno.notifications.rows import PreferenceRow
from sereno.notifications.why import EventKind
from sereno.server.web.page_request import PageRequest

# The most columns and rows of a matrix that fits a page.
MOST_CHANNELS = 12
MOST_KINDS = 100


@dataclass(frozen=True, slots=True)
class PreferenceCell:
    """Whether it is sent, and why. `is_fixed`: it is sent whatever the preferences are.

    `body`: the API request that toggles it; `back`: the one that removes the recipient's own preference, if any.
    """

    wanted: bool
    by: Literal["own", "default", "code"]
    who: str
    is_fixed: bool
    is_limited: bool
    body: dict[str, Any]
    back: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class PreferenceLine:
    """An event type, or a whole category. A cell is None where that channel is never used."""

    name: str
    is_category: bool
    kind: EventKind | None
    cells: Sequence[PreferenceCell | None]


@dataclass(frozen=True, slots=True)
class PreferenceMatrix:
    """Columns are channels."""

    channels: Sequence[str]
    lines: Sequence[PreferenceLine]


def matrix(
    page: PageRequest, kinds: Mapping[str, EventKind], rows: Iterable[PreferenceRow], recipient: str | None
) -> PreferenceMatrix:
    """`recipient`: whose own preferences are shown; None for the defaults of a tenant."""
    preferences = [row.preference(recipient or "") for row in rows]
    chosen = sorted(kinds.values(), key=lambda kind: (kind.category or "~", kind.name))[:MOST_KINDS]
    names = {channel for kind in chosen for channel in kind.channels}
    names |= {each.channel for each in preferences if each.channel}
    channels = sorted(names, key=lambda name: (name == IN_APP, name))[:MOST_CHANNELS]
    lines: list[PreferenceLine] = []
    category: str | None = None
    for kind in chosen:
        if kind.category is not None and kind.category != category:
            category = kind.category
            inside = [each for each in chosen if each.category == category and not each.critical]
            if inside:
                group = EventKind("", (), category, opt_in=all(each.opt_in for each in inside))
                used = {channel for each in inside for channel in each.channels}
                cells = [
                    _cell(page, preferences, recipient, group, category, channel) if channel in used else None
                    for channel in channels
                ]
                lines.append(PreferenceLine(category, True, None, cells))
        cells = [
            _cell(page, preferences, recipient, kind, kind.category, channel) if channel in kind.channels else None
            for channel in channels
        ]
        lines.append(PreferenceLine(kind.name, False, kind, cells))
    return PreferenceMatrix(channels, lines)


def _cell(
    page: PageRequest,
    preferences: Sequence[Preference],
    recipient: str | None,
    kind: EventKind,
    category: str | None,
    channel: str,
) -> PreferenceCell:
    """`kind` has no name for a whole category."""
    event = kind.name or None
    choice = resolve(preferences, category=category, event=event, channel=channel)
    is_critical = kind.critical
    default = not kind.opt_in
    wanted = True if is_critical else default if choice.wanted is None else choice.wanted
    row = choice.wanted_by
    # A row with a category and an event needs both to match; a preference set here names the event, or the category.
    place = {"event": event, "channel": channel} if event else {"category": category, "channel": channel}
    is_own = row is not None and (row.recipient is not None) == (recipient is not None)
    exactly = is_own and row is not None and (row.event, row.channel) == (event, channel)
    exactly = exactly and row is not None and row.category == (None if event else category)
    return PreferenceCell(
        wanted=wanted,
        by="code" if row is None or is_critical else "own" if row.recipient is not None else "default",
        who=words_of(page, row, is_critical=is_critical, is_on_request=not default),
        is_fixed=is_critical,
        is_limited=bool(choice.condition) and not is_critical,
        body={**place, "wanted": not wanted},
        back={**place, "wanted": None} if exactly else None,
    )


def words_of(page: PageRequest, row: Preference | None, *, is_critical: bool, is_on_request: bool) -> str:
    """Return the origin of a preference in words."""
    if is_critical:
        return page.say("always sent: it is critical")
    if row is None:
        return page.say("opt-in only") if is_on_request else page.say("no preference is set")
    named = " · ".join(name for name in (row.event, row.category, row.channel) if name) or page.say("everything")
    if row.recipient is not None:
        return page.say("their own preference for %(what)s", what=named)
    if row.tenant is not None:
        return page.say("the default of %(tenant)s for %(what)s", tenant=row.tenant, what=named)
    return page.say("the default for all about %(what)s", what=named)


def as_line(row: PreferenceRow) -> dict[str, Any]:
    """Return a preference as a line of a list, with the API request that removes it."""
    place = {"event": row.event, "category": row.category, "channel": row.channel}
    words = {"wanted": row.wanted, "condition": row.condition, "quiet": row.quiet, "digest": row.digest}
    back = {name: None for name, value in words.items() if value is not None}
    return {
        "row": row,
        "spans": [span_text(each) for each in row.quiet or ()],
        "digest": duration_text(row.digest) if row.digest else None,
        "back": {**place, **back},
    }


def span_text(span: Mapping[str, Any]) -> str:
    """Return quiet hours in short."""
    days = span.get("days")
    when = f" ({', '.join(DAYS[day - 1][:3] for day in days)})" if days else ""
    return f"{span['start'][:5]}\N{EN DASH}{span['end'][:5]}{when}"
