"""Conditions on the payload of an event: a small filter that PostgreSQL and Python evaluate alike.

    {"region": "RM"}                           equal
    {"region": ["RM", "V"]}                    one of
    {"amount": {"min": 1000, "max": 5000}}     from and to: numbers, or texts such as ISO dates
    {"title": {"contains": "road"}}            contains this text, case-insensitive
    {"buyer.city": "Lima"}                     nested field
    {"deadline": {"exists": true}}             present and not null
    {"not": {…}}    {"any": [{…}, {…}]}        does not hold; at least one holds

All keys of an object must hold. A list in the payload stands for its elements: one element must pass all tests of its
key. A missing value or one of another type passes no test and is never an error. Numbers are compared as decimals.

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
# Bytes of the jsonpath, which is stored with each preference. This length cannot exhaust the stack of PostgreSQL.
LONGEST = 8192
LONGEST_TEXT = 200
# Largest integer in bits: the range of a 64-bit float.
_MOST_BITS = 1024
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

Scalar: TypeAlias = str | int | float | bool | None
_Operator: TypeAlias = Literal["==", "!=", ">=", "<=", "like_regex"]
_Joint: TypeAlias = Literal["&&", "||"]


@dataclass(frozen=True, slots=True)
class _ConditionTest:
    operator: _Operator
    value: Scalar


@dataclass(frozen=True, slots=True)
class _ConditionField:
    """One element at this path passes all tests, or one test."""

    path: tuple[str, ...]
    tests: tuple[_ConditionTest, ...]
    joint: _Joint


@dataclass(frozen=True, slots=True)
class _ConditionNot:
    node: "_Node"


@dataclass(frozen=True, slots=True)
class _ConditionGroup:
    nodes: tuple["_Node", ...]
    joint: _Joint


_Node: TypeAlias = _ConditionField | _ConditionNot | _ConditionGroup


def compile_condition(condition: Mapping[str, Any]) -> str:
    """Return the jsonpath for `jsonb_path_match(payload, condition, silent => true)`; raise InvalidArguments."""
    node = _read(condition)
    if not condition:
        return "true"
    text = _two_valued(node)
    if (length := len(text.encode())) > LONGEST:
        raise InvalidArguments(f"the condition takes {length:,} bytes as a jsonpath, at most {LONGEST:,} are allowed")
    return text


def holds(condition: Mapping[str, Any], payload: Any) -> bool:
    """Return what PostgreSQL would return for this payload, which is decoded JSON."""
    return _holds(_read(condition), payload)


def _read(condition: Mapping[str, Any]) -> _Node:
    node = _object(condition, 1)
    if (clauses := _count(node)) > MOST_CLAUSES:
        raise InvalidArguments(f"the condition has {clauses} clauses, at most {MOST_CLAUSES} are allowed")
    return node


def _count(node: _Node) -> int:
    match node:
        case _ConditionField():
            return 1
        case _ConditionNot():
            return 1 + _count(node.node)
        case _ConditionGroup():
            return sum(map(_count, node.nodes))


def _object(condition: object, depth: int) -> _Node:
    if not isinstance(condition, Mapping):
        raise InvalidArguments(f'a condition must be an object such as {{"region": "RM"}}, not {_shown(condition)}')
    if not condition and depth > 1:
        raise InvalidArguments('an empty condition in "not" or "any" is invalid: fill it in, or omit it')
    if depth > DEEPEST:
        raise InvalidArguments(f"the condition is nested more than {DEEPEST} levels deep: use fewer not and any")
    return _ConditionGroup(tuple(_clause(key, wanted, depth) for key, wanted in condition.items()), "&&")


def _clause(key: object, wanted: Any, depth: int) -> _Node:
    if key == "not":
        return _ConditionNot(_object(wanted, depth + 1))
    if key == "any":
        if not isinstance(wanted, list | tuple) or not wanted:
            raise InvalidArguments(f'"any" needs a list of conditions, at least one, not {_shown(wanted)}')
        return _ConditionGroup(tuple(_object(part, depth + 1) for part in wanted), "||")
    path = _path(key)
    match wanted:
        case Mapping():
            return _tested(key, path, wanted)
        case list() | tuple():
            if not wanted:
                raise InvalidArguments(f"{_shown(key)} has an empty list: name at least one value, or omit the key")
            return _ConditionField(path, tuple(_ConditionTest("==", _scalar(key, value)) for value in wanted), "||")
        case _:
            return _ConditionField(path, (_ConditionTest("==", _scalar(key, wanted)),), "&&")


def _path(key: object) -> tuple[str, ...]:
    parts = tuple(key.split(".")) if isinstance(key, str) else ()
    if not all(parts) or not 0 < len(parts) <= MOST_PARTS:
        raise InvalidArguments(
            f'{_shown(key)} is not a valid field: write "region" or "buyer.city", at most {MOST_PARTS} names'
        )
    return tuple(map(_text, parts))


def _tested(key: object, path: tuple[str, ...], tests: Mapping[str, Any]) -> _Node:
    if not tests:
        raise InvalidArguments(f'{_shown(key)} has no test: write {{"exists": true}} or omit the key')
    if tests.get("exists") is False:
        if len(tests) > 1:
            raise InvalidArguments(f"{_shown(key)} cannot be missing and pass another test: omit one of them")
        return _ConditionNot(_ConditionField(path, (_ConditionTest("!=", None),), "&&"))
    found = tuple(_test(key, name, value) for name, value in tests.items())
    if "min" in tests and "max" in tests:
        low, high = _kind(tests["min"]), _kind(tests["max"])
        if low[0] != high[0] or low[1] > high[1]:
            raise InvalidArguments(f"{_shown(key)}: min and max must be two numbers or two strings, min the smaller")
    return _ConditionField(path, found, "&&")


def _test(key: object, name: object, value: Any) -> _ConditionTest:
    match name:
        case "min" | "max":
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise InvalidArguments(f"{_shown(key)}: {name} must be a number or a string, not {_shown(value)}")
            return _ConditionTest(">=" if name == "min" else "<=", _scalar(key, value))
        case "contains":
            if not isinstance(value, str) or not 0 < len(value) <= LONGEST_TEXT:
                raise InvalidArguments(
                    f"{_shown(key)}: contains must be a string of 1 to {LONGEST_TEXT} characters, not {_shown(value)}"
                )
            return _ConditionTest("like_regex", "".join(map(_in_any_case, _text(value))))
        case "exists":
            if value is not True:
                raise InvalidArguments(f"{_shown(key)}: exists must be true or false, not {_shown(value)}")
            return _ConditionTest("!=", None)
        case _:
            raise InvalidArguments(
                f"{_shown(key)}: unknown test {_shown(name)}: use min, max, contains or exists"
                f' ("not" is written around it: {{"not": {{{_shown(key)}: …}}}})'
            )


def _scalar(key: object, value: Any) -> Scalar:
    match value:
        case str():
            return _text(value)
        case float() if not math.isfinite(value):
            raise InvalidArguments(f"{_shown(key)}: {value} is not a JSON number")
        case int() if value.bit_length() > _MOST_BITS:
            raise InvalidArguments(f"{_shown(key)}: an integer can have at most {_MOST_BITS} bits")
        case None | bool() | int() | float():
            return value
        case _:
            raise InvalidArguments(
                f"{_shown(key)} must be compared with a string, a number, true, false or null, not {_shown(value)}"
            )


def _text(value: str) -> str:
    if _UNSTORABLE.search(value):
        raise InvalidArguments(f"{_shown(value)} contains a NUL byte or a lone surrogate, which no payload can contain")
    return value


def _in_any_case(letter: str) -> str:
    """Return a case-insensitive pattern that works the same in PostgreSQL and in Python.

    The flag "i" would depend on the locale of the database, and each has its own rules for letter case.
    """
    cases = sorted(case for case in {letter, letter.lower(), letter.upper()} if len(case) == 1)
    return f"[{''.join(cases)}]" if len(cases) > 1 else re.escape(letter)


def _two_valued(node: _Node) -> str:
    """A comparison of two types is unknown, and so is its negation; the filter makes unknown false."""
    return f"exists(true ? ({_jsonpath(node)}))"


def _jsonpath(node: _Node) -> str:
    match node:
        case _ConditionField():
            path = "".join(f".{_quoted(part)}" for part in node.path)
            tests = [f"{test.operator} {_quoted(test.value)}" for test in node.tests]
            if len(tests) == 1:
                return f"${path} {tests[0]}"
            joined = f" {node.joint} ".join(f"@ {test}" for test in tests)
            # A comparison would unwrap a nested list, and each test might match another element of it.
            return f'exists(${path} ? (@.type() != "array" && ({joined})))'
        case _ConditionNot():
            return f"!{_two_valued(node.node)}"
        case _ConditionGroup():
            return f" {node.joint} ".join(f"({_jsonpath(part)})" for part in node.nodes)


def _quoted(value: Scalar) -> str:
    """Return the value as JSON, which is also the syntax of jsonpath."""
    return json.dumps(value, ensure_ascii=False)


def _holds(node: _Node, payload: Any) -> bool:
    match node:
        case _ConditionField():
            passes = all if node.joint == "&&" else any
            return any(passes(_passes(test, value) for test in node.tests) for value in _values(payload, node.path))
        case _ConditionNot():
            return not _holds(node.node, payload)
        case _ConditionGroup():
            hold = all if node.joint == "&&" else any
            return hold(_holds(part, payload) for part in node.nodes)


def _values(payload: Any, path: tuple[str, ...]) -> list[Any]:
    """Return the values at the path; a list on the way or at the end stands for its elements."""
    found = _opened([payload])
    for part in path:
        found = _opened([value[part] for value in found if isinstance(value, Mapping) and part in value])
    return found


def _opened(values: list[Any]) -> list[Any]:
    return [element for value in values for element in (value if isinstance(value, list | tuple) else (value,))]


def _passes(test: _ConditionTest, value: Any) -> bool:
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
    """Return kind and comparable value; only equal kinds are compared. A float becomes the decimal that JSON writes."""
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
    """Return the value for an error message; a very long integer cannot be converted to text."""
    try:
        return f"{value!r:.60}"
    except ValueError:
        return "a very long number"
