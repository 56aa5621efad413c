"""Equal failures have the same fingerprint, whatever ids they contain; every message has a fingerprint."""

import json
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno import Backoff, Dead, Retry
from sereno.error_text import Failure
from sereno.jobs.attempt import CrashedAttempt, Ending, ReleasedAttempt, Settlement, settlement
from sereno.jobs.fingerprint import DIGITS, KNOWN_BY, MESSAGE_LIMIT, NAME_LIMIT, failure, normalised

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


def of(ending: Ending, task: str = "work", **counts: int) -> Failure:
    found = failure(task, decided(ending, **counts))
    assert found is not None
    return found


def raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error) as caught:
        return caught


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@given(st.text() | st.sampled_from(HOSTILE), st.text())
def test_every_message_has_a_fingerprint(message: str, task: str) -> None:
    for ending in (ValueError(message), Dead(message), Retry(message), CrashedAttempt(message)):
        found = of(ending, task)
        assert len(found.fingerprint) == DIGITS
        assert set(found.fingerprint) <= set("0123456789abcdef")
        assert len(found.message) <= MESSAGE_LIMIT
        assert len(found.error_type) <= NAME_LIMIT
        assert found == of(ending, task)
        assert "\x00" not in json.dumps(found.message.encode().decode())
    assert len(normalised(message)) <= KNOWN_BY


def test_an_error_without_a_message_has_a_fingerprint() -> None:
    assert of(SilentError()).message == "(a SilentError that cannot be converted to text)"


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


@given(st.data(), st.text("abcdefgh ,.:()!\n", max_size=60), st.text("abcdefgh ,.()!\n", max_size=60))
def test_different_ids_have_the_same_fingerprint(data: st.DataObject, before: str, after: str) -> None:
    kind = data.draw(st.sampled_from(IDS))
    one, other = data.draw(kind), data.draw(kind)
    texts = [f"order {before} {each} {after}" for each in (one, other)]
    assert normalised(texts[0]) == normalised(texts[1])
    assert of(ValueError(texts[0])).fingerprint == of(ValueError(texts[1])).fingerprint


@pytest.mark.parametrize(
    ("message", "known_by"),
    [
        ("order 4711 of r42@shop.example", "order <id> of <mail>"),
        (
            "503 from https://api.shop.example/orders/77?x=1 (try 2)",
            "<id> from https://api.shop.example/<path> (try <id>)",
        ),
        ("can't find key 'abc'", "can't find key <text>"),
        ("no row\n\t with  id=-3.5", "no row with id=<id>"),
        (f"token {UUID(int=7)} of ORD-12ab", "token <id> of <id>"),
        ("connection reset by peer", "connection reset by peer"),
    ],
)
def test_a_message_is_normalised(message: str, known_by: str) -> None:
    assert normalised(message) == known_by


def test_different_failures_have_different_fingerprints() -> None:
    kinds = [
        of(ValueError("no luck")),
        of(KeyError("no luck")),
        of(ValueError("no money")),
        of(ValueError("no luck"), "other"),
        of(raised(ValueError("no luck"))),
        of(Dead("no luck")),
        of(CrashedAttempt("its process died")),
    ]
    assert len({kind.fingerprint for kind in kinds}) == len(kinds)


def test_a_retry_and_the_dead_letter_after_it_have_the_same_fingerprint() -> None:
    error = raised(OSError("connection reset"))
    assert decided(error).outcome == "retry"
    assert decided(error, failures=3).outcome == "dead"
    assert of(error) == of(error, failures=3)
    crash = CrashedAttempt("its process died (SIGKILL)")
    assert of(crash).fingerprint == of(crash, crashes=2).fingerprint


def test_outcomes_without_failure_have_no_fingerprint() -> None:
    assert failure("work", decided(None)) is None
    assert failure("work", decided(ReleasedAttempt("shutdown"))) is None
