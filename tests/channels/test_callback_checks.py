"""Secrets, ages and ids of callbacks."""

from datetime import UTC, datetime
from typing import Any

import pytest

from sereno.channels.callback_checks import CLOCK_SKEW, check_age, is_secret, receipts
from sereno.errors import RejectedCallback

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = int(NOW.timestamp())


def test_an_empty_secret_matches_nothing(subtests: pytest.Subtests) -> None:
    cases = [("a", "a", True), ("é\ud800", "é\ud800", True), ("a", "b", False), ("", "", False), ("", "a", False)]
    for received, expected, is_equal in cases:
        with subtests.test(received=received, expected=expected):
            assert is_secret(received, expected) is is_equal


def test_a_timestamp_is_a_recent_number_of_seconds(subtests: pytest.Subtests) -> None:
    for valid in (SECONDS, str(SECONDS), SECONDS - 60, SECONDS + int(CLOCK_SKEW)):
        with subtests.test(timestamp=valid):
            check_age(valid, NOW, 60.0)
    invalid: list[Any] = [SECONDS - 61, SECONDS + 301, -1, "", "soon", "1e9", "9" * 5000, "١٢", None, True, 1.5, [], {}]
    for timestamp in invalid:
        with subtests.test(timestamp=timestamp), pytest.raises(RejectedCallback):
            check_age(timestamp, NOW, 60.0)


def test_a_message_without_a_valid_id_has_no_receipts(subtests: pytest.Subtests) -> None:
    names: list[Any] = [None, "", 5, "a b", "a\nb", "\0", "a" * 301, ["a"], {}]
    for name in names:
        with subtests.test(name=name):
            assert receipts(name, "delivered") == []
    (receipt,) = receipts("a1", "bounced", code=5, message="\ud800\0" + "x" * 1000)
    assert (receipt.code, len(receipt.message) <= 300, receipt.id) == ("", True, "a1.bounced")
