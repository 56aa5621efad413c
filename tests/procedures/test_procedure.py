"""Signatures, values and results, without a database."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno.errors import InvalidArguments, Refused
from sereno.procedures.call_sql import mysql_call
from sereno.procedures.procedure import (
    Parameter,
    ProcedureName,
    ProcedureSignature,
    check_given,
    check_params,
    choose,
    still,
)
from sereno.procedures.result import (
    LONGEST_TEXT,
    MOST_BYTES,
    MOST_ROWS,
    ProcedureNotices,
    ProcedureResult,
    plain,
    plain_row,
)
from sereno.procedures.values import converted

NAME = ProcedureName("reporting", "close_day")
DAY = Parameter("day", "date")
CLOSE = ProcedureSignature("procedure", *NAME, (DAY, Parameter("factor", "integer", has_default=True)))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=5,
)


def test_a_signature_is_stored_and_read_again() -> None:
    whole = ProcedureSignature(
        "function", "a b", 'c"d', (DAY, Parameter("x", "text[]", "variadic", shape="list")), "integer", True, "postgres"
    )
    assert msgspec.json.decode(msgspec.json.encode(whole), type=ProcedureSignature) == whole
    assert str(whole) == (
        'function "a b"."c""d"(day date, variadic x text[]) returns setof integer, with the rights of postgres'
    )


def test_every_change_but_the_body_is_noticed() -> None:
    assert still(CLOSE, [CLOSE]) is None
    other = ProcedureSignature("procedure", *NAME, (Parameter("day", "text"),))
    assert still(CLOSE, [other, CLOSE]) is None
    assert "no longer exists" in str(still(CLOSE, []))
    assert "has changed since it was allowed" in str(still(CLOSE, [other]))


def test_choose_returns_the_only_match() -> None:
    other = ProcedureSignature("function", *NAME, (Parameter("day", "text"),), "text")
    assert choose([CLOSE], NAME, None, None) == CLOSE
    assert choose([CLOSE, other], NAME, " DAY  text ", None) == other
    assert choose([CLOSE, other], NAME, "date,integer", None) == CLOSE
    assert choose([CLOSE, other], NAME, None, "function") == other
    for params, kind, words in (
        (None, None, "exists 2 times"),
        ("day int", None, "none of them"),
        ("", None, "none of them"),
    ):
        with pytest.raises(Refused, match=words):
            choose([CLOSE, other], NAME, params, kind)
    with pytest.raises(Refused, match="exists, but differs"):
        choose([CLOSE], NAME, "x", None)
    with pytest.raises(Refused, match="there is no function"):
        choose([], NAME, None, None)


def test_facts_of_the_job_are_checked() -> None:
    check_given(CLOSE, {"day": "planned_at"})
    with pytest.raises(InvalidArguments, match="no parameter 'x'"):
        check_given(CLOSE, {"x": "job"})
    with pytest.raises(InvalidArguments, match="the facts of a job are job, attempt"):
        check_given(CLOSE, {"day": "secret"})


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=5) | st.sampled_from(["day", "factor"]), JSON, max_size=4))
def test_parameters_fit_or_are_refused_with_a_reason(params: dict[str, Any]) -> None:
    fits = "day" in params and params.keys() <= {"day", "factor"}
    fits = fits and not any(isinstance(value, list | dict) for value in params.values())
    if fits:
        check_params(CLOSE, params, {})
        return
    with pytest.raises(InvalidArguments, match="It takes day date, factor integer = default"):
        check_params(CLOSE, params, {})


# Type, value as JSON, value for the database.
CONVERTED: tuple[tuple[str, Any, Any], ...] = (
    ("int(11)", 7, 7),
    ("int", "7", 7),
    ("int", True, 1),
    ("bigint", 2.0, 2),
    ("decimal(10,2)", "12.50", Decimal("12.50")),
    ("numeric(5)", 99999, Decimal(99999)),
    ("money", 1.5, Decimal("1.5")),
    ("float", "1.5", 1.5),
    ("varchar(3)", "abc", "abc"),
    ("nvarchar(max)", "abc" * 100, "abc" * 100),
    ("varchar(5)", 12, "12"),
    ("date", "2026-11-01", date(2026, 11, 1)),
    ("datetime", "2026-11-01 03:00:00", datetime(2026, 11, 1, 3)),  # noqa: DTZ001 - as the type is
    ("datetimeoffset(7)", "2026-11-01T03:00:00+00:00", datetime(2026, 11, 1, 3, tzinfo=UTC)),
    ("time", "03:00:00", time(3)),
    ("bit", False, 0),
    ("bit(8)", 255, 255),
    ("boolean", "true", 1),
    ("year(4)", 2026, 2026),
    ("enum('it''s','b')", "it's", "it's"),
    ("set('a','b')", "", ""),
    ("json", [1], "[1]"),
    ("longtext", {"a": 1}, '{"a":1}'),
    ("longtext", "plain", "plain"),
    ("uuid", "7D444840-9DC0-11D1-B245-5FFDCE74FAD2", "7d444840-9dc0-11d1-b245-5ffdce74fad2"),
    ("text", None, None),
)
UNFIT: tuple[tuple[str, Any], ...] = (
    ("int", "x"), ("int", 1.5), ("int", 2**31), ("int unsigned", -1), ("int", [1]), ("int", "1e400"),
    ("smallint", 40_000), ("decimal(4,2)", 123), ("decimal(4,2)", "1.234"), ("decimal", "NaN"),
    ("decimal", True), ("decimal", "x"), ("float", "nan"), ("float", "inf"), ("varchar(3)", "abcd"),
    ("date", "2026-13-01"), ("date", 20261101), ("datetime", "2026-11-01T03:00:00+00:00"),
    ("datetimeoffset", "2026-11-01"), ("time", "25:00"), ("bit(2)", 4), ("bit", 2), ("boolean", "maybe"),
    ("year", 99999), ("enum('a')", "b"), ("set('a','b')", "a,c"), ("uuid", "x"), ("blob", "x"), ("", 1),
    ("text", {"a": 1}),
)  # fmt: skip


def test_values_are_converted_to_their_type(subtests: pytest.Subtests) -> None:
    for type_, value, wanted in CONVERTED:
        signature = ProcedureSignature("procedure", *NAME, (Parameter("x", type_),))
        with subtests.test(type_=type_, value=repr(value)):
            assert converted(signature, {"x": value}) == {"x": wanted}


def test_values_that_do_not_fit_their_type_are_refused(subtests: pytest.Subtests) -> None:
    for type_, value in UNFIT:
        signature = ProcedureSignature("procedure", *NAME, (Parameter("x", type_),))
        with (
            subtests.test(type_=type_, value=repr(value)),
            pytest.raises(InvalidArguments, match=r"reporting\.close_day: x: "),
        ):
            converted(signature, {"x": value})


@pytest.mark.slow
@given(st.sampled_from(["int", "decimal(10,2)", "float", "date", "datetime", "bit", "varchar(5)", "enum('a')"]), JSON)
def test_any_json_is_converted_or_refused(type_: str, value: Any) -> None:
    signature = ProcedureSignature("procedure", *NAME, (Parameter("x", type_),))
    try:
        converted(signature, {"x": value})
    except InvalidArguments:
        return


def test_mysql_is_called_by_position() -> None:
    parameters = (DAY, Parameter("note", "text", "inout"), Parameter("total", "int", "out"))
    call = mysql_call(ProcedureSignature("procedure", "a`b", "c%d", parameters), {"day": "2026-11-01", "note": "x"})
    assert call.before == ("set @sereno_1 = %s, @sereno_2 = %s", ["x", None])
    assert (call.text, call.values) == ("call `a``b`.`c%%d`(%s, @sereno_1, @sereno_2)", ["2026-11-01"])
    assert (call.after, call.outputs) == ("select @sereno_1, @sereno_2", ("note", "total"))


def test_results_are_bounded() -> None:
    few = ProcedureResult([1, 2], 2)
    assert few.for_history() == {"rows": [1, 2], "row_count": 2, "notices": []}
    assert ProcedureResult([], 12).for_history() == {"rows": [], "row_count": 12, "notices": []}
    many = ProcedureResult([{"n": n} for n in range(500)], 5000).for_history()
    assert (len(many["rows"]), many["rows_left_out"]) == (MOST_ROWS, 5000 - MOST_ROWS)
    large = ProcedureResult(["x" * 4000] * 50, 50).for_history()
    assert len(msgspec.json.encode(large["rows"])) <= MOST_BYTES + 4000
    assert large["rows_left_out"] == 50 - len(large["rows"])
    notices = ProcedureNotices()
    for number in range(250):
        notices.add("NOTICE", f"step {number}\x00" + "x" * 5000)
    stored = ProcedureResult([], None, notices.collected, notices.omitted).for_history()
    assert (len(stored["notices"]), stored["notices_left_out"]) == (100, 150)
    assert all(len(each) < 1100 and "\x00" not in each for each in stored["notices"])


def test_values_are_returned_as_json() -> None:
    row = plain_row(
        "abcdefghijk",
        [
            None,
            True,
            2**60,
            1.5,
            float("nan"),
            Decimal("1.50"),
            date(2026, 1, 2),
            b"\xff",
            UUID(int=1),
            timedelta(1),
            {1},
        ],
    )
    assert list(row.values()) == [
        None, True, str(2**60), 1.5, "nan", "1.50", "2026-01-02", "\\xff", str(UUID(int=1)), "1 day, 0:00:00", [1],
    ]  # fmt: skip
    assert plain("x" * 9000) == "x" * LONGEST_TEXT + "…"
    nested: Any = 1
    for _ in range(100):
        nested = [nested]
    assert msgspec.json.encode(plain(nested))


@pytest.mark.slow
@given(
    st.recursive(JSON | st.binary(max_size=9) | st.floats() | st.decimals() | st.datetimes(), st.lists, max_leaves=9)
)
def test_anything_becomes_json(value: Any) -> None:
    assert msgspec.json.encode(plain(value))
