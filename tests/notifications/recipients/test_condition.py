"""Conditions on payloads: which hold, which do not, and which are refused."""

from decimal import Decimal
from typing import Any

import pytest

from sereno.errors import InvalidArguments
from sereno.notifications.recipients.condition import (
    DEEPEST,
    LONGEST,
    LONGEST_TEXT,
    MOST_CLAUSES,
    MOST_PARTS,
    compile_condition,
    holds,
)

# Of a text to search for.
SIZE = f"1 to {LONGEST_TEXT} characters"
TENDER = {
    "region": "RM",
    "amount": 2500,
    "share": 0.1,
    "title": "The long ROAD to Ñuñoa (50%)",
    "buyer": {"city": "Lima", "branches": [{"city": "Cusco"}, {"city": "Ica"}]},
    "tags": ["roads", "bridges", 7],
    "bids": [100, 900],
    "deadline": "2027-03-01",
    "cancelled": None,
    "urgent": True,
    "empty": [],
    "nested": [["RM"]],
}


HOLD: list[dict[str, Any]] = [
    {},
    {"region": "RM"},
    {"region": ["V", "RM"]},
    {"region": "RM", "urgent": True},
    {"amount": 2500.0},
    {"amount": {"min": 2500}},
    {"amount": {"max": 2500}},
    {"amount": {"min": 1000, "max": 5000}},
    {"share": 0.1},
    {"deadline": {"min": "2027-01-01", "max": "2027-12-31"}},
    {"title": {"contains": "road"}},
    {"title": {"contains": "ñUÑOA"}},
    {"title": {"contains": "(50%)"}},
    {"title": {"contains": "road", "exists": True, "min": "T"}},
    {"buyer.city": "Lima"},
    {"buyer.branches.city": "Ica"},
    {"tags": "bridges"},
    {"tags": [7, "x"]},
    {"tags": {"contains": "ROADS"}},
    {"bids": {"min": 500}},
    {"cancelled": None},
    {"deadline": {"exists": True}},
    {"buyer": {"exists": True}},
    {"nested": {"exists": True}},
    {"missing": {"exists": False}},
    {"cancelled": {"exists": False}},
    {"empty": {"exists": False}},
    {"not": {"region": "V"}},
    {"not": {"missing": "RM"}},
    {"not": {"title": {"min": 5}}},
    {"any": [{"region": "V"}, {"amount": {"min": 1}}]},
    {"region": "RM", "not": {"urgent": False}, "any": [{"tags": "roads"}]},
]


def test_conditions_that_hold(subtests: pytest.Subtests) -> None:
    for condition in HOLD:
        with subtests.test(condition=condition):
            assert holds(condition, TENDER)
            assert not condition or not holds({"not": condition}, TENDER)


DO_NOT_HOLD: list[dict[str, Any]] = [
    {"region": "rm"},
    {"region": ["V", "X"]},
    {"region": "RM", "urgent": False},
    {"amount": "2500"},
    {"amount": {"min": 2501}},
    {"amount": {"min": "1"}},
    {"urgent": 1},
    {"urgent": "true"},
    {"urgent": {"min": 0}},
    {"cancelled": False},
    {"title": {"contains": "r.ad"}},
    {"amount": {"contains": "25"}},
    {"buyer": "Lima"},
    {"buyer.city.name": "Lima"},
    {"region.0": "R"},
    {"bids": {"min": 200, "max": 800}},
    {"missing": None},
    {"missing": {"exists": True}},
    {"nested": "RM"},
    {"nested": ["RM", "V"]},
    {"not": {"region": "RM"}},
    {"any": [{"region": "V"}, {"amount": {"min": 9000}}]},
]


def test_conditions_that_do_not_hold(subtests: pytest.Subtests) -> None:
    for condition in DO_NOT_HOLD:
        with subtests.test(condition=condition):
            assert not holds(condition, TENDER)
            assert holds({"not": condition}, TENDER)


def test_a_payload_without_the_field_is_not_an_error(subtests: pytest.Subtests) -> None:
    for payload in [None, 5, "region", [], {}, [[{"region": "RM"}]], {"region": {"region": "RM"}}]:
        with subtests.test(payload=payload):
            assert not holds({"region": "RM"}, payload)
            assert not holds({"region": {"exists": True, "contains": "R", "min": "A"}}, payload)


def test_numbers_are_compared_as_the_decimals_that_json_writes() -> None:
    assert holds({"n": 0.1}, {"n": Decimal("0.1")})
    assert not holds({"n": 0.1}, {"n": Decimal("0.10000000000000001")})
    assert not holds({"n": 2**53}, {"n": 2**53 + 1})
    assert not holds({"n": {"min": 0}}, {"n": float("nan")})


QUOTED: list[tuple[dict[str, Any], str]] = [
    ({}, "true"),
    ({"region": "RM"}, 'exists(true ? (($."region" == "RM")))'),
    ({"a.b": [1, None]}, 'exists(true ? ((exists($."a"."b" ? (@.type() != "array" && (@ == 1 || @ == null))))))'),
    ({"t": {"contains": "ñ."}}, r'exists(true ? (($."t" like_regex "[Ññ]\\.")))'),
    ({'") || (1 == 1': '" || true'}, r'exists(true ? (($."\") || (1 == 1" == "\" || true")))'),
    ({"not": {"a": 1}}, 'exists(true ? ((!exists(true ? (($."a" == 1))))))'),
]


