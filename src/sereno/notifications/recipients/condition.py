"""A condition on an event's payload: a small filter that PostgreSQL and Python understand alike.

    {"region": "RM"}                           equal
    {"region": ["RM", "V"]}                    one of
    {"amount": {"min": 1000, "max": 5000}}     from and to: numbers, or texts such as ISO dates
    {"title": {"contains": "road"}}            this text is in it, in capitals or not
    {"buyer.city": "Lima"}                     further inside
    {"deadline": {"exists": true}}             there, and not null
    {"not": {…}}    {"any": [{…}, {…}]}        it does not hold; at least one holds

All keys of an object must hold. A list in the payload stands for its elements: one of them must pass all the tests of
its key. What is missing, or of another type, passes none; that is never an error. Numbers are compared as decimals.

PostgreSQL gets a jsonpath that is true or false for every payload, never unknown and never an error.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from sereno.errors import InvalidArguments

DEEPEST = 5
MOST_CLAUSES = 100
MOST_PARTS = 10
# Of the jsonpath: it is kept beside each preference. So long a one cannot exhaust the stack of PostgreSQL either.
LONGEST = 8192
LONGEST_TEXT = 200
# Beyond a float of 64 bits, nobody compares amounts.
_MOST_BITS = 1024
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

Scalar: TypeAlias = str | int | float | bool | None
_Operator: TypeAlias = Literal["==", "!=", ">=", "<=", "like_regex"]
_Joint: TypeAlias = Literal["&&", "||"]


@dataclass(frozen=True, slots=True)
class _Test:
    operator: _Operator
    value: Scalar


@dataclass(frozen=True, slots=True)
class _Field:
    """One element at this path passes the tests: all of them, or one."""

    path: tuple[str, ...]
    tests: tuple[_Test, ...]
    joint: _Joint


@dataclass(frozen=True, slots=True)
class _Not:
    node: "_Node"


@dataclass(frozen=True, slots=True)
class _Group:
    nodes: tuple["_Node", ...]
    joint: _Joint


_Node: TypeAlias = _Field | _Not | _Group


def compile_condition(condition: Mapping[str, Any]) -> str:
    """The jsonpath for `jsonb_path_match(payload, condition, silent => true)`, or InvalidArguments."""
    node = _read(condition)
    if not condition:
        return "true"
    text = _two_valued(node)
    if (length := len(text.encode())) > LONGEST:
        raise InvalidArguments(f"the condition takes {length:,} bytes as a jsonpath, at most {LONGEST:,} are possible")
    return text


def holds(condition: Mapping[str, Any], payload: Any) -> bool:
    """What PostgreSQL would say of this payload, which is decoded JSON."""
    return _holds(_read(condition), payload)


def _read(condition: Mapping[str, Any]) -> _Node:
    node = _object(condition, 1)
    if (clauses := _count(node)) > MOST_CLAUSES:
        raise InvalidArguments(f"the condition has {clauses} clauses, at most {MOST_CLAUSES} are possible")
    return node


def _count(node: _Node) -> int:
    match node:
        case _Field():
            return 1
        case _Not():
            return 1 + _count(node.node)
        case _Group():
            return sum(map(_count, node.nodes))


def _object(condition: object, depth: int) -> _Node:
    if not isinstance(condition, Mapping):
        raise InvalidArguments(f'a condition is an object such as {{"region": "RM"}}, not {_shown(condition)}')
    if not condition and depth > 1:
        raise InvalidArguments('an empty condition in "not" or "any" says nothing: fill it in, or leave it out')
    if depth > DEEPEST:
        raise InvalidArguments(f"the condition is nested more than {DEEPEST} deep: write it with fewer not and any")
    return _Group(tuple(_clause(key, wanted, depth) for key, wanted in condition.items()), "&&")


def _clause(key: object, wanted: Any, depth: int) -> _Node:
    if key == "not":
        return _Not(_object(wanted, depth + 1))
    if key == "any":
        if not isinstance(wanted, list | tuple) or not wanted:
            raise InvalidArguments(f'"any" needs a list of conditions, at least one, not {_shown(wanted)}')
        return _Group(tuple(_object(part, depth + 1) for part in wanted), "||")
    path = _path(key)
    match wanted:
        case Mapping():
            return _tested(key, path, wanted)
        case list() | tuple():
            if not wanted:
                raise InvalidArguments(f"{_shown(key)} is one of nothing: name at least one value, or leave it out")
            return _Field(path, tuple(_Test("==", _scalar(key, value)) for value in wanted), "||")
        case _:
            return _Field(path, (_Test("==", _scalar(key, wanted)),), "&&")


def _path(key: object) -> tuple[str, ...]:
    parts = tuple(key.split(".")) if isinstance(key, str) else ()
    if not all(parts) or not 0 < len(parts) <= MOST_PARTS:
        raise InvalidArguments(
            f'{_shown(key)} names nothing in a payload: write "region" or "buyer.city", at most {MOST_PARTS} names'
        )
    return tuple(map(_text, parts))


def _tested(key: object, path: tuple[str, ...], tests: Mapping[str, Any]) -> _Node:
    if not tests:
        raise InvalidArguments(f'{_shown(key)} has no test: write {{"exists": true}} or leave it out')
    if tests.get("exists") is False:
        if len(tests) > 1:
            raise InvalidArguments(f"{_shown(key)} cannot be missing and pass another test: leave one of them out")
        return _Not(_Field(path, (_Test("!=", None),), "&&"))
    found = tuple(_test(key, name, value) for name, value in tests.items())
    if "min" in tests and "max" in tests:
        low, high = _kind(tests["min"]), _kind(tests["max"])
        if low[0] != high[0] or low[1] > high[1]:
            raise InvalidArguments(f"{_shown(key)}: min and max are two numbers or two texts, min the smaller one")
    return _Field(path, found, "&&")


def _test(key: object, name: object, value: Any) -> _Test:
    match name:
        case "min" | "max":
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise InvalidArguments(f"{_shown(key)}: {name} is a number or a text, not {_shown(value)}")
            return _Test(">=" if name == "min" else "<=", _scalar(key, value))
        case "contains":
            if not isinstance(value, str) or not 0 < len(value) <= LONGEST_TEXT:
                raise InvalidArguments(
                    f"{_shown(key)}: contains is a text of 1 to {LONGEST_TEXT} characters, not {_shown(value)}"
                )
            return _Test("like_regex", "".join(map(_in_any_case, _text(value))))
        case "exists":
            if value is not True:
                raise InvalidArguments(f"{_shown(key)}: exists is true or false, not {_shown(value)}")
            return _Test("!=", None)
        case _:
            raise InvalidArguments(
                f"{_shown(key)}: there is no test {_shown(name)}: write min, max, contains or exists"
                f' ("not" goes around: {{"not": {{{_shown(key)}: …}}}})'
            )


def _scalar(key: object, value: Any) -> Scalar:
    match value:
        case str():
            return _text(value)
        case float() if not math.isfinite(value):
            raise InvalidArguments(f"{_shown(key)}: {value} is no number in JSON")
        case int() if value.bit_length() > _MOST_BITS:
            raise InvalidArguments(f"{_shown(key)}: a whole number of at most {_MOST_BITS} bits can be compared")
        case None | bool() | int() | float():
            return value
        case _:
            raise InvalidArguments(
                f"{_shown(key)} is compared with a text, a number, true, false or null, not {_shown(value)}"
            )


def _text(value: str) -> str:
    if _UNSTORABLE.search(value):
        raise InvalidArguments(f"{_shown(value)} holds a NUL byte or a lone surrogate, and no payload can")
    return value


def _in_any_case(letter: str) -> str:
    """As a pattern that reads the same in PostgreSQL and in Python.

    The flag "i" would ask the database's locale, and each has its own idea of which letters are capitals.
    """
    cases = sorted(case for case in {letter, letter.lower(), letter.upper()} if len(case) == 1)
    return f"[{''.join(cases)}]" if len(cases) > 1 else re.escape(letter)


def _two_valued(node: _Node) -> str:
    """A comparison of two types is unknown, and so is its negation; a filter lets only the truth through."""
    return f"exists(true ? ({_jsonpath(node)}))"


def _jsonpath(node: _Node) -> str:
    match node:
        case _Field():
            path = "".join(f".{_quoted(part)}" for part in node.path)
            tests = [f"{test.operator} {_quoted(test.value)}" for test in node.tests]
            if len(tests) == 1:
                return f"${path} {tests[0]}"
            joined = f" {node.joint} ".join(f"@ {test}" for test in tests)
            # A comparison would open a list in the list, and each test might find another element there.
            return f'exists(${path} ? (@.type() != "array" && ({joined})))'
        case _Not():
            return f"!{_two_valued(node.node)}"
        case _Group():
            return f" {node.joint} ".join(f"({_jsonpath(part)})" for part in node.nodes)


def _quoted(value: Scalar) -> str:
    """As JSON, which is how jsonpath writes its values and names too."""
    return json.dumps(value, ensure_ascii=False)


def _holds(node: _Node, payload: Any) -> bool:
    match node:
        case _Field():
            passes = all if node.joint == "&&" else any
            return any(passes(_passes(test, value) for test in node.tests) for value in _values(payload, node.path))
        case _Not():
            return not _holds(node.node, payload)
        case _Group():
            hold = all if node.joint == "&&" else any
            return hold(_holds(part, payload) for part in node.nodes)


def _values(payload: Any, path: tuple[str, ...]) -> list[Any]:
    """What is at the path; a list on the way, or at its end, stands for its elements."""
    found = _opened([payload])
    for part in path:
        found = _opened([value[part] for value in found if isinstance(value, Mapping) and part in value])
    return found


def _opened(values: list[Any]) -> list[Any]:
    return [element for value in values for element in (value if isinstance(value, list | tuple) else (value,))]


def _passes(test: _Test, value: Any) -> bool:
    if test.operator == "!=":
        return value is not None
    (kind, mine), (wanted_kind, wanted) = _kind(value), _kind(test.value)
    if kind != wanted_kind:
        return False
    match test.operator:
        case "==":
            return bool(mine == wanted)
        case ">=":
            return bool(mine >= wanted)
        case "<=":
            return bool(mine <= wanted)
        case "like_regex":
            return re.search(wanted, mine) is not None


def _kind(value: Any) -> tuple[str, Any]:
    """Only values of one kind are compared. A float is the decimal that JSON writes for it."""
    match value:
        case None | bool():
            return type(value).__name__, value
        case str():
            return "text", value
        case int():
            return "number", value
        case float() if math.isfinite(value):
            return "number", Decimal(repr(value))
        case Decimal() if value.is_finite():
            return "number", value
        case _:
            return "other", None


def _shown(value: object) -> str:
    """For an error message; a number of very many digits has no text."""
    try:
        return f"{value!r:.60}"
    except ValueError:
        return "a very long number"
