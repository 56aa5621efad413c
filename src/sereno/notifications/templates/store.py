"""Stores templates."""

from sereno.database.statement import Operation, Statement, queries
from sereno.notifications.templates.rows import TemplatePlace

_sql = queries("notifications/templates/store")


def write(place: TemplatePlace, source: str, actor: str) -> Operation[bool]:
    """Store a template. Return whether it is new."""
    rows = yield Statement(_sql["write"], {**place._asdict(), "source": source, "actor": actor})
    return bool(rows[0][0])


def delete(place: TemplatePlace) -> Operation[bool]:
    rows = yield Statement(_sql["delete"], place._asdict())
    return bool(rows)
