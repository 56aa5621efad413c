"""A row of another scheduler on its way to a schedule: fields so far, differences, why it cannot be imported."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import msgspec

from sereno.errors import InvalidSchedule
from sereno.schedules.fire_placeholders import has_names
from sereno.schedules.firing import first_instant
from sereno.schedules.importers.definition import from_object, plain_job, without_key
from sereno.schedules.rules.instants import WallRule, compile_rule
from sereno.schedules.rules.when import Once, encode
from sereno.schedules.schedule import NewSchedule, shift
from sereno.text import NAME_LIMIT
from sereno.zones import DAY, instant, moment

# Every zone with clock changes has one within this time.
_A_YEAR = 366 * DAY

# Errors of rows with unexpected contents: other types, other keys, numbers beyond any calendar.
_ODD_ROWS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

# The kind of rule (`WallRule` with or without shifts), and the kind of clock change.
Turn = tuple[Literal["fixed", "rhythm"], Literal["gap", "fold"]]


@dataclass(frozen=True, slots=True)
class ImportedSchedule:
    """A row of another scheduler as a schedule of sereno.

    `schedule` is its definition; or it is None, and `problem` says why. `note` lists the differences to the original.
    `enabled` tells whether it runs there. With neither schedule nor problem it is left out: it has no purpose here, and
    `note` says why.
    """

    key: str
    schedule: dict[str, Any] | None
    problem: str | None
    enabled: bool
    note: str | None

    @property
    def left_out(self) -> bool:
        return self.schedule is None and self.problem is None


class UnreadableSchedule(Exception):  # noqa: N818 - named for what happened
    """The row cannot be imported; the message says why."""


class NeedlessSchedule(Exception):  # noqa: N818 - named for what it is
    """The row has no purpose here; the message says why."""


@dataclass(slots=True)
class ScheduleDraft:
    """The fields and notes that an importer has collected.

    `stopped`: the note for a schedule that is not enabled there. `clock`: how that scheduler differs when the clock
    skips or repeats a time.
    """

    key: str
    enabled: bool
    stopped: str
    clock: Mapping[Turn, str] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def finished(draft: ScheduleDraft, fill: Callable[[ScheduleDraft], None], now: datetime) -> ImportedSchedule:
    """Fill and check the draft. A row with unexpected contents does not stop the others from being read."""
    try:
        fill(draft)
        schedule = from_object({"key": draft.key, **draft.fields}, plain_job)
        _check_names(schedule)
        _check_future(schedule, now)
    except NeedlessSchedule as why:
        return ImportedSchedule(draft.key, None, None, draft.enabled, f"left out: {why}")
    except (UnreadableSchedule, InvalidSchedule) as error:
        return _left(draft, _reason(draft, error))
    except _ODD_ROWS as error:
        return _left(draft, f"it cannot be read: {type(error).__name__} {error!s:.100}")
    notes = [*([] if draft.enabled else [draft.stopped]), *draft.notes, *_clock_notes(draft, schedule, now)]
    made = {"key": draft.key, **draft.fields, "when": msgspec.json.decode(encode(schedule.when))}
    return ImportedSchedule(draft.key, made, None, draft.enabled, _joined(notes))


def _left(draft: ScheduleDraft, why: str) -> ImportedSchedule:
    return ImportedSchedule(draft.key, None, why, draft.enabled, None)


def _reason(draft: ScheduleDraft, error: Exception) -> str:
    """Return the problem without the key, which is shown next to it, and without the pointer line."""
    return without_key(error, draft.key).partition("\n")[0]


def _joined(sentences: list[str]) -> str | None:
    """Join notes, short enough to be stored with a schedule."""
    return "; ".join(sentences)[:NAME_LIMIT] or None


def _check_names(schedule: NewSchedule) -> None:
    """Refuse placeholders: a brace that was literal there must not become the date of a fire here."""
    if has_names(schedule.job.args.decode()):
        raise UnreadableSchedule(
            "its arguments contain {fire…}, {date}, {key} or {tenant}, which a schedule replaces: create it by hand"
        )


def _check_future(schedule: NewSchedule, now: datetime) -> None:
    starts_at = None if schedule.starts_at is None else instant(schedule.starts_at)
    at = first_instant(compile_rule(schedule.when), shift(schedule.key, schedule.when), instant(now), starts_at)
    if at is None or (schedule.ends_at is not None and at > instant(schedule.ends_at)):
        raise UnreadableSchedule("it would never fire again: its instants are all past")


def _clock_notes(draft: ScheduleDraft, schedule: NewSchedule, now: datetime) -> Iterator[str]:
    """Yield the differences at coming clock changes that skip or repeat one of its times."""
    if isinstance(schedule.when, Once):
        return
    rule = compile_rule(schedule.when)
    if not isinstance(rule, WallRule):
        return
    for turn, at in _clock_changes(rule, instant(now)).items():
        if turn in draft.clock:
            yield f"the clock of {schedule.when.tz} changes on {moment(at):%Y-%m-%d}: {draft.clock[turn]}"


def _clock_changes(rule: WallRule, start: int) -> dict[Turn, int]:
    """Return the first clock change of each kind that skips or repeats one of its times."""
    found: dict[Turn, int] = {}
    segment = rule.zone.segment(start)
    while segment.end < start + _A_YEAR:
        at = segment.end
        before, after = at + segment.offset, at + segment.offset_after
        if rule.walls.first_from(min(before, after)) < max(before, after):
            found.setdefault(("fixed" if rule.shifts else "rhythm", "gap" if before < after else "fold"), at)
        segment = rule.zone.segment(at)
    return found
