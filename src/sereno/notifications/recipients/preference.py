"""What a recipient wants to hear of, by which channel, under which condition, and at which hours.

A preference says something about one aspect or several, for one recipient or as a default of the tenant, for an event
type, a category, a channel, or any. Each aspect is decided by the most specific preference that speaks of it; `why`
names that one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from sereno.errors import InvalidArguments
from sereno.notifications.recipients.condition import compile_condition, holds
from sereno.notifications.recipients.quiet_hours import QuietHours, checked
from sereno.text import check_text

Reason: TypeAlias = Literal["preference off", "condition"]


class Preference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row. A name that is None means any; an aspect that is None is left to a less specific row.

    An empty condition, and an empty list of quiet hours, do say something: that there are none.
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

    def __post_init__(self) -> None:
        for name in ("tenant", "recipient", "category", "event", "channel"):
            check_text(name, getattr(self, name))
        if self.wanted is not None and not isinstance(self.wanted, bool):
            raise InvalidArguments(f"wanted is true, false or left out, not {self.wanted!r:.60}")
        if self.condition is not None:
            compile_condition(self.condition)
        if self.quiet is not None:
            msgspec.structs.force_setattr(self, "quiet", checked(self.quiet))

    def is_about(self, *, category: str | None, event: str | None, channel: str | None) -> bool:
        """Whether it speaks of such a delivery, for whomever its row is."""
        return self.category in (None, category) and self.event in (None, event) and self.channel in (None, channel)


def specificity(preference: Preference) -> int:
    """How much it names: recipient 100, event 20, category 10, channel 1, added up. The highest number decides.

    A recipient's own row beats a default, then an event beats a category beats any, then a channel beats any channel.
    Each combination has a number of its own. In SQL:

        100 * (recipient is not null)::int + 20 * (event is not null)::int
            + 10 * (category is not null)::int + (channel is not null)::int
    """
    return (
        100 * (preference.recipient is not None)
        + 20 * (preference.event is not None)
        + 10 * (preference.category is not None)
        + (preference.channel is not None)
    )


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Each aspect, and the row that decided it; None where no row speaks of it."""

    wanted: bool | None = None
    wanted_by: Preference | None = None
    condition: Mapping[str, Any] | None = None
    condition_by: Preference | None = None
    quiet: Sequence[QuietHours] | None = None
    quiet_by: Preference | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether it is to be delivered. `quiet`: hours that it must not leave in. `by`: the row that spoke against it."""

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
) -> Choice:
    """What the rows of one recipient, and the defaults of its tenant, say of one event by one channel.

    Of two rows that name the same, the later one counts.
    """
    rows = [row for row in preferences if row.is_about(category=category, event=event, channel=channel)]
    # The last one decides; a sort keeps the order of equals.
    rows.sort(key=specificity)
    wanted = _last(rows, lambda row: row.wanted is not None)
    condition = _last(rows, lambda row: row.condition is not None)
    quiet = _last(rows, lambda row: row.quiet is not None)
    return Choice(
        wanted=wanted.wanted if wanted else None,
        wanted_by=wanted,
        condition=condition.condition if condition else None,
        condition_by=condition,
        quiet=quiet.quiet if quiet else None,
        quiet_by=quiet,
    )


def decide(choice: Choice, *, payload: Any, critical: bool, default_wanted: bool = True) -> Decision:
    """Deliver or skip. Critical is delivered whatever the preferences say, and at any hour."""
    if critical:
        return Decision()
    if not (default_wanted if choice.wanted is None else choice.wanted):
        return Decision(reason="preference off", by=choice.wanted_by)
    if choice.condition is not None and not holds(choice.condition, payload):
        return Decision(reason="condition", by=choice.condition_by)
    return Decision(quiet=choice.quiet or ())


def _last(rows: Sequence[Preference], speaks: Callable[[Preference], bool]) -> Preference | None:
    return next(filter(speaks, reversed(rows)), None)
