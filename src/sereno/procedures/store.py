"""Statements for allowed procedures, their signatures in the catalogue, and the results of calls."""

from collections.abc import Mapping
from typing import Any

import msgspec

from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.errors import LeaseLost
from sereno.procedures.procedure import Parameter, ProcedureName, ProcedureSignature, Shape
from sereno.procedures.rows import AllowedProcedure, LastRun, RunRow

_sql = queries("procedures/store")

MOST = 1000
# Expired results that are deleted with each new one.
SWEEP = 10
# Upper bound of the retention in days; an interval beyond the calendar would be an error.
MOST_DAYS = 100_000
_NEEDS_MORE = "it has a parameter without a name, and JSON parameters are passed by name"


_allowed = msgspec.json.Decoder(AllowedProcedure)
_last = msgspec.json.Decoder(LastRun)
_run = msgspec.json.Decoder(RunRow)


def allow(
    target: str,
    signature: ProcedureSignature,
    *,
    given: Mapping[str, str],
    timeout: float,
    lock_timeout: float,
    note: str | None,
    actor: str,
) -> Operation[tuple[AllowedProcedure, bool]]:
    """Return the procedure as allowed, and whether it is new."""
    rows = yield Statement(
        _sql["allow"],
        {
            "target": target,
            "name": str(signature.full_name),
            "signature": encoder.encode(signature).decode(),
            "given": encoder.encode(given).decode(),
            "timeout": timeout,
            "lock_timeout": lock_timeout,
            "note": note,
            "actor": actor,
        },
    )
    return _allowed.decode(rows[0][0]), not rows[0][1]


def revoke(target: str, name: ProcedureName) -> Operation[AllowedProcedure | None]:
    rows = yield Statement(_sql["revoke"], {"target": target, "name": str(name)})
    return _allowed.decode(rows[0][0]) if rows else None


def find(target: str, name: ProcedureName) -> Operation[AllowedProcedure | None]:
    rows = yield Statement(_sql["find"], {"target": target, "name": str(name)})
    return _allowed.decode(rows[0][0]) if rows else None


def list_allowed(most: int = MOST) -> Operation[list[tuple[AllowedProcedure, LastRun | None]]]:
    rows = yield Statement(_sql["list"], {"most": most})
    return [(_allowed.decode(row), None if last is None else _last.decode(last)) for row, last in rows]


def runs(target: str, name: ProcedureName, most: int = 10) -> Operation[list[RunRow]]:
    """Return the newest calls first."""
    rows = yield Statement(_sql["runs"], {"target": target, "name": str(name), "most": most})
    return [_run.decode(row[0]) for row in rows]


def keep_run(
    fence: tuple[int, int, int], allowed: AllowedProcedure, seconds: float, result: Mapping[str, Any], days: int
) -> Operation[None]:
    """Store the result of a call, unless the attempt has lost its job. `days`: retention of such rows."""
    job_id, attempt, session = fence
    rows = yield Statement(
        _sql["keep_run"],
        {
            "id": job_id,
            "attempt": attempt,
            "session": session,
            "target": allowed.target,
            "name": allowed.name,
            "seconds": seconds,
            "result": encoder.encode(result).decode(),
            "days": min(days, MOST_DAYS),
            "sweep": SWEEP,
        },
    )
    if not rows:
        raise LeaseLost(f"job {job_id}: attempt {attempt} has lost its lease, so its procedure's result is not stored")


def resolve(name: ProcedureName) -> Operation[list[ProcedureSignature]]:
    """Return every function and procedure of this name in the connected PostgreSQL."""
    rows = yield Statement(_sql["resolve"], {"schema": name.schema, "name": name.name})
    return [_signature(name, _found.decode(row[0])) for row in rows]


def login(schemas: list[str]) -> Operation[tuple[str, str | None, str | None, str | None]]:
    """Return the login, and a superuser role, a powerful role, and a table in `schemas` that it can use, if any."""
    user, superuser, power, table = (yield Statement(_sql["login"], {"schemas": schemas}))[0]
    return user, superuser, power, table


def may_execute(name: ProcedureName) -> Operation[bool]:
    rows = yield Statement(_sql["may_execute"], {"schema": name.schema, "name": name.name})
    return bool(rows and rows[0][0])


class _ParameterType(msgspec.Struct):
    category: str
    kind: str
    is_json: bool
    type: str


class _FoundProcedure(msgspec.Struct):
    """A row of pg_proc."""

    kind: str
    definer: str | None
    returns_set: bool
    names: list[str]
    modes: list[str]
    defaults: int
    types: list[_ParameterType]


_found = msgspec.json.Decoder(_FoundProcedure)
_MODES = {"i": "in", "o": "out", "b": "inout", "v": "variadic", "t": "table"}


def _signature(name: ProcedureName, found: _FoundProcedure) -> ProcedureSignature:
    returned, *types = found.types
    modes = [_MODES[mode] for mode in found.modes] or ["in"] * len(types)
    names = found.names or [""] * len(types)
    inputs = [place for place, mode in enumerate(modes) if mode in ("in", "inout", "variadic")]
    optional = set(inputs[len(inputs) - found.defaults :])
    parameters = tuple(
        Parameter(named, each.type, mode, place in optional, _shape(each))  # type: ignore[arg-type]  # one of _MODES
        for place, (named, each, mode) in enumerate(zip(names, types, modes, strict=True))
    )
    is_function = found.kind == "f"
    return ProcedureSignature(
        "function" if is_function else "procedure",
        name.schema,
        name.name,
        parameters,
        returned.type if is_function else None,
        found.returns_set,
        found.definer,
        _unfit(found, parameters, returned),
    )


def _unfit(found: _FoundProcedure, parameters: tuple[Parameter, ...], returned: _ParameterType) -> str | None:
    named = [each for each in parameters if each.mode != "table" and (each.mode != "out" or found.kind == "p")]
    if not all(each.name for each in named):
        return _NEEDS_MORE
    unknown = [each.type for each in found.types[1:] if each.kind == "p"]
    if unknown:
        return f"JSON has no equivalent of the type {unknown[0]}"
    columns = any(each.mode in ("out", "inout", "table") for each in parameters)
    if returned.kind == "p" and found.kind == "f" and returned.type != "void" and not columns:
        return f"its return type {returned.type} has no columns that could be read"
    return None


def _shape(found: _ParameterType) -> Shape:
    if found.is_json:
        return "json"
    if found.category == "A":
        return "list"
    return "record" if found.category == "C" else "value"
