"""A condition means the same in PostgreSQL and in Python, for any condition and any payload."""

import json
from collections import Counter
from random import Random
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sereno.notifications.recipients.condition import (
    DEEPEST,
    LONGEST,
    LONGEST_TEXT,
    MOST_CLAUSES,
    compile_condition,
    holds,
)
from tests.facts import one

Pair = tuple[dict[str, Any], Any]

NASTY = [
    "",
    "a",
    "A",
    'quote " quote',
    "it's",
    "back\\slash",
    "\\",
    '\\"',
    "$",
    "$.a",
    "$a",
    "@",
    "%s",
    "a.b",
    "***:a",
    "(?i)a",
    "a+",
    "[a-z]",
    "{1}",
    "/* a */",
    "-- a",
    "1",
    "1.0",
    "-1",
    "true",
    "null",
    "\n",
    "\t\r\b\f\v\x1f\x7f",
    "ñandú",
    "ÑANDÚ",
    "straße",
    "STRASSE",
    "İstanbul",
    "\u0131\u01c5\u03a3\u03c3\u03c2\u212a",
    "日本",
    "🌙",
    "\u2028",
    "\ufffd",
    "e\u0301",
]
NUMBERS = [
    0,
    -0.0,
    1,
    1.0,
    -1,
    2,
    0.1,
    0.30000000000000004,
    1e16,
    10**16,
    2**53,
    2**53 + 1,
    2.0**53,
    2**63,
    10**300,
    1e300,
    -1e-300,
    5e-324,
    1.7976931348623157e308,
    123456789012345678901234567890,
    1.2345678901234568e29,
]
NAMES = ["a", "b", "not", "any", "$", 'x"y', "\\", "ñ", "it's", "*", "a b", "0", "type()"]


