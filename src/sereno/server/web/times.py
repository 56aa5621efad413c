"""Moments, lengths and figures as a page shows them."""

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from sereno.duration import spoken
from sereno.zones import names

# For what is not there.
NONE = "\N{EN DASH}"


def zone_of(name: str | None) -> tzinfo:
    """The viewer's; UTC for a name that is none."""
    return ZoneInfo(name) if name in names() else UTC


def when(at: datetime | None, now: datetime, zone: tzinfo, say: Callable[..., str]) -> Markup:
    """How long ago, or in how long; the moment itself under the pointer. A script keeps it true while one looks."""
    if at is None:
        return Markup('<span class="dim">{}</span>').format(NONE)
    seconds = (at - now).total_seconds()
    words = say("in %(time)s", time=spoken(seconds)) if seconds > 0 else say("%(time)s ago", time=spoken(-seconds))
    local = at.astimezone(zone)
    full = f"{local:%Y-%m-%d %H:%M:%S} {local.tzname()}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(at.astimezone(UTC).isoformat(), full, words)


def clock(at: datetime | None, zone: tzinfo, form: str = "%H:%M") -> str:
    return NONE if at is None else f"{at.astimezone(zone):{form}}"


def length(seconds: float | None) -> str:
    """A duration, short."""
    if seconds is None:
        return NONE
    return f"{seconds:.2f} s" if 1 <= seconds < 10 else spoken(seconds)  # noqa: PLR2004 - two digits while they say something


def figure(value: float | None) -> str:
    """With a narrow space for every thousand."""
    if value is None:
        return NONE
    return f"{value:,.0f}".replace(",", "\u202f")


@pass_context
def old(context: Context, age: float) -> Markup:
    """Beside a value that could not be looked up now."""
    words = context["_"]("The database is busy: this is what was seen last.")
    return Markup('<span class="old" title="{}">{}</span>').format(words, f"◷ {spoken(age)}")
