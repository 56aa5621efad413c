"""Operations that the application, the API and the preference centre share: setting a preference."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from sereno.database.statement import Operation
from sereno.duration import Duration
from sereno.notifications.recipients import store
from sereno.notifications.recipients.condition import compile_condition
from sereno.notifications.recipients.preference import ASPECTS, Preference
from sereno.notifications.recipients.quiet_hours import DAYS, QuietHours


class PreferenceData(TypedDict, total=False):
    """A preference and its scope: event, category and channel; an omitted one means any."""

    tenant: str | None
    category: str | None
    event: str | None
    channel: str | None
    wanted: bool | None
    condition: Mapping[str, Any] | None
    quiet: QuietHours | Sequence[QuietHours] | None
    digest: Duration | None


def prefer(key: str | None, wish: PreferenceData) -> Operation[bool]:
    """Set a preference of a recipient, or a default; False if there is no such recipient."""
    given: dict[str, Any] = {**wish}
    preference = Preference(recipient=key, **given)
    condition, quiet = preference.condition, preference.quiet
    return store.prefer(
        preference,
        [aspect for aspect in ASPECTS if aspect in given],
        compiled=None if condition is None else compile_condition(condition),
        quiet=None if quiet is None else [_span(span) for span in quiet],
    )


def _span(quiet: QuietHours) -> dict[str, Any]:
    """Return the span as it is stored: days as numbers, 1 for Monday."""
    days = None if quiet.days is None else sorted(DAYS.index(day) + 1 for day in quiet.days)
    return {"start": quiet.start, "end": quiet.end, "days": days}
