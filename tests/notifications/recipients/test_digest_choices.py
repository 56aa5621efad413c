"""The choice of a recipient about digests: what is shown, and the rows that a change needs."""

from collections.abc import Sequence
from typing import Any

import pytest

from sereno.errors import InvalidArguments
from sereno.notifications.recipients.digest_choices import (
    DigestChange,
    DigestChoice,
    collected_for,
    digest_choice,
    digest_rows,
)
from sereno.notifications.recipients.message_kind import MessageKind, digest_window
from sereno.notifications.recipients.preference import Preference
from sereno.notifications.recipients.preference_choices import lines

EMAIL, PUSH = "email", "expo"
CHANNELS = [EMAIL, PUSH]
HOUR, DAY = 3600.0, 86400.0
ADDED = MessageKind(name="added", channels=CHANNELS, category="comments", digest=digest_window(900, None, []))
LIKED = MessageKind(name="liked", channels=[EMAIL], category="comments", digest=digest_window(DAY, None, []))
KINDS = [
    ADDED,
    LIKED,
    MessageKind(name="deleted", channels=[EMAIL], category="comments"),
    MessageKind(name="alarm", channels=[EMAIL], category="alarms", critical=True, digest=digest_window(60, None, [])),
    MessageKind(name="news", channels=[PUSH], digest=digest_window(HOUR, None, [])),
    MessageKind(name="login", channels=[EMAIL]),
]


def own(digest: float | None, **scope: Any) -> Preference:
    return Preference(recipient="ada", digest=digest, **scope)


def choice(chosen: float | None, *usual: float, mixed: bool = False) -> DigestChoice:
    return DigestChoice(chosen=chosen, is_mixed=mixed, usual=list(usual))


def shown(rows: Sequence[Preference], channels: Sequence[str] = CHANNELS) -> dict[str, DigestChoice]:
    found = lines(rows, KINDS, channels)
    return {line.event or line.category or "*": line.digest_choice for line in found if line.digest_choice}


def applied(rows: Sequence[Preference], change: DigestChange) -> list[Preference]:
    """Return the rows after a change, as the store would hold them."""
    written = digest_rows("ada", rows, KINDS, CHANNELS, [change])
    scopes = {(row.category, row.event, row.channel) for row in written}
    kept = [row for row in rows if row.recipient is None or (row.category, row.event, row.channel) not in scopes]
    return [*kept, *(row for row in written if row.digest is not None)]


def test_a_category_and_an_event_type_without_one_have_a_choice(subtests: pytest.Subtests) -> None:
    usual = {"comments": choice(None, 900, DAY), "news": choice(None, HOUR)}
    table: list[tuple[list[Preference], dict[str, DigestChoice]]] = [
        ([], {}),
        ([own(HOUR, category="comments")], {"comments": choice(HOUR, 900, DAY)}),
        ([own(0, category="comments")], {"comments": choice(0, 900, DAY)}),
        ([own(HOUR, event="added")], {"comments": choice(None, 900, DAY, mixed=True)}),
        ([own(HOUR, category="comments", channel=PUSH)], {"comments": choice(None, 900, DAY, mixed=True)}),
        ([own(HOUR, event="news")], {"news": choice(HOUR, HOUR)}),
        # What applies without a choice for this category: a row of their own for everything, or a default.
        ([own(60)], {"comments": choice(None, 60), "news": choice(None, 60)}),
        ([Preference(digest=0, category="comments")], {"comments": choice(None, 0)}),
        ([Preference(digest=0, channel=EMAIL)], {"comments": choice(None, 0, 900)}),
        ([own(HOUR, category="alarms"), own(HOUR, event="login")], {}),
    ]
    for rows, changed in table:
        with subtests.test(rows=rows):
            assert shown(rows) == usual | changed
    assert shown([], [EMAIL]) == {"comments": choice(None, 900, DAY)}
    assert shown([], []) == {}
    assert digest_choice([], [KINDS[2]], CHANNELS) is None


def test_a_change_replaces_narrower_rows_and_nothing_else(subtests: pytest.Subtests) -> None:
    others = [own(60), own(60, event="news"), Preference(digest=60, category="comments", channel=EMAIL)]
    narrow = [own(60, category="comments", channel=PUSH), own(60, event="added"), own(60, event="liked", channel=EMAIL)]
    for digest in (0.0, HOUR, None):
        with subtests.test(digest=digest):
            after = applied([*others, *narrow], DigestChange(category="comments", digest=digest))
            assert after == [*others, *([] if digest is None else [own(digest, category="comments")])]
            times = {time for kind in (ADDED, LIKED) for time in collected_for(after, kind, CHANNELS)}
            assert times == {60 if digest is None else digest}
    after = applied([*others, *narrow], DigestChange(event="news", digest=DAY))
    assert after == [others[0], *others[2:], *narrow, own(DAY, event="news")]


def test_a_choice_that_is_not_shown_is_refused(subtests: pytest.Subtests) -> None:
    for change in (
        DigestChange(digest=0),
        DigestChange(digest=0, category="gone"),
        DigestChange(digest=0, category="alarms"),
        DigestChange(digest=0, event="login"),
        DigestChange(digest=0, event="added"),
        DigestChange(digest=0, category="comments", event="added"),
    ):
        with subtests.test(change=change), pytest.raises(InvalidArguments, match="there is no digest of"):
            digest_rows("ada", [], KINDS, CHANNELS, [change])


def test_a_message_is_sent_before_it_expires_or_escalates(subtests: pytest.Subtests) -> None:
    table: list[tuple[float | None, list[float], float]] = [
        (None, [], DAY),
        (7200, [], HOUR),
        (7200, [1800], 900),
        (1000, [], 600),
    ]
    for ttl, after, seconds in table:
        kind = MessageKind(name="added", channels=[EMAIL], digest=digest_window(600, ttl, after))
        with subtests.test(ttl=ttl, after=after):
            assert collected_for([own(DAY)], kind, CHANNELS) == {seconds}
    assert digest_window(None, 7200, []) is None
