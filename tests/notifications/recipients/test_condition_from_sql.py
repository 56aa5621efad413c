"""A filter compiled by SQL means the same as in Python, and is refused where Python refuses it."""

import json
import unicodedata
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
from tests.facts import one
from tests.notifications.recipients.test_condition import DO_NOT_HOLD, HOLD, INVALID, TENDER, nested
from tests.notifications.recipients.test_condition_sql import Chance, Pair, payloads, text


def results_of(connection: psycopg.Connection, pairs: list[Pair]) -> list[bool | None]:
    """Return the results of PostgreSQL for filters that it compiled itself."""
    found: list[bool | None] = one(
        connection,
        "select json_agg(jsonb_path_match(pair -> 1, sereno.condition(pair -> 0)) order by number)"
        " from jsonb_array_elements(%s::jsonb) with ordinality as given (pair, number)",
        json.dumps(pairs, ensure_ascii=False),
    )
    return found


def refused(connection: psycopg.Connection, condition: Any) -> str | None:
    """Return the error message, or None."""
    try:
        one(connection, "select sereno.condition(%s::jsonb)", json.dumps(condition, ensure_ascii=False))
    except psycopg.errors.InvalidParameterValue as error:
        return error.diag.message_primary
    return None


@pytest.mark.slow
@pytest.mark.parametrize("batches", [15, pytest.param(500, marks=pytest.mark.storm)])
def test_random_conditions_mean_the_same_in_sql_and_python(connection: psycopg.Connection, batches: int) -> None:
    for seed in range(batches):
        chance = Chance(seed)
        pairs: list[Pair] = []
        for _ in range(20):
            values = chance.few()
            condition = chance.condition(values)
            pairs += [(condition, chance.payload(values)) for _ in range(5)]
        assert results_of(connection, pairs) == [holds(*pair) for pair in pairs]


scalar = (
    text | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.none()
)
name = text.filter(lambda given: given not in ("not", "any")) | st.sampled_from(["a", "b", "a.b", "", "a..b"])
tests: st.SearchStrategy[Any] = st.dictionaries(
    st.sampled_from(["min", "max", "contains", "exists", "mim"]), scalar | st.just([]) | st.just({}), max_size=3
)
clauses: st.SearchStrategy[Any] = st.dictionaries(
    name, scalar | st.lists(scalar | st.just([]), max_size=3) | tests, max_size=3
)
conditions = st.recursive(
    clauses,
    lambda inner: st.fixed_dictionaries({"not": inner}) | st.fixed_dictionaries({"any": st.lists(inner, max_size=3)}),
    max_leaves=5,
)


@pytest.mark.slow
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conditions, payloads)
def test_any_condition_is_refused_by_both_or_means_the_same_in_both(
    connection: psycopg.Connection, condition: dict[str, Any], payload: Any
) -> None:
    try:
        compile_condition(condition)
    except InvalidArguments:
        assert refused(connection, condition)
    else:
        assert refused(connection, condition) is None
        found = [payload, *({key: payload} for key in condition), *({key: [value]} for key, value in condition.items())]
        pairs: list[Pair] = [(condition, each) for each in found]
        assert results_of(connection, pairs) == [holds(*pair) for pair in pairs]


def test_sql_refuses_what_python_refuses(connection: psycopg.Connection, subtests: pytest.Subtests) -> None:
    for condition, _, complaint in [*INVALID, ({"a": "ñ" * LONGEST}, "", f"at most {LONGEST} are possible")]:
        if complaint is not None:
            with subtests.test(condition=condition):
                assert complaint in str(refused(connection, condition))


def test_sql_finds_the_same_conditions_to_hold(connection: psycopg.Connection) -> None:
    pairs: list[Pair] = [(condition, TENDER) for condition in [*HOLD, *DO_NOT_HOLD]]
    assert results_of(connection, pairs) == [True] * len(HOLD) + [False] * len(DO_NOT_HOLD)


def test_the_bounds_themselves_are_allowed(connection: psycopg.Connection) -> None:
    for condition in (
        nested(DEEPEST),
        {f"a{number}": 1 for number in range(MOST_CLAUSES)},
        {".".join("a" * MOST_PARTS): {"contains": "x" * LONGEST_TEXT}},
        {"a": 2**1024 - 1},
        {"a": "x" * (LONGEST - len(compile_condition({"a": ""})))},
    ):
        assert compile_condition(condition)
        assert refused(connection, condition) is None
    assert refused(connection, {"a": "x" * (LONGEST - len(compile_condition({"a": ""})) + 1)})


@pytest.mark.slow
def test_every_letter_has_the_cases_that_python_knows(connection: psycopg.Connection) -> None:
    letters = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    cased = [
        letter
        for letter in letters
        if any(len(other) == 1 and other != letter for other in (letter.lower(), letter.upper()))
    ]
    assert len(cased) > 2800
    rows = connection.execute(
        "select letter, sereno.in_any_case(letter) from unnest(%s::text[]) as letter", [cased + letters[:1000]]
    ).fetchall()
    wrong = []
    for letter, pattern in rows:
        # As the compiler writes it.
        wanted = json.loads(compile_condition({"a": {"contains": letter}}).partition("like_regex ")[2].rstrip(")"))
        if pattern != wanted:
            wrong.append(letter)
    # A newer version of Unicode in Python has additional letters.
    assert unicodedata.unidata_version > "14.0.0" or wrong == []
    assert len(wrong) < 200
