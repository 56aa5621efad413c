"""Reads templates, and payloads to try them with."""

from typing import Any

import msgspec

from sereno.database.statement import Operation, Statement, queries
from sereno.notifications.templates.rows import TemplatePlace, TemplateRow

_sql = queries("notifications/templates/queries")
_texts = msgspec.json.Decoder(list[tuple[str, str, str, str, str, str]])
_rows = msgspec.json.Decoder(list[TemplateRow])

# Most rows of a list: thousands of tenants may have their own templates.
MOST_ROWS = 10_000


def read(known: str | None = None) -> Operation[tuple[str, dict[TemplatePlace, str] | None]]:
    """Return a version and all sources; None instead of the sources if the version is `known`."""
    rows = yield Statement(_sql["version"])
    version = str(rows[0][0])
    if version == known:
        return version, None
    rows = yield Statement(_sql["read"])
    found = _texts.decode(rows[0][0])
    return version, {
        TemplatePlace(event, channel, locale, tenant, part): source
        for event, channel, locale, tenant, part, source in found
    }


def list_rows(event: str | None = None) -> Operation[list[TemplateRow]]:
    """Return the rows of all events, or of one, by name; at most MOST_ROWS."""
    rows = yield Statement(_sql["list"], {"event": event, "most": MOST_ROWS})
    return _rows.decode(rows[0][0])


def last_payload(event: str, tenant: str | None = None) -> Operation[dict[str, Any] | None]:
    """Return the payload of the newest event of this type, if there is one."""
    rows = yield Statement(_sql["last_payload"], {"event": event, "tenant": tenant})
    return msgspec.json.decode(rows[0][0], type=dict[str, Any]) if rows else None
