"""A recipient of the preference centre, and their form as a browser without scripts sends it."""

from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

import httpx
import psycopg

from sereno import Channel, Digest, QuietHours, Sereno
from tests.notifications.conftest import Pager, Tender
from tests.server.api.conftest import PLAIN

SECRET = "s" * 32
HOSTILE = "<img src=x onerror=alert(1)>'\"&amp;"


class Mail(Pager):
    """A channel with the name of e-mail."""

    name = "email"


def fill(app: Sereno) -> None:
    """Declare event types in two categories and without one, and a recipient with two addresses."""
    app.override(secret=SECRET, public_url="https://post.example.com")
    channels: list[Channel | str] = [Mail(), Pager(), "in_app"]
    app.event("tender.published", Tender, channels=channels, category="tenders", digest=Digest("15m"))
    app.event("tender.closed", Tender, channels=channels, category="tenders")
    app.event("password_changed", Tender, channels=["email", "in_app"], category="security", critical=True)
    app.event("newsletter", Tender, channels=["email"], opt_in=True)
    app.recipients.upsert("ada", {"email": "ada.lovelace@example.org", "pager": "pager-0001-of-ada"}, tenant="a")
    app.recipients.prefer("ada", tenant="a", channel="pager", quiet=QuietHours("12:00", "13:00"))
    app.recipients.prefer(None, tenant="a", quiet=QuietHours("23:00", "06:00"))


def preferences(database: psycopg.Connection) -> list[tuple[Any, ...]]:
    """Return category, event, channel and `wanted` of the recipient's own rows."""
    return database.execute(
        "select category, event, channel, wanted from sereno.preferences "
        "where recipient_id is not null and wanted is not null order by category, event, channel"
    ).fetchall()


@dataclass
class Box:
    """A checkbox: the name of its field, its value and label, and its state."""

    name: str
    value: str
    label: str
    is_checked: bool
    is_disabled: bool


class Form(HTMLParser):
    """The only form of a page. `fields`: what a browser sends as the form is now."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fields: list[tuple[str, str]] = []
        self.boxes: list[Box] = []
        self._open: Box | None = None
        self._select = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "select":
            self._select = found["name"]
        elif tag == "option" and "selected" in found:
            # Without a value, the text of the option counts: see `handle_data`.
            self.fields.append((self._select, found.get("value", "?")))
        elif tag == "input" and found["type"] in ("hidden", "time"):
            self.fields.append((found["name"], found.get("value", "")))
        elif tag == "input":
            self._open = Box(found.get("name", ""), found.get("value", ""), "", "checked" in found, "disabled" in found)
            self.boxes.append(self._open)

    def handle_data(self, data: str) -> None:
        if self._open is not None and not self._open.label:
            self._open.label = data.strip()
        if self.fields and self.fields[-1] == (self._select, "?"):
            self.fields[-1] = (self._select, data.strip())

    def set(self, name: str, *values: str) -> None:
        """Write the fields of this name, in their order."""
        places = [place for place, (each, _) in enumerate(self.fields) if each == name]
        for place, value in zip(places, values, strict=True):
            self.fields[place] = (name, value)

    def sent(self) -> list[tuple[str, str]]:
        return [*self.fields, *((box.name, box.value) for box in self.boxes if box.is_checked and not box.is_disabled)]


def post(url: str, fields: list[tuple[str, str]], **headers: str) -> httpx.Response:
    data: dict[str, list[str]] = {}
    for name, value in fields:
        data.setdefault(name, []).append(value)
    return httpx.post(url, data=data, headers=headers, **PLAIN)
