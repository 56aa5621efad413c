"""Arguments are checked against the task's annotations before anything is written."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno import ConfigurationError, InvalidArguments
from sereno.jobs.arguments import Arguments

LIMIT = 1000
NAN, INFINITY = float("nan"), float("inf")


class Ctx:
    """Stands for the worker's context."""


def arguments_of(function: Callable[..., Any], *, each: bool = False) -> Arguments:
    return Arguments("work", function, context=Ctx, each=each)


def round_trip(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    arguments = arguments_of(function)
    return arguments.decode(arguments.encode(args, kwargs, LIMIT))


def refusal_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(InvalidArguments, match=r"^task work: ") as refusal:
        arguments_of(function).encode(args, kwargs, LIMIT)
    return str(refusal.value)


def plain(account: str, month: int, note: str | None = None) -> None: ...


def anything(value: Any) -> None: ...


def optional(value: float | None = None) -> None: ...


def typed(value: float) -> None: ...


def untyped(value) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001 - the point


def test_arguments_are_stored_as_one_object_keyed_by_name() -> None:
    assert arguments_of(plain).encode(("r42",), {"month": 7}, LIMIT) == b'{"account":"r42","month":7}'
    assert round_trip(plain, "r42", month=7) == ("r42", 7, None)


def test_a_missing_and_an_extra_argument_are_refused_by_name(subtests: pytest.Subtests) -> None:
    for args, kwargs, reason in [
        (("r42",), {}, "missing a required argument: 'month'"),
        ((), {}, "account"),
        (("r42", 7, "n", 9), {}, "too many positional arguments"),
        (("r42", 7), {"colour": "red"}, "unexpected keyword argument 'colour'"),
        (("r42", 7), {"account": "r43"}, "multiple values"),
    ]:
        with subtests.test(args=args, kwargs=kwargs):
            message = refusal_of(plain, *args, **kwargs)
            assert reason in message
            assert "it takes (account, month, note)" in message


def test_a_wrong_type_is_refused(subtests: pytest.Subtests) -> None:
    for wrong in [(1, 7), ("r42", "7"), ("r42", 7.5), ("r42", None), ("r42", 7, 8)]:
        with subtests.test(wrong=wrong):
            assert "Expected" in refusal_of(plain, *wrong)


@dataclass
class Point:
    x: float | None = None
    more: Any = None


NESTINGS: list[Callable[[Any], Any]] = [
    lambda bad: bad,
    lambda bad: [bad],
    lambda bad: {"a": {"b": [1, bad]}},
    lambda bad: (1, (bad,)),
    lambda bad: Point(more=bad),
    lambda bad: Point(more=[Point(more={"deep": bad})]),
]


def test_nan_and_infinity_are_refused_at_any_depth(subtests: pytest.Subtests) -> None:
    for bad in [NAN, INFINITY, -INFINITY]:
        for nest in range(len(NESTINGS)):
            with subtests.test(bad=bad, nest=nest):
                assert "NaN and infinity" in refusal_of(anything, NESTINGS[nest](bad))
                assert "NaN and infinity" in refusal_of(untyped, NESTINGS[nest](bad))


def test_nan_is_refused_for_an_optional_number(subtests: pytest.Subtests) -> None:
    for function in [optional, typed]:
        with subtests.test(function=function):
            assert "NaN and infinity" in refusal_of(function, NAN)


def test_nan_is_refused_in_a_typed_field() -> None:
    def work(point: Point, points: dict[str, Point]) -> None: ...

    assert "NaN and infinity" in refusal_of(work, Point(x=NAN), {})
    assert "NaN and infinity" in refusal_of(work, Point(), {"a": Point(x=-INFINITY)})


def test_none_is_accepted_where_nan_is_refused() -> None:
    assert round_trip(optional, None) == (None,)
    assert round_trip(anything, {"a": [None, "null"]}) == ({"a": [None, "null"]},)


def test_text_that_postgresql_cannot_store_is_refused_at_any_depth(subtests: pytest.Subtests) -> None:
    for nest in range(4):
        for bad, reason in [("a\x00", "NUL byte"), ("\ud800", "surrogate")]:
            with subtests.test(nest=nest, bad=bad, reason=reason):
                assert reason in refusal_of(anything, NESTINGS[nest](bad))
                assert reason in refusal_of(anything, {bad: 1})


def test_text_that_only_looks_like_nul_is_accepted() -> None:
    assert round_trip(anything, "\\u0000") == ("\\u0000",)


def test_arguments_over_the_size_limit_are_refused_with_both_sizes() -> None:
    assert "1,002 bytes of arguments, the limit is 1,000" in refusal_of(anything, "x" * (1002 - len('{"value":""}')))
    assert round_trip(anything, "x" * (1000 - len('{"value":""}')))


def test_a_value_without_a_json_form_is_refused(subtests: pytest.Subtests) -> None:
    for value in [object(), lambda: None, 1j]:
        with subtests.test(value=value):
            refusal_of(anything, value)


def test_a_cyclic_value_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    refusal_of(anything, ring)


def test_arguments_given_as_json_get_the_same_checks() -> None:
    arguments = arguments_of(plain)
    assert arguments.encode_json(b'{"month": 7, "account": "r42"}', LIMIT) == b'{"account":"r42","month":7}'
    for wrong in (b"", b"[]", b'"x"', b"{", b"\xff", b'{"account": "r42"}', b'{"account": "r42", "month": 7, "x": 1}',
                  b'{"account": "a\\u0000", "month": 7}', b'{"account": "\\ud800", "month": 7}'):  # fmt: skip
        with pytest.raises(InvalidArguments):
            arguments.encode_json(wrong, LIMIT)


def test_stored_arguments_that_no_longer_match_are_refused_when_decoded() -> None:
    for stored in (b'{"account": "r"}', b'{"account": "r", "month": "x"}', b'{"account": "r", "month": 1, "old": 1}'):
        with pytest.raises(InvalidArguments, match="task work"):
            arguments_of(plain).decode(stored)


texts = st.text(st.characters(), max_size=5)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def is_storable(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case str():
            return "\x00" not in value and not any("\ud800" <= character <= "\udfff" for character in value)
        case list():
            return all(map(is_storable, value))
        case dict():
            return all(map(is_storable, [*value, *value.values()]))
        case _:
            return True


@pytest.mark.slow
@given(json_values)
def test_any_value_round_trips_or_is_refused(value: Any) -> None:
    arguments = arguments_of(anything)
    try:
        raw = arguments.encode((value,), {}, 10_000)
    except InvalidArguments:
        assert not is_storable(value)
    else:
        assert is_storable(value)
        assert arguments.decode(raw) == (value,)


# Calls of the function


def test_the_context_is_passed_at_any_position() -> None:
    def first(ctx: Ctx, a: int, b: int) -> Any:
        return ctx, a, b

    def middle(a: int, ctx: Ctx, b: int) -> Any:
        return ctx, a, b

    def last(a: int, b: int, ctx: Ctx) -> Any:
        return ctx, a, b

    def named(a: int, b: int, *, ctx: Ctx) -> Any:
        return ctx, a, b

    def all_named(*, ctx: Ctx, a: int, b: int = 2) -> Any:
        return ctx, a, b

    def named_after(ctx: Ctx, a: int, *, b: int = 2) -> Any:
        return ctx, a, b

    context = Ctx()
    for function in (first, middle, last, named, all_named, named_after):
        arguments = arguments_of(function)
        assert (arguments.context_name, arguments.names) == ("ctx", ("a", "b"))
        values = arguments.decode(arguments.encode((), {"a": 1, "b": 2}, LIMIT))
        assert arguments.call(function, values, context) == (context, 1, 2)


def test_defaults_are_applied_when_the_job_runs_and_never_shared() -> None:
    def work(a: int = 1, seen: list[int] = [], *, deep: Point = Point(x=2)) -> Any:  # noqa: B006, B008 - the point
        seen.append(a)
        return a, seen, deep

    arguments = arguments_of(work)
    raw = arguments.encode((), {}, LIMIT)
    assert raw == b"{}"
    for _ in range(2):
        assert arguments.call(work, arguments.decode(raw), None) == (1, [1], Point(x=2))


def test_a_batch_task_takes_one_item_of_its_list() -> None:
    def work(ctx: Ctx, items: list[Point]) -> Any:
        return items

    arguments = arguments_of(work, each=True)
    assert arguments.names == ("item",)
    (value,) = arguments.decode(arguments.encode((Point(x=1),), {}, LIMIT))
    assert arguments.call(work, ([value, value],), Ctx()) == [Point(x=1), Point(x=1)]


def test_a_batch_task_may_name_its_list() -> None:
    def work(*, items: list[int]) -> Any:
        return items

    assert arguments_of(work, each=True).call(work, ([1, 2],), None) == [1, 2]


def ambiguous_union(value: Point | msgspec.Struct) -> None: ...


@dataclass
class Other:
    y: int = field(default=0)


def two_classes(value: Point | Other) -> None: ...


def with_args(*values: int) -> None: ...


def with_kwargs(**values: int) -> None: ...


def positional_only(value: int, /) -> None: ...


def unresolved(value: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821 - the point


def test_a_signature_that_cannot_be_stored_is_refused_when_it_is_declared(subtests: pytest.Subtests) -> None:
    functions: list[Callable[..., None]] = [
        ambiguous_union,
        two_classes,
        with_args,
        with_kwargs,
        positional_only,
        unresolved,
    ]
    for function in functions:
        with subtests.test(function=function), pytest.raises(ConfigurationError):
            arguments_of(function)


def test_a_batch_task_that_takes_no_list_is_refused(subtests: pytest.Subtests) -> None:
    functions: list[Callable[..., None]] = [plain, anything, with_args]
    for function in functions:
        with subtests.test(function=function), pytest.raises(ConfigurationError):
            arguments_of(function, each=True)
