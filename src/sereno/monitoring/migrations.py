"""How far the schema is. To bring it further takes the owner's rights, which no server has: `sereno migrate`."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sereno.database.migrate import migrations
from sereno.database.statement import Operation
from sereno.monitoring import health_queries

# `changed`: what was applied under this number is not what this version has. `unknown`: a newer version applied it.
State: TypeAlias = Literal["applied", "pending", "changed", "unknown"]


@dataclass(frozen=True, slots=True)
class MigrationLine:
    """One migration. `name`: null for one that this version does not know."""

    number: int
    name: str | None
    state: State


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """`is_current`: nothing is pending, and nothing was changed. `remedy`: what helps where it is not."""

    schema: str
    is_current: bool
    pending: int
    remedy: str | None
    migrations: list[MigrationLine]


def status(schema: str) -> Operation[SchemaStatus]:
    """What `sereno migrate --check` sees. Changes nothing."""
    applied = (yield from health_queries.applied()) or {}
    known = {each.number: each for each in migrations()}
    lines = [_line(number, known[number].name, known[number].checksum, applied.get(number)) for number in known]
    lines += [MigrationLine(number, None, "unknown") for number in sorted(applied.keys() - known.keys())]
    pending = sum(line.state == "pending" for line in lines)
    is_changed = any(line.state == "changed" for line in lines)
    remedy = None
    if is_changed:
        remedy = "install the version of sereno that made the schema: what was applied is never edited"
    elif pending:
        remedy = "run `sereno migrate` as the owner of the schema"
    return SchemaStatus(schema, remedy is None, pending, remedy, lines)


def _line(number: int, name: str, checksum: str, applied: str | None) -> MigrationLine:
    if applied is None:
        return MigrationLine(number, name, "pending")
    return MigrationLine(number, name, "applied" if applied == checksum else "changed")
