"""Saved searches: a search of a list under a name, shared by the users who see the same tenants."""

from dataclasses import dataclass
from datetime import datetime

from sereno.access import audit
from sereno.database.statement import Operation, Statement, queries
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.text import check_text

_sql = queries("monitoring/saved_searches")
# Saved searches of a list; more are no shortcut.
MOST = 50
LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class SavedSearch:
    """A search of a list, such as jobs, under a name."""

    list_name: str
    name: str
    text: str
    saved_by: str
    saved_at: datetime


def saved_searches(list_name: str | None, *, tenant: str | None) -> Operation[list[SavedSearch]]:
    """Return those of a list, or of all lists. `tenant`: of whose users; None for users of all tenants."""
    rows = yield Statement(_sql["list"], {"list": list_name, "tenant": tenant, "most": 20 * MOST})
    return [SavedSearch(*row) for row in rows]


def save_search(list_name: str, name: str, text: str, *, tenant: str | None, actor: str) -> Operation[SavedSearch]:
    """Save a search, or replace the one of this name."""
    check_text("name", name)
    if not name.strip() or len(name) > LONGEST_NAME:
        raise InvalidArguments(f"the name of a saved search has 1 to {LONGEST_NAME} characters")
    rows = yield Statement(
        _sql["save"],
        {"list": list_name, "tenant": tenant, "name": name, "text": text, "actor": actor, "most": MOST},
    )
    if not rows:
        raise InvalidArguments(f"the list {list_name} has {MOST} saved searches already: delete one first")
    yield from audit.audit(actor, "search.save", f"search {list_name} {name}", {"text": text, "tenant": tenant})
    return SavedSearch(*rows[0])


def delete_search(list_name: str, name: str, *, tenant: str | None, actor: str) -> Operation[None]:
    """Delete a saved search; ConfigurationError if there is none of this name."""
    rows = yield Statement(_sql["delete"], {"list": list_name, "tenant": tenant, "name": name})
    if not rows:
        raise ConfigurationError(f"there is no saved search {name!r:.110} of the list {list_name}")
    yield from audit.audit(actor, "search.delete", f"search {list_name} {name}", {"text": rows[0][0], "tenant": tenant})
