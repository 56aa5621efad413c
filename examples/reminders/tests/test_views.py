"""The tables of the original design as views, and the counts of each run."""

from collections.abc import Callable

import pytest
from reminders.app import app, status
from reminders.stand_ins import NO_MAILBOX, StandIns
from reminders.tests.clients import sql

from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

Remind = Callable[..., int]


def test_reminders_are_listed_by_status(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    """OVERDUE is both: due and not found yet, and found but not delivered."""
    app.recipients.upsert("bob", {"email": NO_MAILBOX})
    sent, failed, planned = remind(), remind("bob"), remind(due="1 day")
    kit.travel("5m")
    kit.drain()
    late = remind()
    by_status = sql(
        "select status, array_agg(reminder_id order by reminder_id) from reminders.reminder_status group by status"
    )
    assert dict(by_status) == {"PENDING": [planned], "SENT": [sent], "OVERDUE": [failed, late]}
    listed = sql("select reminder_id, channel from reminders.reminder_status where status = 'SENT'")
    assert listed == [(sent, "EMAIL")]
    assert [status(number) for number in (planned, sent, failed)] == ["PENDING", "SENT", "OVERDUE"]
    assert status(0) is None


def test_deliveries_are_rows_in_the_words_of_the_original_design(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    number = remind()
    kit.travel("5m")
    kit.drain()
    (row,) = sql(
        """select channel, status, attempts, last_error, next_attempt_at, sent_at is not null, idempotency_key
           from reminders.reminder_deliveries where reminder_id = %s""",
        str(number),
    )
    assert row[:6] == ("EMAIL", "SENT", 1, None, None, True)
    assert row[6].startswith(f"{number}:EMAIL:2")
    assert sql("table reminders.notification_deliveries") == sql("table reminders.reminder_deliveries")


def test_every_run_of_the_search_has_its_counts(kit: Kit, stand_ins: StandIns, remind: Remind) -> None:
    for channel in ("email", "in_app", "fax"):
        remind(channel=channel)
    for _ in range(2):
        kit.travel("5m")
        kit.drain()
    runs = sql("select result from sereno.jobs_v1 where task = 'reminders.find' order by id")
    assert [row[0] for row in runs] == [{"found": 3, "to_inbox": 1}, {"found": 0, "to_inbox": 0}]