def test_names_and_texts_stay_inside_their_quotes(subtests: pytest.Subtests) -> None:
    for condition, jsonpath in QUOTED:
        with subtests.test(condition=condition):
            assert compile_condition(condition) == jsonpath


def nested(depth: int) -> dict[str, Any]:
    condition: dict[str, Any] = {"a": 1}
    for _ in range(depth - 1):
        condition = {"not": condition}
    return condition


# The condition, the complaint of Python, and that of SQL, where JSON can express the condition.
INVALID: list[tuple[Any, str, str | None]] = [
    (None, "a condition must be an object such as", "a filter is an object"),
    (["region"], "a condition must be an object such as", "a filter is an object"),
    ({"not": "RM"}, "a condition must be an object such as", "a filter is an object"),
    ({"not": {}}, "is invalid: fill it in, or omit it", "says nothing"),
    ({"any": [{}]}, "is invalid: fill it in, or omit it", "says nothing"),
    ({"any": []}, '"any" needs a list of conditions', '"any" needs a list of filters'),
    ({"any": {"region": "RM"}}, '"any" needs a list of conditions', '"any" needs a list of filters'),
    ({"region": []}, "name at least one value, or omit the key", "name at least one value, or leave it out"),
    ({"region": {}}, 'write {"exists": true} or omit the key', 'write {"exists": true} or leave it out'),
    ({"": 1}, 'write "region" or "buyer.city"', 'write "region" or "buyer.city"'),
    ({"a..b": 1}, 'write "region" or "buyer.city"', 'write "region" or "buyer.city"'),
    ({5: 1}, 'write "region" or "buyer.city"', None),
    ({".".join("a" * (MOST_PARTS + 1)): 1}, f"at most {MOST_PARTS} names", f"at most {MOST_PARTS} names"),
    ({"a\x00": 1}, "NUL byte", None),
    ({"a": "\x00"}, "NUL byte", None),
    ({"a": ["\ud800"]}, "lone surrogate", None),
    ({"a": {"contains": "\x00"}}, "NUL byte", None),
    ({"a": {"contains": ""}}, f"contains must be a string of {SIZE}", f"contains is a text of {SIZE}"),
    ({"a": {"contains": "x" * (LONGEST_TEXT + 1)}}, f"must be a string of {SIZE}", f"contains is a text of {SIZE}"),
    ({"a": {"contains": 5}}, f"contains must be a string of {SIZE}", f"contains is a text of {SIZE}"),
    ({"a": {"min": True}}, "min must be a number or a string", "min is a number or a text"),
    ({"a": {"max": None}}, "max must be a number or a string", "max is a number or a text"),
    ({"a": {"min": 2, "max": 1}}, "min the smaller", "min the smaller one"),
    ({"a": {"min": "b", "max": "a"}}, "min the smaller", "min the smaller one"),
    ({"a": {"min": 2, "max": "3"}}, "two numbers or two strings", "two numbers or two texts"),
    ({"a": {"exists": 1}}, "exists must be true or false", "exists is true"),
    ({"a": {"exists": False, "min": 1}}, "cannot be missing and pass another test", "without another test"),
    ({"a": {"mim": 1}}, "use min, max, contains or exists", "write min, max, contains or exists"),
    ({"a": {"not": 1}}, "is written around it", None),
    ({"a": float("inf")}, "is not a JSON number", None),
    ({"a": {"min": float("nan")}}, "is not a JSON number", None),
    ({"a": 10**400}, "at most 1024 bits", "at most 1024 bits"),
    ({"a": -(2**1024)}, "at most 1024 bits", "at most 1024 bits"),
    ({"a": {"min": 10**400}}, "at most 1024 bits", "at most 1024 bits"),
    ({"a": 10**5000}, "at most 1024 bits", None),
    ({"a": [[1]]}, "must be compared with a string, a number", "is compared with a text, a number"),
    ({"a": b"x"}, "must be compared with a string, a number", None),
    (nested(DEEPEST + 1), f"nested more than {DEEPEST} levels deep", f"nested more than {DEEPEST} deep"),
    (
        {f"a{number}": 1 for number in range(MOST_CLAUSES + 1)},
        f"at most {MOST_CLAUSES} are allowed",
        f"at most {MOST_CLAUSES} are possible",
    ),
]


def test_invalid_conditions_are_refused_with_a_hint(subtests: pytest.Subtests) -> None:
    for condition, complaint, _ in INVALID:
        with subtests.test(condition=condition):
            for check in (compile_condition, lambda given: holds(given, {})):
                with pytest.raises(InvalidArguments) as refusal:
                    check(condition)
                assert complaint in str(refusal.value)
                assert len(str(refusal.value)) < 250


def test_a_condition_that_is_too_long_is_refused() -> None:
    assert compile_condition({"a": "x" * (LONGEST - 100)})
    with pytest.raises(InvalidArguments, match=r"takes 16,\d+ bytes as a jsonpath, at most 8,192"):
        compile_condition({"a": "ñ" * LONGEST})
