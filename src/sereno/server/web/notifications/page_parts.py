"""What the pages of notifications share: their tabs, bars, and plain words for what a row says in short."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from markupsafe import Markup

from sereno.server.web import cursor
from sereno.server.web.page_request import PageRequest
from sereno.server.web.times import clock

DAY = 86_400.0
# What somebody changes on a page is looked up each time, so that they see at once what they have done.
AT_ONCE = 0.0
# Path, name, and whether somebody of one tenant sees it.
TABS = (
    ("notifications", "Events", True),
    ("deliveries", "Deliveries", True),
    ("recipients", "Recipients", True),
    ("templates", "Templates", False),
    ("channels", "Channels", False),
    ("preferences", "Preferences", True),
)
# Which tab a page without one belongs to.
UNDER = {"event": "notifications", "recipient": "recipients", "template": "templates"}
# Why nothing was sent, as the end of a sentence.
BECAUSE = {
    "preference off": "people do not want it",
    "condition": "a condition did not hold",
    "throttled": "they had been told often enough",
    "no active address": "there was no active address",
    "address unverified": "an address was not verified",
    "address invalid": "an address did not work",
    "address unsubscribed": "an address was unsubscribed",
    "address is gone": "an address is gone",
    "no longer true": "it was no longer true",
    "its event is gone": "the event is gone",
    "the recipient is gone": "the recipient is gone",
    "told by delivery": "another message told it",
}
# States of a delivery by what they mean: the colour of their bars.
KINDS = {
    "pending": "accent",
    "sending": "accent",
    "sent": "ok",
    "delivered": "ok",
    "read": "ok",
    "skipped": "skip",
    "unknown": "retry",
    "expired": "retry",
}


class TimelineStep(Protocol):
    """One step of a row of figures."""

    @property
    def at(self) -> datetime: ...


T = TypeVar("T", bound=TimelineStep)


class Bar(NamedTuple):
    """One line of a list with bars. `link`: where its name leads; None: nowhere."""

    name: str
    number: int
    kind: str
    top: int
    link: str | None = None

    @property
    def drawn(self) -> Markup:
        """As long as its part of the longest. Its figure stands beside it."""
        wide = self.number / self.top * 100 if self.top else 0.0
        return Markup(
            '<svg class="barline" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
            '<rect class="f-{}" x="0" y="0" width="{}" height="10"/></svg>'
        ).format(self.kind, f"{max(wide, 0.6 if self.number else 0.0):.1f}")


def bars(lines: Iterable[tuple[str, int, str, str | None]]) -> list[Bar]:
    """Name, number, kind and link of each."""
    found = list(lines)
    top = max((number for _, number, _, _ in found), default=0)
    return [Bar(name, number, kind, top, link) for name, number, kind, link in found]


def over_time(page: PageRequest, found: Iterable[T], since: float, step: float) -> tuple[list[str], list[T | None]]:
    """The name of each step until now, and what was counted in it; None where nothing was."""
    by_time = {int(each.at.timestamp() // step): each for each in found}
    last = int(page.now.timestamp() // step)
    places = range(last - int(since // step) + 1, last + 1)
    form = "%H:%M" if since <= DAY else "%d %b %H:%M" if step < DAY else "%d %b"
    names = [clock(datetime.fromtimestamp(place * step, UTC), page.zone, form) for place in places]
    return names, [by_time.get(place) for place in places]


def tabs(page: PageRequest) -> list[tuple[str, str, bool]]:
    """Path, name, and whether one is there; what is chosen of a tenant stays chosen."""
    here = page.request.url.path.rpartition("/")[2]
    here = UNDER.get(here, here)
    tenant = None if page.who.tenant else page.query.get("tenant") or None
    return [
        (page.link(path, **({"tenant": tenant} if of_tenants else {})), name, path == here)
        for path, name, of_tenants in TABS
        if of_tenants or page.who.tenant is None
    ]


def number_of(text: str | None) -> int | None:
    """An id; None for what cannot be one."""
    return cursor.number(text) or None


def because(page: PageRequest, reason: str) -> str:
    return page.say(BECAUSE[reason]) if reason in BECAUSE else reason


def known_types(page: PageRequest) -> list[str]:
    """Kinds of events that the application declares."""
    definitions: dict[str, Any] = page.context.app.notifications.definitions
    return sorted(definitions)
