"""Checks the invariants on a live database, in one read-only snapshot with bounded queries."""

from dataclasses import dataclass

from sereno.database.migrate import migrations
from sereno.database.statement import Operation
from sereno.monitoring import health_queries, invariants

# Seconds beyond the lease in which a worker notices a dead session and recovers its jobs.
GRACE = 10.0
# Statement timeout of each query, in seconds.
TIMEOUT = 60.0
# Newest rows that are checked, so that the cost does not depend on the size of a table.
WINDOW = 100_000


@dataclass(frozen=True, slots=True)
class InvariantViolation:
    """A row that violates an invariant."""

    id: int
    what: str


@dataclass(frozen=True, slots=True)
class InvariantResult:
    """An invariant and the rows that violate it, at most twenty."""

    name: str
    promise: str
    violations: list[InvariantViolation]

    @property
    def holds(self) -> bool:
        return not self.violations


def verify(*, lease: float, window: int | None = WINDOW, timeout: float = TIMEOUT) -> Operation[list[InvariantResult]]:
    """Check every invariant. It must be first in its transaction. `window=None`: check every row."""
    yield from invariants.begin(timeout)
    found = []
    for name, promise in invariants.INVARIANTS.items():
        rows = yield from invariants.violations(name, window=window, grace=lease + GRACE)
        found.append(InvariantResult(name, promise, [InvariantViolation(*row) for row in rows]))
    applied = yield from health_queries.applied()
    found.append(_schema(applied or {}))
    return found


def _schema(applied: dict[int, str]) -> InvariantResult:
    wrong = [
        InvariantViolation(migration.number, f"migration {migration.number:04}_{migration.name} {what}")
        for migration in migrations()
        for what in [_difference(applied.get(migration.number), migration.checksum)]
        if what
    ]
    return InvariantResult("schema_checksum", "the schema is the sum of the migrations of this version", wrong)


def _difference(applied: str | None, known: str) -> str:
    if applied is None:
        return "is not applied"
    return "" if applied == known else "is not the one that was applied"
