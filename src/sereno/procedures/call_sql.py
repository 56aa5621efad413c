"""Writes calls for MySQL, MariaDB and SQL Server: names are quoted, values are parameters.

Calls for PostgreSQL are composed with its driver, in `targets.postgres`.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from sereno.procedures.procedure import ProcedureSignature

# Names of variables in SQL Server cannot be quoted.
_VARIABLE = re.compile(r"[^\W\d][\w$#]{0,127}")


class CallStatement(NamedTuple):
    """Statements in order, each with its values; `after` reads the output parameters, if there are any."""

    before: tuple[str, list[Any]] | None
    text: str
    values: list[Any]
    after: str | None = None
    outputs: tuple[str, ...] = ()


def backticked(name: str) -> str:
    """Quote for MySQL; its driver reads a percent sign as the start of a parameter."""
    return "`" + name.replace("`", "``").replace("%", "%%") + "`"


def bracketed(name: str) -> str:
    """Quote for SQL Server."""
    return "[" + name.replace("]", "]]") + "]"


def mysql_call(signature: ProcedureSignature, values: Mapping[str, Any]) -> CallStatement:
    """Pass parameters by position: MySQL has no named ones. Output parameters use variables of the connection."""
    name = f"{backticked(signature.schema)}.{backticked(signature.name)}"
    if signature.kind == "function":
        text = f"select {name}({', '.join('%s' for _ in signature.inputs)}) as result"
        return CallStatement(None, text, [values.get(each.name) for each in signature.inputs])
    places, given, outputs, first = [], [], [], []
    for number, each in enumerate(signature.parameters):
        if each.mode == "in":
            places.append("%s")
            given.append(values.get(each.name))
            continue
        places.append(f"@sereno_{number}")
        outputs.append((f"@sereno_{number}", each.name))
        first.append((f"@sereno_{number} = %s", values.get(each.name) if each.mode == "inout" else None))
    before = ("set " + ", ".join(text for text, _ in first), [value for _, value in first]) if first else None
    after = "select " + ", ".join(variable for variable, _ in outputs) if outputs else None
    named = tuple(name for _, name in outputs)
    return CallStatement(before, f"call {name}({', '.join(places)})", given, after, named)


def sqlserver_call(signature: ProcedureSignature, values: Mapping[str, Any]) -> CallStatement:
    """Pass parameters by name to a procedure, by position to a function. Outputs are selected in the same batch."""
    name = f"{bracketed(signature.schema)}.{bracketed(signature.name)}"
    if signature.kind == "function":
        called = f"{name}({', '.join('?' for _ in signature.inputs)})"
        # Not user input: the name is quoted, the rest is ours.
        text = f"select * from {called}" if signature.returns_set else f"select {called} as result"  # noqa: S608
        return CallStatement(None, text, [values.get(each.name) for each in signature.inputs])
    declared, places, given, outputs = [], [], [], []
    for number, each in enumerate(signature.parameters):
        if not _VARIABLE.fullmatch(each.name):
            raise ValueError(each.name)
        if each.mode == "in":
            if each.name in values:
                places.append(f"@{each.name} = ?")
                given.append(values[each.name])
            continue
        declared.append((f"declare @sereno_{number} {each.type} = ?", values.get(each.name)))
        places.append(f"@{each.name} = @sereno_{number} output")
        outputs.append((f"@sereno_{number} as {bracketed(each.name)}", each.name))
    lines = [text for text, _ in declared]
    lines.append(f"exec {name} {', '.join(places)}".rstrip())
    if outputs:
        lines.append("select " + ", ".join(text for text, _ in outputs))
    everything = [*(value for _, value in declared), *given]
    return CallStatement(None, ";\n".join(lines), everything, None, tuple(named for _, named in outputs))
