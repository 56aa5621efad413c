"""Choices of a recipient: what is shown, and the rows that a change needs. The rows decide as `resolve` reads them."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from sereno.errors import InvalidArguments
from sereno.notifications.recipients.message_kind import MessageKind
from sereno.notifications.recipients.preference import Preference
from sereno.notifications.recipients.preference_choices import ChoiceChange, lines, rows_for

EMAIL, PUSH = "email", "expo"
KINDS = [
    MessageKind(name="tender.published", channels=[EMAIL, PUSH], category="tenders"),
    MessageKind(name="tender.closed", channels=[EMAIL], category="tenders"),
    MessageKind(name="alarm", channels=[EMAIL, PUSH], category="tenders", critical=True),
    MessageKind(name="newsletter", channels=[EMAIL], opt_in=True),
    MessageKind(name="login", channels=[EMAIL], category="security", critical=True),
]
CHANNELS = [EMAIL, PUSH]


def own(wanted: bool | None, **scope: Any) -> Preference:
    return Preference(recipient="ada", wanted=wanted, **scope)


def default(wanted: bool, **scope: Any) -> Preference:
    return Preference(wanted=wanted, **scope)


def shown(rows: Sequence[Preference]) -> dict[str, str]:
    """Return each line with a letter for each channel: + wanted, - not, ! fixed, ~ mixed, ? under a condition."""
    return {
        line.event or line.category or "*": " ".join(
            f"{'!' if cell.is_fixed else '~' if cell.is_mixed else '?' if cell.is_limited else ''}"
            f"{'+' if cell.wanted else '-'}{cell.channel}"
            for cell in line.channels
        )
        for line in lines(rows, KINDS, CHANNELS)
    }


def applied(rows: Sequence[Preference], *changes: ChoiceChange) -> list[Preference]:
    """Return the rows after the changes, as the store would hold them."""
    found = {(row.recipient, row.category, row.event, row.channel): row for row in rows}
    for row in rows_for("ada", rows, KINDS, CHANNELS, changes):
        found[(row.recipient, row.category, row.event, row.channel)] = row
    return [row for row in found.values() if row.wanted is not None or row.condition is not None]


def test_the_lines_show_what_the_rows_decide(subtests: pytest.Subtests) -> None:
    none = {
        "*": "+email +expo",
        "security": "!+email",
        "login": "!+email",
        "tenders": "+email +expo",
        "alarm": "!+email !+expo",
        "tender.closed": "+email",
        "tender.published": "+email +expo",
        "newsletter": "-email",
    }
    table: list[tuple[list[Preference], dict[str, str]]] = [
        ([], {}),
        (
            [own(False, category="tenders", channel=EMAIL)],
            # Critical ones are sent regardless.
            {"tenders": "-email +expo", "tender.closed": "-email", "tender.published": "-email +expo"},
        ),
        (
            [own(False, event="tender.closed")],
            {"tenders": "~+email +expo", "tender.closed": "-email"},
        ),
        (
            [default(False, channel=EMAIL)],
            # Nothing of their own to clear, so everything cannot be turned on as a whole.
            {"*": "+expo", "tenders": "-email +expo", "tender.closed": "-email", "tender.published": "-email +expo"},
        ),
        (
            [own(False)],
            {
                "*": "-email -expo",
                "tenders": "-email -expo",
                "tender.closed": "-email",
                "tender.published": "-email -expo",
            },
        ),
        ([own(True, event="newsletter", channel=EMAIL)], {"newsletter": "+email"}),
        (
            [Preference(recipient="ada", event="tender.closed", condition={"region": "RM"})],
            {"tenders": "?+email +expo", "tender.closed": "?+email"},
        ),
    ]
    for rows, changed in table:
        with subtests.test(rows=rows):
            found = shown(rows)
            assert found == none | changed
            assert list(found) == list(none)
    assert lines([], KINDS, []) == []


def test_a_change_is_what_the_lines_show_afterwards(subtests: pytest.Subtests) -> None:
    """Whatever rows there are: of any scope, of the recipient and as defaults."""
    scopes = list(itertools.product((None, "tenders"), (None, "tender.published"), (None, EMAIL)))
    singles = [make(wanted, scope) for scope in scopes for wanted in (True, False) for make in (_own, _default)]
    changes = [
        ChoiceChange(channel=EMAIL, wanted=wanted, category="tenders", event=event)
        for wanted in (True, False)
        for event in (None, "tender.published")
    ]
    for rows in itertools.combinations(singles, 2):
        for change in changes:
            after = lines(applied(rows, change), KINDS, CHANNELS)
            before = {
                (line.event, cell.channel): cell.wanted
                for line in lines(rows, KINDS, CHANNELS)
                for cell in line.channels
            }
            wrong = []
            for line in after:
                for cell in line.channels:
                    if line.event is None or cell.is_fixed:
                        continue
                    is_meant = (
                        cell.channel == EMAIL and line.category == "tenders" and change.event in (None, line.event)
                    )
                    if cell.wanted != (change.wanted if is_meant else before[(line.event, cell.channel)]):
                        wrong.append((line.event, cell.channel))
            with subtests.test(rows=rows, change=change):
                assert wrong == []


def _own(wanted: bool, scope: tuple[str | None, ...]) -> Preference:
    return own(wanted, category=scope[0], event=scope[1], channel=scope[2])


def _default(wanted: bool, scope: tuple[str | None, ...]) -> Preference:
    return default(wanted, category=scope[0], event=scope[1], channel=scope[2])


def test_everything_on_a_channel_is_turned_off_and_on_without_an_opt_in() -> None:
    rows = [own(True, event="newsletter", channel=EMAIL), own(True, category="tenders"), own(True, category="gone")]
    off = applied(rows, ChoiceChange(channel=EMAIL, wanted=False))
    found = shown(off)
    assert found["*"] == "-email +expo"
    assert (found["tender.published"], found["tender.closed"], found["newsletter"]) == (
        "-email +expo",
        "-email",
        "-email",
    )
    assert own(False, category="gone", channel=EMAIL) in off, "an event type that no code declares may come back"
    on = applied(off, ChoiceChange(channel=EMAIL, wanted=True))
    assert shown(on)["*"] == "+email +expo"
    assert shown(on)["newsletter"] == "-email"
    assert own(True, channel=EMAIL) not in on


def test_one_channel_of_a_row_about_all_channels_is_turned_on() -> None:
    after = applied([own(False)], ChoiceChange(channel=EMAIL, wanted=True))
    assert after == [own(False, channel=PUSH)]
    assert shown(after)["*"] == "+email -expo"


def test_a_choice_that_is_not_shown_is_refused(subtests: pytest.Subtests) -> None:
    for change in (
        ChoiceChange(channel="sms", wanted=True),
        ChoiceChange(channel=EMAIL, wanted=True, category="gone"),
        ChoiceChange(channel=EMAIL, wanted=True, category="security"),
        ChoiceChange(channel=EMAIL, wanted=False, category="security", event="login"),
        ChoiceChange(channel=EMAIL, wanted=False, category="offers", event="tender.closed"),
        ChoiceChange(channel=PUSH, wanted=False, event="newsletter"),
    ):
        with subtests.test(change=change), pytest.raises(InvalidArguments):
            rows_for("ada", [], KINDS, CHANNELS, [change])


def test_the_lines_are_bounded() -> None:
    kinds = [MessageKind(name=f"event{number}", channels=[EMAIL]) for number in range(500)]
    assert len(lines([], kinds, [EMAIL])) == 101
