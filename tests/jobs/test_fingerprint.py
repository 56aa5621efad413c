"""Equal failures have the same fingerprint despite different ids; every message has a fingerprint."""

import json
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno import Backoff, Dead, Retry
from sereno.error_text import FailureText
from sereno.jobs.attempt import CrashedAttempt, Ending, ReleasedAttempt, Settlement, settlement
from sereno.jobs.fingerprint import DIGITS, HASHED_LIMIT, MESSAGE_LIMIT, NAME_LIMIT, failure, normalised

HOSTILE = [
    "",
    "\x00" * 50,
    "\ud800\udfff",
    "x" * 1_000_000,
    "1," * 500_000,
    "a-1@" * 250_000,
    "\x1b[2J\x1b]0;owned\x07",
    "<script>alert('x')</script>",
    "'" * 10_000,
    "http://" * 10_000,
    "\N{RIGHT-TO-LEFT OVERRIDE}%(name)s {braces} \\",
]


def decided(ending: Ending, failures: int = 0, crashes: int = 0) -> Settlement:
    return settlement(ending, failures=failures, crashes=crashes, policy=Backoff(3), chance=Random(1))


def failure_of(ending: Ending, task: str = "work", **counts: int) -> FailureText:
    found = failure(task, decided(ending, **counts))
    assert found is not None
    return found


def raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error) as caught:
        return caught


class TextlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.slow
@given(st.text() | st.sampled_from(HOSTILE), st.text())
def test_every_message_has_a_fingerprint(message: str, task: str) -> None:
    for ending in (ValueError(message), Dead(message), Retry(message), CrashedAttempt(message)):
        found = failure_of(ending, task)
        assert len(found.fingerprint) == DIGITS
        assert set(found.fingerprint) <= set("0123456789abcdef")
        assert len(found.message) <= MESSAGE_LIMIT
        assert len(found.error_type) <= NAME_LIMIT
        assert found == failure_of(ending, task)
        assert "\x00" not in json.dumps(found.message.encode().decode())
    assert len(normalised(message)) <= HASHED_LIMIT


def test_an_error_without_a_message_has_a_fingerprint() -> None:
    assert failure_of(TextlessError()).message == "(a TextlessError that cannot be converted to text)"


IDS = (
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: f"{number:.3f}"),
    st.uuids().map(str),
    st.uuids().map(lambda number: number.hex),
    st.integers(0, 2**64).map(hex),
    st.text("abcxyz", min_size=1, max_size=30).map(lambda text: f"'{text}'"),
    st.text("abc _.-", max_size=30).map(lambda text: f'"{text}"'),
    st.from_regex(r"\A[a-z]{1,20}(\.[a-z]{1,9})?@[a-z]{1,20}\.[a-z]{2,6}\Z"),
)


@pytest.mark.slow
@given(st.data(), st.text("abcdefgh ,.:()!\n", max_size=60), st.text("abcdefgh ,.()!\n", max_size=60))
def test_messages_that_differ_in_ids_have_the_same_fingerprint(data: st.DataObject, before: str, after: str) -> None:
    kind = data.draw(st.sampled_from(IDS))
    first, second = data.draw(kind), data.draw(kind)
    texts = [f"order {before} {each} {after}" for each in (first, second)]
    assert normalised(texts[0]) == normalised(texts[1])
    assert failure_of(ValueError(texts[0])).fingerprint == failure_of(ValueError(texts[1])).fingerprint


def test_a_message_is_normalised(subtests: pytest.Subtests) -> None:
    for message, expected in [
        ("order 4711 of r42@shop.example", "order <id> of <mail>"),
        (
            "503 from https://api.shop.example/orders/77?x=1 (try 2)",
            "<id> from https://api.shop.example/<path> (try <id>)",
        ),
        ("can't find key 'abc'", "can't find key <text>"),
        ("no row\n\t with  id=-3.5", "no row with id=<id>"),
        (f"token {UUID(int=7)} of ORD-12ab", "token <id> of <id>"),
        ("connection reset by peer", "connection reset by peer"),
    ]:
        with subtests.test(message=message):
            assert normalised(message) == expected


def test_different_failures_have_different_fingerprints() -> None:
    kinds = [
        failure_of(ValueError("no luck")),
        failure_of(KeyError("no luck")),
        failure_of(ValueError("no money")),
        failure_of(ValueError("no luck"), "other"),
        failure_of(raised(ValueError("no luck"))),
        failure_of(Dead("no luck")),
        failure_of(CrashedAttempt("its process died")),
    ]
    assert len({kind.fingerprint for kind in kinds}) == len(kinds)


def test_a_retry_and_the_dead_letter_after_it_have_the_same_fingerprint() -> None:
    error = raised(OSError("connection reset"))
    assert decided(error).outcome == "retry"
    assert decided(error, failures=3).outcome == "dead"
    assert failure_of(error) == failure_of(error, failures=3)
    crash = CrashedAttempt("its process died (SIGKILL)")
    assert failure_of(crash).fingerprint == failure_of(crash, crashes=2).fingerprint


def test_outcomes_without_failure_have_no_fingerprint() -> None:
    assert failure("work", decided(None)) is None
    assert failure("work", decided(ReleasedAttempt("shutdown"))) is None
