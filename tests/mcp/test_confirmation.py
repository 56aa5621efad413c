"""A confirmation holds for one change, for a while, in one process."""

from sereno.mcp.confirmation import LASTS, Confirmations

CHANGE = {"token": "srn_a", "change": {"operation": "/jobs/retry", "ids": [1, 2], "total": 2}}


def test_a_confirmation_is_accepted_for_the_change_that_was_shown() -> None:
    now = 1000.0
    confirmations = Confirmations(lambda: now)
    value = confirmations.issue(CHANGE)
    assert confirmations.accepts(value, dict(reversed(CHANGE.items())))
    now += LASTS - 1
    assert confirmations.accepts(value, CHANGE)
    now += 1
    assert not confirmations.accepts(value, CHANGE)


def test_a_confirmation_is_refused_for_anything_else() -> None:
    confirmations = Confirmations(lambda: 1000.0)
    value = confirmations.issue(CHANGE)
    _, until, signature = value.split("-")
    assert not Confirmations(lambda: 1000.0).accepts(value, CHANGE), "of another process"
    for change in (
        {**CHANGE, "token": "srn_b"},
        {**CHANGE, "change": {"operation": "/jobs/retry", "ids": [1, 2], "total": 1}},
        {**CHANGE, "change": {"operation": "/jobs/cancel", "ids": [1, 2], "total": 2}},
        {},
    ):
        assert not confirmations.accepts(value, change), change
    for other in (
        f"confirm-{int(until) + 1}-{signature}",
        f"confirm-{until}-{'0' * 40}",
        f"confirm-{until}-{signature}\n",
        "yes",
        "",
        f"confirm-{'9' * 400}-{signature}",
    ):
        assert not confirmations.accepts(other, CHANGE), other
