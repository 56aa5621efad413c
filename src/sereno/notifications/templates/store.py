"""Stores templates."""

from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from sereno.database.statement import Operation, Statement, queries

_sql = queries("notifications/templates/store")
_texts = msgspec.json.Decoder(list[tuple[str, str, str, str, str, str]])


class TemplatePlace(NamedTuple):
    """The place of a template. Empty: any locale, any tenant."""

    event: str
    channel: str
    locale: str
    tenant: str
    part: str


class TemplateRow(msgspec.Struct, kw_only=True):
    """One row, with its last change."""

    event: str
    channel: str
    locale: str
    tenant: str
    part: str
    length: int
    changed_at: datetime
    changed_by: str


_rows = msgspec.json.Decoder(list[TemplateRow])

# Most rows of a list: thousands of tenants may have their own templates.
MOST_ROWS = 10_000


def read(known: str | None = None) -> Operation[tuple[str, dict[tuple[str, str, str, str, str], str] | None]]:
    """Return a version and all sources; None instead of the sources if the version is `known`."""
    rows = yield Statement(_sql["version"])
    version = str(rows[0][0])
    if version == known:
        return version, None
    rows = yield Statement(_sql["read"])
    found = _texts.decode(rows[0][0])
    return version, {
        (event, channel, locale, tenant, part): source for event, channel, locale, tenant, part, source in found
    }


def list_rows(event: str | None = None) -> Operation[list[TemplateRow]]:
    """Return the rows of all events, or of one, by name; at most MOST_ROWS."""
    rows = yield Statement(_sql["list"], {"event": event, "most": MOST_ROWS})
    return _rows.decode(rows[0][0])


def write(place: TemplatePlace, source: str, actor: str) -> Operation[bool]:
    """Store a template. Return whether it is new."""
    rows = yield Statement(_sql["write"], {**place._asdict(), "source": source, "actor": actor})
    return bool(rows[0][0])


def delete(place: TemplatePlace) -> Operation[bool]:
    rows = yield Statement(_sql["delete"], place._asdict())
    return bool(rows)


def last_payload(event: str, tenant: str | None = None) -> Operation[dict[str, Any] | None]:
    """Return the payload of the newest event of this type, if there is one."""
    rows = yield Statement(_sql["last_payload"], {"event": event, "tenant": tenant})
    return msgspec.json.decode(rows[0][0], type=dict[str, Any]) if rows else None
