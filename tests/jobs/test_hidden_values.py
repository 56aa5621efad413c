"""Values of encrypted arguments are found in a text however they are written, and however it was cut."""

import pytest

from sereno.error_text import describe
from sereno.jobs.attempt import Settlement
from sereno.jobs.hidden_values import HIDDEN, SHORTEST_SECRET, HiddenValues

VALUE = "correct horse battery staple"


def test_texts_and_numbers_inside_of_a_value_are_hidden() -> None:
    hidden = HiddenValues([{"card": 41111111, "names": ["Grace Hopper"], "ok": True, "none": None, "short": "abc"}])
    assert hidden.without("Grace Hopper paid with 41111111: True None abc") == (
        f"{HIDDEN} paid with {HIDDEN}: True None abc"
    )


def test_a_value_that_contains_another_is_hidden_as_a_whole() -> None:
    assert HiddenValues([VALUE, "horse"]).without(f"<{VALUE}> horse") == f"<{HIDDEN}> {HIDDEN}"


def _refuse(message: str) -> None:
    raise ValueError(message)


def test_a_value_that_was_cut_is_hidden() -> None:
    long = "".join(f"{number:05}" for number in range(4000))
    hidden = HiddenValues([long])
    with pytest.raises(ValueError, match="refused") as raised:
        _refuse(f"refused: {long} for good")
    found = describe(raised.value)
    decision = Settlement("dead", reason=found.message, error=found)
    hidden.hide(decision)
    assert decision.reason == f"refused: {HIDDEN}"
    assert decision.error is not None
    assert decision.error.message == f"refused: {HIDDEN}"
    assert decision.error.traceback == f"{HIDDEN} for good\n"


def test_no_cut_shows_a_part_of_a_value() -> None:
    hidden = HiddenValues([VALUE])
    parts = [VALUE[at : at + SHORTEST_SECRET] for at in range(len(VALUE) - SHORTEST_SECRET + 1)]
    whole = f"why: {VALUE}, so"
    first, last = whole.index(VALUE), whole.index(VALUE) + len(VALUE)
    shown = [
        whole[start:end]
        for start in range(len(whole))
        for end in range(start, len(whole) + 1)
        # A text that is cut at both sides inside of the value has neither of its ends.
        if not (start > first and end < last) and any(part in hidden.without(whole[start:end]) for part in parts)
    ]
    assert shown == []
