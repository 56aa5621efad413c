"""Preferences: which row decides, and the decision."""

from datetime import timedelta
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno.errors import InvalidArguments
from sereno.notifications.recipients.preference import (
    Preference,
    PreferenceChoice,
    PreferenceDecision,
    decide,
    resolve,
    specificity,
)
from sereno.notifications.recipients.quiet_hours import QuietHours

NIGHT = QuietHours("22:00", "08:00")
NOON = QuietHours("12:00", "13:00")


def row(names: str = "", **aspects: Any) -> Preference:
    """r: of a recipient; e, c, h: for the event, its category, the channel."""
    given = {"r": ("recipient", "user:7"), "e": ("event", "paid"), "c": ("category", "money"), "h": ("channel", "sms")}
    fields: dict[str, Any] = dict(given[letter] for letter in names)
    return Preference(tenant="t", **fields, **aspects)


def chosen(*rows: Preference) -> PreferenceChoice:
    return resolve(rows, category="money", event="paid", channel="sms")


# From the least specific to the most.
ORDER = ["", "h", "c", "ch", "e", "eh", "ec", "ech"]
LADDER = [*ORDER, *(f"r{names}" for names in ORDER)]


def test_every_combination_of_names_has_a_unique_specificity() -> None:
    numbers = [specificity(row(names)) for names in LADDER]
    assert numbers == sorted(set(numbers))
    assert (specificity(row("r")), specificity(row("e")), specificity(row("c")), specificity(row("h"))) == (
        100,
        20,
        10,
        1,
    )
    assert specificity(row("rech")) == 131


def test_the_more_specific_row_decides_in_any_order(subtests: pytest.Subtests) -> None:
    for low, high in [(a, b) for a, b in product(range(16), repeat=2) if a < b]:
        with subtests.test(low=low, high=high):
            off, on = row(LADDER[low], wanted=False), row(LADDER[high], wanted=True)
            for choice in (chosen(off, on), chosen(on, off)):
                assert choice.wanted is True
                assert choice.wanted_by is on


def test_each_aspect_is_decided_by_the_most_specific_row_that_sets_it() -> None:
    wanted, condition, quiet, digest = (
        row("rh", wanted=True),
        row("c", condition={"amount": {"min": 5}}),
        row("", quiet=[NIGHT]),
        row("re", digest=3600),
    )
    choice = chosen(wanted, condition, quiet, digest, row("rech"))
    assert (choice.wanted, choice.wanted_by) == (True, wanted)
    assert (choice.condition, choice.condition_by) == ({"amount": {"min": 5}}, condition)
    assert (choice.quiet, choice.quiet_by) == ((NIGHT,), quiet)
    assert (choice.digest, choice.digest_by) == (3600, digest)


def test_off_and_empty_values_are_values() -> None:
    default = row("e", wanted=True, condition={"a": 1}, quiet=[NIGHT, NOON], digest=60)
    choice = chosen(default, row("r", wanted=False, condition={}, quiet=[], digest=0))
    assert (choice.wanted, choice.condition, choice.quiet, choice.digest) == (False, {}, (), 0)


def test_a_row_for_another_scope_is_ignored() -> None:
    others = [Preference(event="lost", wanted=False), Preference(category="x", wanted=False)]
    others += [Preference(channel="email", wanted=False), Preference(event="paid", channel="email", wanted=False)]
    assert chosen(*others) == PreferenceChoice()
    assert resolve([row("c", wanted=False)], category=None, event="paid", channel="sms") == PreferenceChoice()
    assert chosen() == PreferenceChoice()


def test_of_two_rows_with_the_same_names_the_later_one_wins() -> None:
    assert chosen(row("r", wanted=True), row("r", wanted=False)).wanted is False


