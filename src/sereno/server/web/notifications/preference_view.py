"""What the page of the preference centre shows, in the recipient's language."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from sereno.duration import duration_text
from sereno.notifications.recipients.digest_choices import DigestChoice
from sereno.notifications.recipients.preference_centre import (
    REACHABLE,
    OwnAddress,
    PreferenceCentre,
    QuietSpan,
    ScopedQuiet,
)
from sereno.notifications.recipients.preference_choices import ChannelChoice, ChoiceLine
from sereno.notifications.recipients.quiet_hours import DAYS
from sereno.server.web.messages import say
from sereno.server.web.notifications.preference_form import MIXED, USUAL, cell_value, digest_value, quiet_shown
from sereno.zones import names as zone_names

Say = Callable[..., str]
# Channels as their recipients know them; another one is shown by its own name.
CHANNELS = {
    "apns": "Push to the phone",
    "apprise": "Messenger",
    "discord": "Discord",
    "email": "E-mail",
    "expo": "Push to the phone",
    "fcm": "Push to the phone",
    "in_app": "In the application",
    "slack": "Slack",
    "sms": "SMS",
    "teams": "Microsoft Teams",
    "telegram": "Telegram",
    "web_push": "Push to the browser",
    "webhook": "Webhook",
    "whatsapp": "WhatsApp",
}
DAY_NAMES = {
    "monday": "Mon",
    "tuesday": "Tue",
    "wednesday": "Wed",
    "thursday": "Thu",
    "friday": "Fri",
    "saturday": "Sat",
    "sunday": "Sun",
}
# In seconds, for how long messages are collected.
DIGEST_TIMES = {
    0.0: "at once",
    900.0: "every 15 minutes",
    3600.0: "once an hour",
    86400.0: "once a day",
    604800.0: "once a week",
}
STATES = {
    "active": "in use",
    "unverified": "not confirmed yet",
    "invalid": "cannot be reached",
    "unsubscribed": "stopped",
}


@dataclass(frozen=True, slots=True)
class ShownCell:
    """A checkbox. `number`, `value`: of its hidden field, as it was shown; None where it cannot be changed."""

    label: str
    wanted: bool
    number: int | None
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class ShownDigest:
    """A choice of how often messages are sent. `value`: of its hidden field. `options`: value and text."""

    value: str
    chosen: str
    options: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A line of checkboxes, one for each channel."""

    name: str
    note: str
    cells: Sequence[ShownCell]
    digest: ShownDigest | None


@dataclass(slots=True)
class ShownGroup:
    """A category with its event types; without a line of its own where the event types have no category."""

    name: str
    line: ShownLine | None
    events: list[ShownLine] = field(default_factory=list)


def centre_values(found: PreferenceCentre, language: str, spans: Sequence[QuietSpan] | None) -> dict[str, Any]:
    """Return what the template needs. `spans`: quiet hours as they were sent, when they are not valid."""
    words: Say = partial(say, language)
    numbers = count()
    quiet, own = found.quiet, found.quiet.own if spans is None else list(spans)
    return {
        "everything": next((_line(words, line, numbers) for line in found.lines if _is_everything(line)), None),
        "groups": list(_groups(words, [line for line in found.lines if not _is_everything(line)], numbers)),
        "quiet_shown": quiet_shown(found),
        "default_hours": _spans_text(words, quiet.default),
        "is_own": own is not None,
        # One more, to add a span.
        "spans": [*(own or []), QuietSpan(start="", end="", days=None)],
        "days": [(day, words(DAY_NAMES[day])) for day in DAYS],
        "other_hours": [_scope_text(words, each) for each in quiet.others],
        "zone": found.zone,
        "zones": sorted(zone_names()),
        "can_add": bool(found.can_add),
        "addresses": [_address(words, each) for each in found.addresses],
    }


