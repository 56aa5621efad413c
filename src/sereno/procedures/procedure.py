"""A stored procedure that a job may call: its name, its exact signature, and the check of a job's parameters.

A name is written exactly as in the catalogue of its database: `reporting.close_day`, or quoted where it is not a plain
identifier: `"Month End".close_day`. The written text is never put into SQL.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from sereno.errors import InvalidArguments, Refused

Kind = Literal["function", "procedure"]
Mode = Literal["in", "out", "inout", "variadic", "table"]
# The JSON that a parameter accepts: one value, a list, an object, or anything.
Shape = Literal["value", "list", "record", "json"]
Dialect = Literal["postgresql", "mysql", "sqlserver"]

# Name of the target that is sereno's own database.
HERE = "here"
# Longest part of a name in characters; no supported database allows more.
LONGEST_PART = 128
# Facts of a job that can be passed as a parameter.
FACTS = ("job", "attempt", "tenant", "trace", "planned_at")
TASK_PREFIX = "procedure."

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
_PART = re.compile(r'"((?:[^"\x00]|"")+)"|([^\W\d][\w$]*)')
_INPUTS = ("in", "inout", "variadic")
_SYSTEM: Mapping[Dialect, frozenset[str]] = {
    "postgresql": frozenset({"information_schema"}),
    "mysql": frozenset({"information_schema", "mysql", "performance_schema", "sys"}),
    "sqlserver": frozenset({"information_schema", "sys"}),
}


class ProcedureName(NamedTuple):
    """A schema and a name inside it."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{_written(self.schema)}.{_written(self.name)}"

    def check_own(self, dialect: Dialect, ours: Sequence[str] = ()) -> None:
        """Refuse names of the database itself or of sereno: a job must not, say, read the files of the server."""
        schema = self.schema.lower()
        # SQL Server resolves names with this prefix to its system procedures, whatever the schema.
        is_taken = dialect == "sqlserver" and self.name.lower().startswith("sp_")
        is_taken = is_taken or (dialect == "postgresql" and schema.startswith("pg_"))
        if schema in _SYSTEM[dialect] or self.schema in ours or is_taken:
            raise Refused(
                f"{self} belongs to the database or to sereno and cannot be allowed: "
                "write a procedure of your own that calls it, and allow that one"
            )


class Parameter(msgspec.Struct, frozen=True, omit_defaults=True):
    """One parameter, with its type as in the catalogue."""

    name: str
    type: str
    mode: Mode = "in"
    has_default: bool = False
    shape: Shape = "value"

    def __str__(self) -> str:
        mode = "" if self.mode in ("in", "table") else f"{self.mode} "
        default = " = default" if self.has_default else ""
        return f"{mode}{_written(self.name) if self.name else '?'} {self.type}{default}"


