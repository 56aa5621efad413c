"""Texts about schedules: rules, times in a schedule's own zone, states and instants."""

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from typing import Literal

import msgspec

from sereno.cli.output import visible
from sereno.duration import duration_text
from sereno.errors import InvalidSchedule
from sereno.schedules.lists import clock_of, in_words
from sereno.schedules.rows import ScheduleRow
from sereno.schedules.rules.preview import Instant
from sereno.schedules.rules.when import Once, When, decode, describe

MICROSECONDS = 1_000_000
# Seconds. Closer times are shown with seconds, by weekday, or without a year.
AN_HOUR = 3600
A_WEEK = 6 * 86400
A_YEAR = 300 * 86400


def full_time(at: datetime, clock: tzinfo, *, precise: bool = False) -> str:
    """Return a time with its date: Mon 2026-11-16 06:07:12 EET."""
    local = at.astimezone(clock)
    fraction = f".{local.microsecond // 1000:03}" if precise else ""
    return f"{local:%a %Y-%m-%d %H:%M:%S}{fraction} {local:%Z}"


def brief_time(at: datetime, clock: tzinfo, now: datetime) -> str:
    """Return a short time: 06:07 EET today, Mon 06:07 EET within a week, Dec 24 16:00 EET within a year."""
    local = at.astimezone(clock)
    away = abs((at - now).total_seconds())
    if local.date() == now.astimezone(clock).date():
        return f"{local:%H:%M:%S %Z}" if local.second and away < AN_HOUR else f"{local:%H:%M %Z}"
    return (
        f"{local:%a %H:%M %Z}" if away < A_WEEK else f"{local:%b %d %H:%M %Z}" if away < A_YEAR else f"{local:%Y-%m-%d}"
    )


def relative(at: datetime, now: datetime, late: Literal["due", "ago"] = "due") -> str:
    """Return the distance from now: in 5 h 41 m, due for 3 m, or 3 m ago."""
    wait = (at - now).total_seconds()
    if wait >= 0:
        return f"in {duration_text(wait)}"
    return f"due for {duration_text(-wait)}" if late == "due" else f"{duration_text(-wait)} ago"


def soon(at: datetime, now: datetime) -> str:
    """Return the distance from now in its largest unit: in 5 h."""
    wait = (at - now).total_seconds()
    return f"in {about(wait)}" if wait >= 0 else f"due for {about(-wait)}"


def about(seconds: float) -> str:
    """Return a duration in its largest unit: 3 m, 5 h."""
    return " ".join(duration_text(max(0.0, seconds)).split()[:2])


def headline(key: str, when: When, shift: int, task: str) -> str:
    """Return the headline: menu:42   every day at 06:00, Europe/Riga (spread +7m12s)   refresh_menu."""
    return "   ".join(visible(part) for part in (key, rule_words(when, shift), task) if part)


def rule_words(when: When, shift: int) -> str:
    """Return the rule as text, with the offset of this schedule in its spread."""
    if isinstance(when, Once) or not when.spread or not shift:
        return describe(when)
    alone = msgspec.structs.replace(when, spread=0)
    share = shift // MICROSECONDS or shift / MICROSECONDS
    return f"{describe(alone)} (spread +{duration_text(share).replace(' ', '')})"


def row_headline(row: ScheduleRow) -> str:
    try:
        return headline(row.key, decode(row.rule), row.shift, row.task)
    except InvalidSchedule:
        return f"{visible(row.key)}   {visible(in_words(row.rule))}   {visible(row.task)}"


def instant_lines(
    found: Sequence[Instant], clock: tzinfo, now: datetime, late: Literal["due", "ago"] = "due"
) -> Iterator[str]:
    """Return a line for each instant: its time, its distance from now, and a note on clock changes."""
    texts = [full_time(each.at, clock) for each in found]
    if len(set(texts)) < len(texts):
        texts = [full_time(each.at, clock, precise=True) for each in found]
    waits = [relative(each.at, now, late) for each in found]
    wide, wider = (max(map(len, column), default=0) for column in (texts, waits))
    for text, wait, each in zip(texts, waits, found, strict=True):
        yield f"{text:<{wide}}   {wait:<{wider}}   {each.note}".rstrip()


def effective_state(row: ScheduleRow, now: datetime) -> str:
    """Return the state; a row with a pause that has an end is stored as enabled, and counts as paused until then."""
    lasts = row.state == "enabled" and row.paused_until is not None and row.paused_until > now
    return "paused" if lasts else row.state


def no_instants(row: ScheduleRow, now: datetime) -> str:
    """Return why a schedule has no next instant."""
    if row.state == "enabled" and effective_state(row, now) == "paused":
        why = "its instant is within the pause" if row.rule.get("kind") == "once" else "it ends before its pause does"
        return f"No next run: {why}."
    match row.state:
        case "enabled" if row.next_run_at is None:
            return "No next run yet: it is planned when the current run ends."
        case "enabled":
            return "No next run."
        case "finished":
            return "No next run: it is finished."
        case _:
            return f"No next run: it is {state_words(row, now)}."


def state_words(row: ScheduleRow, now: datetime) -> str:
    """Return the state with the end, the author and the reason of a pause."""
    text = effective_state(row, now)
    if text == "paused" and row.paused_until is not None:
        text += f" until {full_time(row.paused_until, clock_of(row.rule))}{_by(row)}"
    elif text in ("paused", "disabled"):
        text += f"{_by(row)}, {about((now - row.changed_at).total_seconds())} ago"
    return visible(text + (f": {first_line(row.note)}" if row.note else ""))


def first_line(note: str) -> str:
    """Return the first line of a note; the note of an invalid rule marks the position on a second line."""
    return note.strip().partition("\n")[0].rstrip()


def last_words(row: ScheduleRow, now: datetime) -> str:
    """Return the outcome of the last run as stored in the row: succeeded 3 m ago, or fired 3 m ago."""
    if row.last_fired_at is None:
        return ""
    ended = row.last_finished_at is not None and row.last_finished_at >= row.last_fired_at
    if ended and row.last_state and row.last_finished_at is not None:
        return f"{row.last_state} {about((now - row.last_finished_at).total_seconds())} ago"
    return f"fired {about((now - row.last_fired_at).total_seconds())} ago"


def _by(row: ScheduleRow) -> str:
    return f" by {row.changed_by}" if row.changed_by else ""
