"""Preferences: which events a recipient wants, on which channel, under which condition, at which hours, how often.

A preference sets one or more aspects, for one recipient or as a default of the tenant, for an event type, a category, a
channel, or any. Each aspect is decided by the most specific preference that sets it; `why` names that preference.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from sereno.duration import Duration, seconds
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.notifications.recipients.condition import compile_condition, holds
from sereno.notifications.recipients.quiet_hours import QuietHours, checked
from sereno.text import check_text

# The aspects that a preference can set.
ASPECTS = ("wanted", "condition", "quiet", "digest")

# Longest time in seconds for which a recipient can have messages collected.
LONGEST_DIGEST = 7 * 86400.0

Reason: TypeAlias = Literal["preference off", "condition"]


class Preference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row. A name that is None means any; an aspect that is None is left to a less specific row.

    An empty condition and an empty list of quiet hours are values: no condition, no quiet hours. `digest`: seconds for
    which messages of event types with a digest are collected; 0: each is sent at once, by itself.
    """

    tenant: str | None = None
    # None: a default of the tenant.
    recipient: str | None = None
    category: str | None = None
    event: str | None = None
    channel: str | None = None
    wanted: bool | None = None
    condition: Mapping[str, Any] | None = None
    quiet: Sequence[QuietHours] | None = None
    digest: float | None = None

    def __post_init__(self) -> None:
        for name in ("tenant", "recipient", "category", "event", "channel"):
            check_text(name, getattr(self, name))
        if self.wanted is not None and not isinstance(self.wanted, bool):
            raise InvalidArguments(f"wanted must be true, false or omitted, not {self.wanted!r:.60}")
        if self.condition is not None:
            compile_condition(self.condition)
        if self.quiet is not None:
            msgspec.structs.force_setattr(self, "quiet", checked(self.quiet))
        if self.digest is not None:
            msgspec.structs.force_setattr(self, "digest", _checked_digest(self.digest))

    def is_about(self, *, category: str | None, event: str | None, channel: str | None) -> bool:
        """Return whether the row applies to such a delivery, regardless of the recipient."""
        return self.category in (None, category) and self.event in (None, event) and self.channel in (None, channel)


def specificity(preference: Preference) -> int:
    """Return a weight: recipient 100, event 20, category 10, channel 1, added up. The highest weight decides.

    A recipient's own row beats a default, then an event beats a category beats any, then a channel beats any channel.
    Each combination has a unique weight. In SQL:

        100 * (recipient is not null)::int + 20 * (event is not null)::int
            + 10 * (category is not null)::int + (channel is not null)::int
    """
    return (
        100 * (preference.recipient is not None)
        + 20 * (preference.event is not None)
        + 10 * (preference.category is not None)
        + (preference.channel is not None)
    )


class PreferenceChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Each aspect and the row that decided it; None if no row sets it."""

    wanted: bool | None = None
    wanted_by: Preference | None = None
    condition: Mapping[str, Any] | None = None
    condition_by: Preference | None = None
    quiet: Sequence[QuietHours] | None = None
    quiet_by: Preference | None = None
    digest: float | None = None
    digest_by: Preference | None = None


class PreferenceDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether to deliver. `quiet`: hours in which the delivery waits. `by`: the row that rejected it."""

    reason: Reason | None = None
    by: Preference | None = None
    quiet: Sequence[QuietHours] = ()

    @property
    def wanted(self) -> bool:
        return self.reason is None

    def __str__(self) -> str:
        return "wanted" if self.reason is None else f"skipped: {self.reason}"


def resolve(
    preferences: Iterable[Preference], *, category: str | None, event: str | None, channel: str | None
) -> PreferenceChoice:
    """Resolve the rows of one recipient and the defaults of its tenant for one event and channel.

    Of two rows with the same names, the later one wins.
    """
    rows = [row for row in preferences if row.is_about(category=category, event=event, channel=channel)]
    # The last row decides; the sort is stable.
    rows.sort(key=specificity)
    wanted = _last(rows, lambda row: row.wanted is not None)
    condition = _last(rows, lambda row: row.condition is not None)
    quiet = _last(rows, lambda row: row.quiet is not None)
    digest = _last(rows, lambda row: row.digest is not None)
    return PreferenceChoice(
        wanted=wanted.wanted if wanted else None,
        wanted_by=wanted,
        condition=condition.condition if condition else None,
        condition_by=condition,
        quiet=quiet.quiet if quiet else None,
        quiet_by=quiet,
        digest=digest.digest if digest else None,
        digest_by=digest,
    )


def decide(
    choice: PreferenceChoice, *, payload: Any, critical: bool, default_wanted: bool = True
) -> PreferenceDecision:
    """Decide to deliver or skip. A critical event is delivered regardless of preferences and quiet hours."""
    if critical:
        return PreferenceDecision()
    if not (default_wanted if choice.wanted is None else choice.wanted):
        return PreferenceDecision(reason="preference off", by=choice.wanted_by)
    if choice.condition is not None and not holds(choice.condition, payload):
        return PreferenceDecision(reason="condition", by=choice.condition_by)
    return PreferenceDecision(quiet=choice.quiet or ())


def _checked_digest(given: Duration) -> float:
    try:
        found = seconds(given)
    except ConfigurationError as error:
        raise InvalidArguments(f"digest: {error}") from None
    if found > LONGEST_DIGEST:
        raise InvalidArguments(f"digest={given!r:.60}: messages are collected for 7 days at most; 0 sends each at once")
    return found


def _last(rows: Sequence[Preference], speaks: Callable[[Preference], bool]) -> Preference | None:
    return next(filter(speaks, reversed(rows)), None)
