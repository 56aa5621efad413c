"""Prove the invariants on a live database: one read-only snapshot, plain questions, bounded answers."""

from dataclasses import dataclass

from sereno.database.migrate import migrations
from sereno.database.statement import Operation
from sereno.monitoring import health_queries, invariants

# Beyond the lease, a worker needs this long to notice a dead session and take its jobs back.
GRACE = 10.0
# No question takes longer.
TIMEOUT = 60.0
# The newest rows are looked at, so that it stays cheap on a table of any size.
WINDOW = 100_000


@dataclass(frozen=True, slots=True)
class Violation:
    """A row that breaks a promise."""

    id: int
    what: str


@dataclass(frozen=True, slots=True)
class InvariantResult:
    """A promise, and the rows that break it: none, one hopes; twenty at most."""

    name: str
    promise: str
    violations: list[Violation]

    @property
    def holds(self) -> bool:
        return not self.violations


def verify(*, lease: float, window: int | None = WINDOW, timeout: float = TIMEOUT) -> Operation[list[InvariantResult]]:
    """Every promise. It must be the first thing in its transaction. `window=None`: look at every row."""
    yield from invariants.begin(timeout)
    found = []
    for name, promise in invariants.PROMISES.items():
        rows = yield from invariants.violations(name, window=window, grace=lease + GRACE)
        found.append(InvariantResult(name, promise, [Violation(*row) for row in rows]))
    applied = yield from health_queries.applied()
    found.append(_schema(applied or {}))
    return found


def _schema(applied: dict[int, str]) -> InvariantResult:
    wrong = [
        Violation(migration.number, f"migration {migration.number:04}_{migration.name} {what}")
        for migration in migrations()
        for what in [_difference(applied.get(migration.number), migration.checksum)]
        if what
    ]
    return InvariantResult("schema_checksum", "the schema is the sum of the migrations of this version", wrong)


def _difference(applied: str | None, known: str) -> str:
    if applied is None:
        return "is not applied"
    return "" if applied == known else "is not the one that was applied"
