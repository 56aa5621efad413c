"""The version of the schema. Migrating needs the privileges of the owner, which no server has: `sereno migrate`."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sereno.database.migrate import migrations
from sereno.database.statement import Operation
from sereno.monitoring import health_queries

# `changed`: the applied migration differs from the one in this version. `unknown`: a newer version applied it.
State: TypeAlias = Literal["applied", "pending", "changed", "unknown"]


@dataclass(frozen=True, slots=True)
class MigrationLine:
    """One migration. `name`: None for one that this version does not know."""

    number: int
    name: str | None
    state: State


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """The migrations of a schema. `is_current`: none is pending or changed. `remedy`: what to do if it is not."""

    schema: str
    is_current: bool
    pending: int
    remedy: str | None
    migrations: list[MigrationLine]


def status(schema: str) -> Operation[SchemaStatus]:
    """Return the status of the schema, as `sereno migrate --check` shows it. Changes nothing."""
    applied = (yield from health_queries.applied()) or {}
    known = {each.number: each for each in migrations()}
    lines = [_line(number, known[number].name, known[number].checksum, applied.get(number)) for number in known]
    lines += [MigrationLine(number, None, "unknown") for number in sorted(applied.keys() - known.keys())]
    pending = sum(line.state == "pending" for line in lines)
    is_changed = any(line.state == "changed" for line in lines)
    remedy = None
    if is_changed:
        remedy = "install the version of sereno that created the schema: applied migrations are never edited"
    elif pending:
        remedy = "run `sereno migrate` as the owner of the schema"
    return SchemaStatus(schema, remedy is None, pending, remedy, lines)


def _line(number: int, name: str, checksum: str, applied: str | None) -> MigrationLine:
    if applied is None:
        return MigrationLine(number, name, "pending")
    return MigrationLine(number, name, "applied" if applied == checksum else "changed")