def readable(name: str) -> str:
    """Return the name of a category or an event type as text: tender.published becomes Tender published."""
    text = " ".join(name.replace(".", " ").replace("_", " ").replace("-", " ").split())
    return text[:1].upper() + text[1:] if text else name


def channel_label(words: Say, channel: str) -> str:
    """Return the name of a channel in the recipient's language."""
    return words(CHANNELS[channel]) if channel in CHANNELS else readable(channel)


def _is_everything(line: ChoiceLine) -> bool:
    return line.category is None and line.event is None


def _groups(words: Say, lines: Sequence[ChoiceLine], numbers: Iterator[int]) -> Iterator[ShownGroup]:
    group: ShownGroup | None = None
    for line in lines:
        shown = _line(words, line, numbers)
        if line.event is None:
            if group is not None:
                yield group
            group = ShownGroup(readable(line.category or ""), shown)
        elif line.category is None and (group is None or group.line is not None):
            if group is not None:
                yield group
            group = ShownGroup(words("Other messages"), None, [shown])
        elif group is not None:
            group.events.append(shown)
    if group is not None:
        yield group


def _line(words: Say, line: ChoiceLine, numbers: Iterator[int]) -> ShownLine:
    named = line.event or line.category
    name = readable(named) if named else words("All messages")
    note = ""
    if line.digest:
        note = words("Collected for %(time)s and sent as one message", time=duration_text(line.digest))
    cells = [_cell(words, line, cell, numbers) for cell in line.channels]
    choice = line.digest_choice
    return ShownLine(name, note, cells, None if choice is None else _digest(words, line, choice))


def _digest(words: Say, line: ChoiceLine, choice: DigestChoice) -> ShownDigest:
    usual = ", ".join(_digest_time(words, time) for time in choice.usual)
    times = sorted({*DIGEST_TIMES, *([] if choice.chosen is None else [choice.chosen])})
    options = [(USUAL, words("as usual: %(times)s", times=usual))]
    options += [(f"{time:g}", _digest_time(words, time)) for time in times]
    if choice.is_mixed:
        options.insert(0, (MIXED, words("different times")))
    chosen = MIXED if choice.is_mixed else USUAL if choice.chosen is None else f"{choice.chosen:g}"
    return ShownDigest(digest_value(line.category, line.event, chosen), chosen, options)


def _digest_time(words: Say, time: float) -> str:
    if time in DIGEST_TIMES:
        return words(DIGEST_TIMES[time])
    return words("every %(time)s", time=duration_text(time))


def _cell(words: Say, line: ChoiceLine, cell: ChannelChoice, numbers: Iterator[int]) -> ShownCell:
    label = channel_label(words, cell.channel)
    if cell.is_fixed:
        return ShownCell(label, True, None, "", words("always sent"))
    note = words("some of them") if cell.is_mixed else words("only under a condition") if cell.is_limited else ""
    value = cell_value(line.category, line.event, cell.channel, cell.wanted)
    return ShownCell(label, cell.wanted, next(numbers), value, note)


def _scope_text(words: Say, quiet: ScopedQuiet) -> str:
    names = [readable(name) for name in (quiet.event, quiet.category) if name]
    names += [channel_label(words, quiet.channel)] if quiet.channel else []
    return f"{' · '.join(names)}: {_spans_text(words, quiet.spans) or words('none')}"


def _spans_text(words: Say, spans: Sequence[QuietSpan]) -> str:
    return ", ".join(_span_text(words, span) for span in spans)


def _span_text(words: Say, span: QuietSpan) -> str:
    days = "" if span.days is None else f" ({', '.join(words(DAY_NAMES[day]) for day in span.days)})"
    return f"{span.start}\N{EN DASH}{span.end}{days}"


def _address(words: Say, address: OwnAddress) -> dict[str, Any]:
    return {
        "id": address.id,
        "channel": channel_label(words, address.channel),
        "address": address.address,
        "state": words(STATES.get(address.state, address.state)),
        "can_stop": address.state in REACHABLE,
    }
