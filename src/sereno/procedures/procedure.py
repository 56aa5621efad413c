"""A stored procedure that a job may call: its name, its exact signature, and whether what a job brings fits it.

A name is written as the catalogue of its database has it, letter by letter: `reporting.close_day`, or with quotes where
it is no plain word: `"Month End".close_day`. It is never put into SQL as it was written.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from sereno.errors import InvalidArguments, Refused

Kind = Literal["function", "procedure"]
Mode = Literal["in", "out", "inout", "variadic", "table"]
# What JSON has to look like: one value, a list, an object, or anything at all.
Shape = Literal["value", "list", "record", "json"]
Dialect = Literal["postgresql", "mysql", "sqlserver"]

# The target that is the product's own database.
HERE = "here"
# No database has longer ones.
LONGEST_PART = 128
# What a parameter can be given of the job itself.
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
    """A schema and a name in it."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{_written(self.schema)}.{_written(self.name)}"

    def check_own(self, dialect: Dialect, ours: Sequence[str] = ()) -> None:
        """Refused for what belongs to the database itself, or to us: nobody means a job to read the server's files."""
        schema = self.schema.lower()
        # SQL Server takes a name that begins so for one of its own, whatever schema is written before it.
        is_taken = dialect == "sqlserver" and self.name.lower().startswith("sp_")
        is_taken = is_taken or (dialect == "postgresql" and schema.startswith("pg_"))
        if schema in _SYSTEM[dialect] or self.schema in ours or is_taken:
            raise Refused(
                f"{self} belongs to the database or to sereno, and cannot be allowed: "
                "write a procedure of your own that calls it, and allow that one"
            )


class Parameter(msgspec.Struct, frozen=True, omit_defaults=True):
    """One parameter, with its type as the catalogue writes it."""

    name: str
    type: str
    mode: Mode = "in"
    has_default: bool = False
    shape: Shape = "value"

    def __str__(self) -> str:
        mode = "" if self.mode in ("in", "table") else f"{self.mode} "
        default = " = default" if self.has_default else ""
        return f"{mode}{_written(self.name) if self.name else '?'} {self.type}{default}"


class Signature(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that has to stay the same for a procedure to stay allowed; its body may change.

    `definer`: with whose rights it runs, unless it runs with the caller's own. `unfit`: why no job can call it.
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
        """What tells it from others of its name: `day date, amounts numeric[]`."""
        return ", ".join(f"{_written(each.name)} {each.type}" for each in self.inputs)

    def __str__(self) -> str:
        shown = ", ".join(str(each) for each in self.parameters if each.mode != "table")
        returns = f" returns {'setof ' if self.returns_set else ''}{self.returns}" if self.returns else ""
        definer = f", with the rights of {self.definer}" if self.definer else ""
        return f"{self.kind} {self.full_name}({shown}){returns}{definer}"


def parse_name(text: str) -> ProcedureName:
    """`schema.name`, or InvalidArguments that says how it is written."""
    first = _PART.match(text)
    second = _PART.match(text, first.end() + 1) if first and text[first.end() : first.end() + 1] == "." else None
    if first is None or second is None or second.end() != len(text):
        raise InvalidArguments(
            f"{text!r:.80} is no name of a procedure: write schema.name, such as reporting.close_day, "
            'and quote what is no plain word: "Month End".close_day'
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
        raise InvalidArguments(f"{part!r:.60} holds a lone surrogate, which no name can") from None


def _written(part: str) -> str:
    return part if _PLAIN.fullmatch(part) else '"' + part.replace('"', '""') + '"'


def choose(found: Sequence[Signature], name: ProcedureName, params: str | None, kind: Kind | None) -> Signature:
    """The one that is meant, or Refused with all there are."""
    if not found:
        raise Refused(f"there is no function or procedure {name}: names are written as the catalogue has them")
    wanted = [each for each in found if kind in (None, each.kind)]
    if params is not None:
        wanted = [each for each in wanted if _folded(params) in (_folded(each.params), _folded(_types(each)))]
    if len(wanted) != 1:
        how = "none of them is that one" if not wanted else "say which with --params" + ("" if kind else " or --kind")
        if len(found) == 1:
            raise Refused(_other(found[0]))
        several = "".join(f"\n  {each.kind} {name} --params '{each.params}'" for each in found)
        raise Refused(f"{name} is there {len(found)} times, and {how}:{several}")
    (chosen,) = wanted
    if chosen.unfit:
        raise Refused(f"no job can call {chosen}: {chosen.unfit}")
    return chosen


def _other(only: Signature) -> str:
    return f"{only.full_name} is there, and is another one: {only.kind} {only.full_name} --params '{only.params}'"


def _types(signature: Signature) -> str:
    return ", ".join(each.type for each in signature.inputs)


def _folded(params: str) -> str:
    return re.sub(r"\s*([,()\[\]])\s*", r"\1", " ".join(params.split())).lower()


def still(allowed: Signature, found: Sequence[Signature]) -> str | None:
    """What is no longer as it was allowed; None when nothing is."""
    if allowed in found:
        return None
    if not found:
        return f"{allowed.full_name} is gone: it was {allowed}"
    is_now = "; ".join(map(str, found))
    return f"{allowed.full_name} is no longer what was allowed: it was {allowed}; it is now {is_now}"


def check_given(signature: Signature, given: Mapping[str, str]) -> None:
    """InvalidArguments unless each of these parameters is there and is given a fact that jobs have."""
    inputs = {each.name for each in signature.inputs}
    for name, fact in given.items():
        if name not in inputs:
            raise InvalidArguments(f"{signature.full_name} has no parameter {name!r:.60}; it takes {_takes(signature)}")
        if fact not in FACTS:
            raise InvalidArguments(f"{name}={fact:.60}: a job can give {', '.join(FACTS)}")


def check_params(
    signature: Signature, params: Mapping[str, Any], given: Mapping[str, str], *, is_only: bool = True
) -> None:
    """InvalidArguments with everything that is wrong: unknown, missing, not theirs to set, or of another shape.

    `is_only`: there is no other of this name. Where there is, nothing may be left out: the database would choose.
    """
    wrong = []
    inputs = {each.name: each for each in signature.inputs}
    for name, value in params.items():
        if name not in inputs:
            wrong.append(f"there is no parameter {name!r:.60}")
        elif name in given:
            wrong.append(f"{name} is the job's {given[name]}, and cannot be set")
        elif not _fits(inputs[name].shape, value):
            wrong.append(f"{name}: {_shape_of(value)} is no {inputs[name].type}")
    for name, parameter in inputs.items():
        if name in params or name in given:
            continue
        if not parameter.has_default:
            wrong.append(f"{name} ({parameter.type}) is missing")
        elif not is_only:
            wrong.append(f"{name} ({parameter.type}) cannot be left out, because there are others of this name")
    if wrong:
        raise InvalidArguments(f"{signature.full_name}: {'; '.join(wrong)}. It takes {_takes(signature)}")


def _takes(signature: Signature) -> str:
    return ", ".join(map(str, signature.inputs)) or "nothing"


def _fits(shape: Shape, value: Any) -> bool:
    match shape:
        case "json":
            return True
        case "list":
            # The database's own way to write one, as a text, is as good.
            return value is None or isinstance(value, list | str)
        case "record":
            return value is None or isinstance(value, dict | str)
        case _:
            return not isinstance(value, list | dict)


def _shape_of(value: Any) -> str:
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else "a single value"
