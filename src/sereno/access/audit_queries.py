"""Reads of the audit log."""

import msgspec

from sereno.access.rows import AuditRow
from sereno.database.statement import Operation, Statement, queries
from sereno.search.sql_terms import SearchParams

_sql = queries("access/audit_queries")

# Newest audit lines that are checked for conditions without an index.
AUDIT_WINDOW = 20_000

_audit = msgspec.json.Decoder(AuditRow)


def audit_lines(
    *,
    before: int | None = None,
    subject: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    search_params: SearchParams | None = None,
    most: int = 50,
) -> Operation[list[AuditRow]]:
    """Return audit lines, newest first. Action "queue" also matches every "queue.…".

    `actor`, `action` and `search_params` are checked among the newest AUDIT_WINDOW lines only; a whole subject is
    found by its index.
    """
    found, _ = yield from audit_page(
        before=before, subject=subject, actor=actor, action=action, search_params=search_params, most=most
    )
    return found


def audit_page(
    *,
    before: int | None = None,
    subject: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    search_params: SearchParams | None = None,
    most: int = 50,
    skip: int = 0,
    most_bytes: int | None = None,
) -> Operation[tuple[list[AuditRow], bool]]:
    """Return a page of `audit_lines`, and whether there are more. It ends with the line that passes `most_bytes`."""
    window = skip + most + 1 if actor is None and action is None and search_params is None else AUDIT_WINDOW
    given = {"before": before, "subject": subject, "actor": actor, "action": action, "most": most, "window": window}
    given |= {"skip": skip, "bytes": most_bytes, "terms": None if search_params is None else search_params.terms}
    if search_params is not None and subject is None:
        given["subject"] = search_params.one("subject")
    rows = yield Statement(_sql["page"], given)
    found = [_audit.decode(row[0]) for row in rows if row[0] is not None]
    return found, len(found) < len(rows)