class Chance:
    """Random conditions and payloads from few values, so that they often match."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.values: list[Any] = [*NASTY, *NUMBERS, *NUMBERS, True, False, None]
        self.names = self.random.sample(NAMES, 3)

    def few(self) -> list[Any]:
        return self.random.sample(self.values, 6)

    def payload(self, few: list[Any], depth: int = 0) -> Any:
        kind = self.random.random()
        if depth == 0 and kind < 0.9:
            kind = 0.99
        if kind < 0.55 or depth > 4:
            value = self.random.choice(few)
            if isinstance(value, str) and self.random.random() < 0.3:
                value = self.random.choice(["x", "A"]) + self.random.choice([value, value.upper(), value.lower()]) + "z"
            return value
        if kind < 0.75:
            return [self.payload(few, depth + 1) for _ in range(self.random.randrange(4))]
        return {name: self.payload(few, depth + 1) for name in self.names if self.random.random() < 0.8}

    def condition(self, few: list[Any], depth: int = 1) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(self.random.choice([1, 1, 1, 2, 3])):
            kind = self.random.random()
            if kind < 0.15 and depth < 5:
                found["not"] = self.condition(few, depth + 1)
            elif kind < 0.3 and depth < 5:
                found["any"] = [self.condition(few, depth + 1) for _ in range(self.random.randrange(1, 4))]
            else:
                path = ".".join(self.random.choice(self.names) for _ in range(self.random.choice([1, 1, 1, 2, 2, 3])))
                if path not in ("not", "any"):
                    found[path] = self.wanted(few)
        return found or {"a": self.wanted(few)}

    def wanted(self, few: list[Any]) -> Any:
        match self.random.randrange(5):
            case 0:
                return self.random.choice(few)
            case 1:
                return self.random.choices(few, k=self.random.randrange(1, 4))
            case 2:
                return {"exists": self.random.random() < 0.5}
            case 3:
                texts = [text for text in few if isinstance(text, str) and text] or ["a"]
                tests = {"contains": self.random.choice(texts)}
                return tests | self.random.choice([{}, {}, {"exists": True}, {"min": "B"}, {"min": 1}])
            case _:
                return self.limits([value for value in few if type(value) is type(few[0])])

    def limits(self, few: list[Any]) -> dict[str, Any]:
        same = few if isinstance(few[0], str | float) or type(few[0]) is int else [1]
        low, high = sorted(self.random.choices(same, k=2))
        return self.random.choice([{"min": low}, {"max": high}, {"min": low, "max": high}])


def results_of(connection: psycopg.Connection, pairs: list[Pair]) -> list[bool | None]:
    """Return the results of PostgreSQL in one statement; without `silent`, so that an error shows."""
    rows = json.dumps([[compile_condition(condition), payload] for condition, payload in pairs], ensure_ascii=False)
    found: list[bool | None] = one(
        connection,
        "select json_agg(jsonb_path_match(pair -> 1, (pair ->> 0)::jsonpath) order by number)"
        " from jsonb_array_elements(%s::jsonb) with ordinality as given (pair, number)",
        rows,
    )
    return found


def disagreements(connection: psycopg.Connection, pairs: list[Pair]) -> list[tuple[Pair, bool | None]]:
    found = results_of(connection, pairs)
    assert len(found) == len(pairs)
    return [(pair, answer) for pair, answer in zip(pairs, found, strict=True) if answer is not holds(*pair)]


@pytest.mark.slow
@pytest.mark.parametrize("batches", [40, pytest.param(1000, marks=pytest.mark.storm)])
def test_random_conditions_mean_the_same_in_sql_and_python(connection: psycopg.Connection, batches: int) -> None:
    seen: Counter[bool] = Counter()
    for seed in range(batches):
        chance = Chance(seed)
        pairs = []
        for _ in range(20):
            few = chance.few()
            condition = chance.condition(few)
            pairs += [(condition, chance.payload(few)) for _ in range(5)]
        assert disagreements(connection, pairs) == []
        seen.update(holds(*pair) for pair in pairs)
    assert seen.total() == batches * 100
    assert min(seen.values()) > batches * 20


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
scalar = (
    text | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()
)
payloads = st.recursive(
    scalar, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=8
)


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_text_and_number_means_the_same_in_sql_and_python(
    connection: psycopg.Connection, data: st.DataObject
) -> None:
    name = data.draw(text.filter(lambda name: name and "." not in name and name not in ("not", "any")))
    value = data.draw(scalar)
    other = data.draw(payloads)
    conditions: list[dict[str, Any]] = [{name: value}, {name: [value, "x"]}, {"not": {name: value}}]
    if isinstance(value, str) and value:
        conditions += [{name: {"contains": value}}, {name: {"contains": value.swapcase()[:LONGEST_TEXT]}}]
    if value is not None and not isinstance(value, bool):
        conditions += [{name: {"min": value}}, {name: {"max": value}}, {name: {"min": value, "max": value}}]
    for found in ({name: value}, {name: [other, value]}, {name: other}, [{name: value}], other):
        assert disagreements(connection, [(condition, found) for condition in conditions]) == []


FALSE: list[tuple[dict[str, Any], Any]] = [
    ({"a": 1}, {"a": [[1]]}),
    ({"a": [1, 2]}, {"a": [[1]]}),
    ({"a": {"min": 2, "max": 3}}, {"a": [1, 4]}),
    ({"a": {"min": 2, "max": 3}}, {"a": [[1, 4]]}),
    ({"a": {"exists": True}}, {"a": []}),
    ({"a": {"exists": True}}, {"a": [None]}),
    ({"a": {"exists": True}}, {"a": None}),
    ({"a.b": 1}, {"a": [[{"b": 1}]]}),
    ({"a": 1}, {"a": True}),
    ({"a": 1}, {"a": "1"}),
    ({"a": True}, {"a": "true"}),
    ({"a": None}, {}),
    ({"a": {"min": 1}}, {"a": None}),
    ({"a": {"max": "2027"}}, {"a": 2026}),
    ({"a": 1}, "a"),
    ({"a": 1}, None),
    ({"a": 2**53}, {"a": 2**53 + 1}),
    ({"a": {"contains": "SS"}}, {"a": "ß"}),
    ({"a": {"contains": "a.c"}}, {"a": "abc"}),
]


def test_a_condition_that_does_not_hold_is_false_and_its_negation_true(
    connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    for condition, payload in FALSE:
        with subtests.test(condition=condition, payload=payload):
            negated = {"not": condition}
            assert results_of(connection, [(condition, payload), (negated, payload)]) == [False, True]
            assert (holds(condition, payload), holds(negated, payload)) == (False, True)


def test_postgresql_can_run_the_largest_condition(connection: psycopg.Connection) -> None:
    many: dict[str, Any] = {"a": [1] * 800}
    assert LONGEST * 0.9 < len(compile_condition(many)) <= LONGEST
    wide: dict[str, Any] = {"any": [{f"k{number}": number} for number in range(MOST_CLAUSES)]}
    deep: dict[str, Any] = {".".join("abcdefghij"): {"contains": "x" * LONGEST_TEXT}}
    for _ in range(DEEPEST - 1):
        deep = {"not": deep}
    pairs: list[Pair] = [(many, {"a": 1}), (many, {"a": 2}), (wide, {"k99": 99}), (wide, {}), (deep, {})]
    assert results_of(connection, pairs) == [True, False, True, False, False]
    assert disagreements(connection, pairs) == []


@pytest.mark.slow
def test_a_stored_condition_means_the_same_when_read_back(connection: psycopg.Connection) -> None:
    chance = Chance(1)
    for _ in range(200):
        few = chance.few()
        condition, payload = chance.condition(few), chance.payload(few)
        written = one(connection, "select %s::jsonpath::text", compile_condition(condition))
        body = json.dumps(payload)
        found = one(connection, "select jsonb_path_match(%s, %s::jsonpath, silent => true)", body, written)
        assert found is holds(condition, payload)
