"""The invariants of `sereno verify`, after each schedule: those that read a table with rows, in one statement."""

import re
from typing import Any

from sereno.database.statement import run
from sereno.monitoring import invariants
from sereno.monitoring.verify import GRACE, verify
from tests.jobs.job_steps import Connection

MENTIONED = re.compile(r"\bsereno\.(\w+)")
VIEWS = "select viewname, definition from pg_views where schemaname = 'sereno'"
PARENTS = """
select child.relname, parent.relname from pg_inherits
join pg_class child on child.oid = inhrelid join pg_class parent on parent.oid = inhparent
where child.relnamespace = 'sereno'::regnamespace
"""


class Verifier:
    """Checks the invariants on a connection. `lease`: seconds, of the sessions of a scenario."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._views = {name: set(MENTIONED.findall(text)) for name, text in connection.execute(VIEWS).fetchall()}
        self._parents: dict[str, str] = dict(connection.execute(PARENTS).fetchall())
        self._chosen: dict[tuple[frozenset[str], float], tuple[list[str], str, dict[str, Any]]] = {}

    def check_all(self, lease: float) -> None:
        """Check every invariant, as `sereno verify` does."""
        with self._connection.transaction():
            found = run(self._connection, verify(lease=lease, window=None))
        broken = [f"{each.name}: {each.violations[0].what}" for each in found if not each.holds]
        assert not broken, "; ".join(broken)

    def check(self, filled: frozenset[str], lease: float) -> None:
        """Check the invariants that read one of these tables; without rows, the others hold."""
        if (filled, lease) not in self._chosen:
            self._chosen[filled, lease] = self._choose(filled, lease)
        names, query, params = self._chosen[filled, lease]
        row = self._connection.execute(query.encode(), params).fetchone() if names else None
        broken = [f"{name}: {found[0]}" for name, found in zip(names, row or (), strict=False) if found]
        assert not broken, "; ".join(broken)

    def _choose(self, filled: frozenset[str], lease: float) -> tuple[list[str], str, dict[str, Any]]:
        relations = {self._parents.get(name, name) for name in filled} | filled
        # Views on views: twice is as deep as they go.
        for _ in range(2):
            relations |= {name for name, mentioned in self._views.items() if mentioned & relations}
        names: list[str] = []
        parts: list[str] = []
        params: dict[str, Any] = {}
        for name in invariants.INVARIANTS:
            statement = next(invariants.violations(name, window=None, grace=lease + GRACE))
            if relations & set(MENTIONED.findall(statement.sql)):
                names.append(name)
                params |= statement.params
                parts.append(f"(select json_agg(found) from ({statement.sql}) as found)")
        return names, f"select {', '.join(parts)}", params
