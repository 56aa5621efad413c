"""Times, durations and numbers as pages show them."""

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from sereno.duration import duration_text
from sereno.server.web.numbers import NONE
from sereno.zones import names

# A script never shows what has passed as a time to come, whatever the clock of the device.
COMING = Markup('<time datetime="{}" title="{}">{}</time>')
PAST = Markup('<time datetime="{}" data-past title="{}">{}</time>')


def zone_of(name: str | None) -> tzinfo:
    """Return the viewer's time zone; UTC for an unknown name."""
    return ZoneInfo(name) if name in names() else UTC


def when(at: datetime | None, now: datetime, zone: tzinfo, say: Callable[..., str]) -> Markup:
    """Return how long ago, or in how long, with the time as a tooltip. A script updates it while the page is open."""
    if at is None:
        return Markup('<span class="dim">{}</span>').format(NONE)
    seconds = (at - now).total_seconds()
    words = (
        say("in %(time)s", time=duration_text(seconds))
        if seconds > 0
        else say("%(time)s ago", time=duration_text(-seconds))
    )
    local = at.astimezone(zone)
    full = f"{local:%Y-%m-%d %H:%M:%S} {local.tzname()}"
    mark = COMING if seconds > 0 else PAST
    return mark.format(at.astimezone(UTC).isoformat(), full, words)


def clock(at: datetime | None, zone: tzinfo, form: str = "%H:%M") -> str:
    return NONE if at is None else f"{at.astimezone(zone):{form}}"


def length(seconds: float | None) -> str:
    """Return a short duration."""
    if seconds is None:
        return NONE
    return f"{seconds:.2f} s" if 1 <= seconds < 10 else duration_text(seconds)  # noqa: PLR2004 - two digits while they say something


@pass_context
def old(context: Context, age: float) -> Markup:
    """Return the mark of a stale value."""
    words = context["_"]("The database is busy: this is the last known value.")
    return Markup('<span class="old" title="{}">{}</span>').format(words, f"◷ {duration_text(age)}")
