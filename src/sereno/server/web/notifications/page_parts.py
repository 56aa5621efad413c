"""What the pages of notifications share: tabs, bars, and texts for reasons."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from markupsafe import Markup

from sereno.server.web import cursor
from sereno.server.web.page_request import PageRequest
from sereno.server.web.times import clock

DAY = 86_400.0
# Not cached: a user sees the effect of a change at once.
AT_ONCE = 0.0
# Path, name, and whether users of one tenant see it.
TABS = (
    ("notifications", "Events", True),
    ("deliveries", "Deliveries", True),
    ("recipients", "Recipients", True),
    ("templates", "Templates", False),
    ("channels", "Channels", False),
    ("preferences", "Preferences", True),
)
# The tab of pages without one.
UNDER = {"event": "notifications", "recipient": "recipients", "template": "templates"}
# Why nothing was sent, as the end of a sentence.
BECAUSE = {
    "preference off": "people do not want it",
    "condition": "a condition did not hold",
    "throttled": "the frequency limit was reached",
    "no active address": "there was no active address",
    "address unverified": "an address was not verified",
    "address invalid": "an address did not work",
    "address unsubscribed": "an address was unsubscribed",
    "address is gone": "an address was deleted",
    "no longer true": "it had expired",
    "its event is gone": "the event was deleted",
    "the recipient was deleted": "the recipient was deleted",
    "covered by delivery": "another message covered it",
}
# Colours of the bars by the state of a delivery.
KINDS = {
    "pending": "skip",
    "sending": "accent",
    "sent": "ok",
    "delivered": "ok",
    "read": "ok",
    "skipped": "skip",
    "unknown": "retry",
    "expired": "retry",
}


class TimelineStep(Protocol):
    """One step of a series of figures."""

    @property
    def at(self) -> datetime: ...


T = TypeVar("T", bound=TimelineStep)


class FigureBar(NamedTuple):
    """One line of a list with bars. `link`: the link of its name; None for none."""

    name: str
    number: int
    kind: str
    top: int
    link: str | None = None

    @property
    def drawn(self) -> Markup:
        """The length of the bar relative to the longest one."""
        wide = self.number / self.top * 100 if self.top else 0.0
        return Markup(
            '<svg class="barline" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
            '<rect class="f-{}" x="0" y="0" width="{}" height="10"/></svg>'
        ).format(self.kind, f"{max(wide, 0.6 if self.number else 0.0):.1f}")


def bars(lines: Iterable[tuple[str, int, str, str | None]]) -> list[FigureBar]:
    """Return bars from a name, number, kind and link each."""
    found = list(lines)
    top = max((number for _, number, _, _ in found), default=0)
    return [FigureBar(name, number, kind, top, link) for name, number, kind, link in found]


def over_time(page: PageRequest, found: Iterable[T], since: float, step: float) -> tuple[list[str], list[T | None]]:
    """Return the name of each step until now, and its figures; None where there are none."""
    by_time = {int(each.at.timestamp() // step): each for each in found}
    last = int(page.now.timestamp() // step)
    places = range(last - int(since // step) + 1, last + 1)
    form = "%H:%M" if since <= DAY else "%d %b %H:%M" if step < DAY else "%d %b"
    names = [clock(datetime.fromtimestamp(place * step, UTC), page.zone, form) for place in places]
    return names, [by_time.get(place) for place in places]


def tabs(page: PageRequest) -> list[tuple[str, str, bool]]:
    """Return path, name, and whether it is the current one; the chosen tenant stays chosen."""
    here = page.request.url.path.rpartition("/")[2]
    here = UNDER.get(here, here)
    tenant = None if page.who.tenant else page.query.get("tenant") or None
    return [
        (page.link(path, **({"tenant": tenant} if of_tenants else {})), name, path == here)
        for path, name, of_tenants in TABS
        if of_tenants or page.who.tenant is None
    ]


def number_of(text: str | None) -> int | None:
    """Return an id; None for an invalid one."""
    return cursor.number(text) or None


def because(page: PageRequest, reason: str) -> str:
    return page.say(BECAUSE[reason]) if reason in BECAUSE else reason


def known_types(page: PageRequest) -> list[str]:
    """Return the event types that the application declares."""
    definitions: dict[str, Any] = page.context.app.notifications.definitions
    return sorted(definitions)