class ProcedureSignature(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that must stay the same for a procedure to stay allowed; its body may change.

    `definer`: whose privileges it runs with, if not the caller's. `unfit`: why no job can call it.
    """

    kind: Kind
    schema: str
    name: str
    parameters: tuple[Parameter, ...] = ()
    returns: str | None = None
    returns_set: bool = False
    definer: str | None = None
    unfit: str | None = None

    @property
    def full_name(self) -> ProcedureName:
        return ProcedureName(self.schema, self.name)

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        return tuple(each for each in self.parameters if each.mode in _INPUTS)

    @property
    def outputs(self) -> tuple[Parameter, ...]:
        return tuple(each for each in self.parameters if each.mode in ("out", "inout"))

    @property
    def params(self) -> str:
        """Return what distinguishes it from overloads: `day date, amounts numeric[]`."""
        return ", ".join(f"{_written(each.name)} {each.type}" for each in self.inputs)

    def __str__(self) -> str:
        shown = ", ".join(str(each) for each in self.parameters if each.mode != "table")
        returns = f" returns {'setof ' if self.returns_set else ''}{self.returns}" if self.returns else ""
        definer = f", with the rights of {self.definer}" if self.definer else ""
        return f"{self.kind} {self.full_name}({shown}){returns}{definer}"


def parse_name(text: str) -> ProcedureName:
    """Parse `schema.name`. InvalidArguments describes the format."""
    first = _PART.match(text)
    second = _PART.match(text, first.end() + 1) if first and text[first.end() : first.end() + 1] == "." else None
    if first is None or second is None or second.end() != len(text):
        raise InvalidArguments(
            f"{text!r:.80} is not a name of a procedure: write schema.name, such as reporting.close_day, "
            'and quote what is not a plain identifier: "Month End".close_day'
        )
    parts = [(found[1] or "").replace('""', '"') or found[2] for found in (first, second)]
    for part in parts:
        _check_part(part)
    return ProcedureName(*parts)


def _check_part(part: str) -> None:
    if len(part) > LONGEST_PART:
        raise InvalidArguments(f"{part!r:.60}… has {len(part)} characters; a name has at most {LONGEST_PART}")
    try:
        part.encode()
    except UnicodeEncodeError:
        raise InvalidArguments(f"{part!r:.60} contains a lone surrogate, which is not allowed in a name") from None


def _written(part: str) -> str:
    return part if _PLAIN.fullmatch(part) else '"' + part.replace('"', '""') + '"'


def choose(
    found: Sequence[ProcedureSignature], name: ProcedureName, params: str | None, kind: Kind | None
) -> ProcedureSignature:
    """Return the only match. Refused lists the candidates if there is none or more than one."""
    if not found:
        raise Refused(f"there is no function or procedure {name}: write the name exactly as in the catalogue")
    wanted = [each for each in found if kind in (None, each.kind)]
    if params is not None:
        wanted = [each for each in wanted if _folded(params) in (_folded(each.params), _folded(_types(each)))]
    if len(wanted) != 1:
        how = "none of them matches" if not wanted else "choose one with --params" + ("" if kind else " or --kind")
        if len(found) == 1:
            raise Refused(_other(found[0]))
        several = "".join(f"\n  {each.kind} {name} --params '{each.params}'" for each in found)
        raise Refused(f"{name} exists {len(found)} times, and {how}:{several}")
    (chosen,) = wanted
    if chosen.unfit:
        raise Refused(f"no job can call {chosen}: {chosen.unfit}")
    return chosen


def _other(only: ProcedureSignature) -> str:
    return f"{only.full_name} exists, but differs: {only.kind} {only.full_name} --params '{only.params}'"


def _types(signature: ProcedureSignature) -> str:
    return ", ".join(each.type for each in signature.inputs)


def _folded(params: str) -> str:
    return re.sub(r"\s*([,()\[\]])\s*", r"\1", " ".join(params.split())).lower()


def still(allowed: ProcedureSignature, found: Sequence[ProcedureSignature]) -> str | None:
    """Return how the procedure differs from what was allowed; None if it does not."""
    if allowed in found:
        return None
    if not found:
        return f"{allowed.full_name} no longer exists: it was {allowed}"
    is_now = "; ".join(map(str, found))
    return f"{allowed.full_name} has changed since it was allowed: it was {allowed}; it is now {is_now}"


def check_given(signature: ProcedureSignature, given: Mapping[str, str]) -> None:
    """Raise InvalidArguments unless each parameter exists and each fact is one that jobs have."""
    inputs = {each.name for each in signature.inputs}
    for name, fact in given.items():
        if name not in inputs:
            raise InvalidArguments(f"{signature.full_name} has no parameter {name!r:.60}; it takes {_takes(signature)}")
        if fact not in FACTS:
            raise InvalidArguments(f"{name}={fact:.60}: the facts of a job are {', '.join(FACTS)}")


def check_params(
    signature: ProcedureSignature, params: Mapping[str, Any], given: Mapping[str, str], *, is_only: bool = True
) -> None:
    """Raise InvalidArguments with everything that is wrong: unknown, missing, set by the job, or of another shape.

    `is_only`: there are no overloads. If there are, every parameter must be given, or the database would choose.
    """
    wrong = []
    inputs = {each.name: each for each in signature.inputs}
    for name, value in params.items():
        if name not in inputs:
            wrong.append(f"there is no parameter {name!r:.60}")
        elif name in given:
            wrong.append(f"{name} is filled with the job's {given[name]} and cannot be set")
        elif not _fits(inputs[name].shape, value):
            wrong.append(f"{name}: {_shape_of(value)} is not a {inputs[name].type}")
    for name, parameter in inputs.items():
        if name in params or name in given:
            continue
        if not parameter.has_default:
            wrong.append(f"{name} ({parameter.type}) is missing")
        elif not is_only:
            wrong.append(f"{name} ({parameter.type}) cannot be left out, because there are overloads of this name")
    if wrong:
        raise InvalidArguments(f"{signature.full_name}: {'; '.join(wrong)}. It takes {_takes(signature)}")


def _takes(signature: ProcedureSignature) -> str:
    return ", ".join(map(str, signature.inputs)) or "nothing"


def _fits(shape: Shape, value: Any) -> bool:
    match shape:
        case "json":
            return True
        case "list":
            # The database's own text form of a list is accepted too.
            return value is None or isinstance(value, list | str)
        case "record":
            return value is None or isinstance(value, dict | str)
        case _:
            return not isinstance(value, list | dict)


def _shape_of(value: Any) -> str:
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else "a single value"