@pytest.mark.slow
@given(st.permutations(LADDER), st.lists(st.sampled_from([None, True, False]), min_size=16, max_size=16))
def test_the_highest_specificity_decides(names: list[str], wanted_values: list[bool | None]) -> None:
    rows = [row(each, wanted=wanted) for each, wanted in zip(names, wanted_values, strict=True)]
    speaking = [each for each in rows if each.wanted is not None]
    best = max(speaking, key=specificity, default=None)
    assert chosen(*rows).wanted_by is best


def test_events_are_wanted_by_default_unless_opt_in() -> None:
    assert decide(PreferenceChoice(), payload={}, critical=False) == PreferenceDecision()
    assert decide(PreferenceChoice(), payload={}, critical=False).wanted
    assert str(decide(PreferenceChoice(), payload={}, critical=False)) == "wanted"
    opt_in = decide(PreferenceChoice(), payload={}, critical=False, default_wanted=False)
    assert (opt_in.wanted, opt_in.reason, opt_in.by) == (False, "preference off", None)
    assert decide(chosen(row("r", wanted=True)), payload={}, critical=False, default_wanted=False).wanted


def test_a_preference_off_names_its_row() -> None:
    off = row("r", wanted=False, condition={"amount": 1})
    decision = decide(chosen(off), payload={"amount": 1}, critical=False)
    assert (decision.wanted, decision.reason, decision.by) == (False, "preference off", off)
    assert str(decision) == "skipped: preference off"


def test_a_condition_that_does_not_hold_names_its_row() -> None:
    picky = row("r", condition={"amount": {"min": 1000}}, quiet=[NIGHT])
    passed = decide(chosen(picky), payload={"amount": 1000}, critical=False)
    assert (passed.wanted, passed.by, passed.quiet) == (True, None, (NIGHT,))
    skipped = decide(chosen(picky), payload={"amount": 999}, critical=False)
    assert (skipped.wanted, skipped.reason, skipped.by, skipped.quiet) == (False, "condition", picky, ())
    assert str(skipped) == "skipped: condition"


def test_critical_events_ignore_preferences_and_quiet_hours() -> None:
    against = row("rech", wanted=False, condition={"amount": 1}, quiet=[NIGHT])
    assert decide(chosen(against), payload={}, critical=True, default_wanted=False) == PreferenceDecision()


def test_a_digest_is_given_as_any_duration() -> None:
    given: tuple[Any, ...] = (5400, 5400.0, "1h30m", timedelta(minutes=90))
    assert {Preference(digest=each).digest for each in given} == {5400.0}
    assert Preference(digest="7d").digest == 604800  # type: ignore[arg-type]  # as `prefer` passes it


def test_a_preference_can_be_encoded_and_decoded() -> None:
    given = row("re", wanted=False, condition={"a": [1, "x"]}, quiet=[NIGHT, NOON])
    text = msgspec.json.encode(given)
    assert msgspec.json.decode(text, type=Preference) == given
    assert b"category" not in text


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"event": ""}, "event '' must be text"),
    ({"channel": "a\x00"}, "channel 'a\\x00' must be text"),
    ({"recipient": 7}, "recipient 7 must be text"),
    ({"wanted": 1}, "wanted must be true, false or omitted"),
    ({"condition": {"a": {"mim": 1}}}, "use min, max, contains or exists"),
    ({"condition": "a"}, "a condition must be an object"),
    ({"quiet": [("22:00", "08:00")]}, "quiet hours are written"),
    ({"digest": "8d"}, "digest='8d': messages are collected for 7 days at most"),
    ({"digest": "soon"}, 'digest: "soon" is not a duration'),
    ({"digest": -1}, "digest: -1 is not a duration"),
    ({"digest": True}, "digest: True is not a duration"),
    ({"quiet": [QuietHours("00:00", "12:00"), QuietHours("12:00", "00:00")]}, "turn the preference off instead"),
]


def test_invalid_preferences_are_refused(subtests: pytest.Subtests) -> None:
    for fields, complaint in INVALID:
        with subtests.test(fields=fields, complaint=complaint):
            with pytest.raises(InvalidArguments) as refusal:
                Preference(**fields)
            assert complaint in str(refusal.value)
