"""The administrative API: the list with filters and pages, and the requeue of failed and dead deliveries only."""

from collections.abc import Callable
from typing import Any, get_args

import pytest
from reminders.app import app, status
from reminders.stand_ins import BUSY, NO_MAILBOX, StandIns
from reminders.statuses import Status
from reminders.tests.clients import ApiClient, sql

from sereno.notifications.deliveries.delivery import TRANSITIONS
from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

Remind = Callable[..., int]
LIST = "/api/notification-deliveries"
# One delivery in each of the given states; the last one has been tried once.
INSERT = """
    insert into sereno.deliveries (event_id, recipient_id, channel, due_at, state, attempts)
    select event_id, recipient_id, 'c' || number, now(), state, (number = %s)::int
    from (select event_id, recipient_id from sereno.deliveries limit 1) as one,
         unnest(%s::text[]) with ordinality as each (state, number)
"""
# Deliveries that were sent since, of an event that was archived.
NEWER = """
    insert into sereno.deliveries (event_id, recipient_id, channel, due_at, sent_at, state)
    select 0, number, 'email', now(), now(), 'sent' from generate_series(1, 100_001) as number
"""


@pytest.fixture
def dead(kit: Kit, stand_ins: StandIns, remind: Remind) -> int:
    """The id of a reminder whose mail is a dead letter; the reminders of ana were sent."""
    app.recipients.upsert("eve", {"email": BUSY})
    number = remind("eve")
    for _ in range(3):
        remind()
    kit.travel("5m")
    kit.drain()
    while kit.deliveries(to="eve")[0].state == "pending":
        kit.travel_to_next()
        kit.drain()
    return number


def listed(api: ApiClient, query: str = "", role: str = "viewer") -> list[dict[str, Any]]:
    code, found = api("GET", f"{LIST}?{query}", role=role)
    assert code == 200, found
    items: list[dict[str, Any]] = found["items"]
    return items


@pytest.mark.quick
def test_the_list_has_the_filters_and_pages_of_the_original_design(api: ApiClient, dead: int) -> None:
    (line,) = listed(api, f"status=DEAD_LETTER&channel=EMAIL&reminderId={dead}")
    assert (line["reminderId"], line["channel"], line["status"], line["attempts"]) == (
        str(dead),
        "EMAIL",
        "DEAD_LETTER",
        5,
    )
    assert "451" in line["lastError"]
    assert line["idempotencyKey"].startswith(f"{dead}:EMAIL:")
    assert listed(api, f"status=SENT&reminderId={dead}") == listed(api, "channel=SMS") == []
    assert len(listed(api)) == 4

    pages = [api("GET", f"{LIST}?status=SENT&page={page}&pageSize=2")[1] for page in (1, 2, 3)]
    assert [(len(page["items"]), page["hasNext"], page["pageSize"]) for page in pages] == [
        (2, True, 2),
        (1, False, 2),
        (0, False, 2),
    ]
    ids = [line["id"] for page in pages for line in page["items"]]
    assert ids == sorted({*ids}, reverse=True)


def test_the_list_refuses_what_it_does_not_know(api: ApiClient, kit: Kit, subtests: pytest.Subtests) -> None:
    for query in ("status=dead", "channel=%00", "reminderId=x", "page=0", "pageSize=201", "page=101&pageSize=100"):
        with subtests.test(query=query):
            assert api("GET", f"{LIST}?{query}")[0] == 422
    assert api("GET", LIST, role="no token")[0] == 401
    assert api("POST", f"{LIST}/1/requeue", role="no token")[0] == 401


def test_failed_has_those_that_are_tried_again_and_those_that_are_not(
    kit: Kit, stand_ins: StandIns, api: ApiClient, remind: Remind
) -> None:
    app.recipients.upsert("eve", {"email": BUSY})
    app.recipients.upsert("bob", {"email": NO_MAILBOX})
    waiting, refused = remind("eve"), remind("bob")
    kit.travel("5m")
    kit.drain()
    found = {line["reminderId"]: line for line in listed(api, "status=FAILED")}
    assert found.keys() == {str(waiting), str(refused)}
    assert found[str(waiting)]["nextAttemptAt"] is not None
    assert found[str(refused)]["nextAttemptAt"] is None
    assert listed(api, "status=QUEUED") == []

    # What is tried again anyway is not queued a second time, as it would be sent twice.
    code, problem = api("POST", f"{LIST}/{found[str(waiting)]['id']}/requeue")
    assert (code, "is queued already" in problem["detail"]) == (409, True)
    code, requeued = api("POST", f"{LIST}/{found[str(refused)]['id']}/requeue")
    assert (code, requeued["status"], requeued["attempts"]) == (200, "QUEUED", 0)


def test_a_requeued_dead_letter_arrives(kit: Kit, stand_ins: StandIns, api: ApiClient, dead: int) -> None:
    """From DEAD_LETTER to QUEUED to SENT, with an entry in the audit log."""
    (letter,) = listed(api, "status=DEAD_LETTER")
    assert status(dead) == "OVERDUE"
    stand_ins.mails.busy.clear()
    code, requeued = api("POST", f"{LIST}/{letter['id']}/requeue")
    assert (code, requeued["status"]) == (200, "QUEUED")
    kit.drain()
    assert [line["status"] for line in listed(api, f"reminderId={dead}")] == ["SENT"]
    assert status(dead) == "SENT"
    assert [mail.recipients[0] for mail in stand_ins.mails.mails].count(BUSY) == 1
    audited = sql("select actor, action, subject from sereno.audit where action like 'delivery.%%'")
    assert audited == [("operator", "delivery.requeue", f"delivery {letter['id']}")]


def test_other_statuses_cannot_be_requeued(kit: Kit, api: ApiClient, dead: int, stand_ins: StandIns) -> None:
    sent = listed(api, "status=SENT")[0]["id"]
    code, problem = api("POST", f"{LIST}/{sent}/requeue")
    assert code == 409
    assert problem["detail"] == f"only FAILED and DEAD_LETTER can be requeued, and delivery {sent} is SENT"
    (letter,) = listed(api, "status=DEAD_LETTER")
    assert api("POST", f"{LIST}/{letter['id']}/requeue", role="viewer")[0] == 403
    assert api("POST", f"{LIST}/{letter['id']}/requeue")[0] == 200
    code, problem = api("POST", f"{LIST}/{letter['id']}/requeue")
    assert (code, problem["detail"].endswith(f"{letter['id']} is QUEUED")) == (409, True)
    assert api("POST", f"{LIST}/999999/requeue")[0] == 404
    kit.drain()
    assert len(stand_ins.mails.mails) == 3


def test_every_state_has_one_status_in_the_list_and_in_the_view(kit: Kit, api: ApiClient, dead: int) -> None:
    """The list asks sereno for states, the view names them: for each status both find the same deliveries."""
    states = [*TRANSITIONS, "pending"]
    sql(INSERT, len(states), states)
    found: list[int] = []
    for each in get_args(Status):
        ids = [line["id"] for line in listed(api, f"status={each}&pageSize=200")]
        view = sql("select id from reminders.notification_deliveries where status = %s order by id desc", each)
        assert ids == [row[0] for row in view], each
        assert ids, each
        found += ids
    assert sorted(found, reverse=True) == [line["id"] for line in listed(api, "pageSize=200")]
    assert len(found) == len(states) + 4
    sql("delete from sereno.deliveries where channel like 'c%%'")


def test_old_deliveries_are_found_below_a_hundred_thousand_newer_ones(kit: Kit, api: ApiClient, dead: int) -> None:
    """A dead letter, and all that a reminder has, however long ago that was."""
    (letter,) = listed(api, "status=DEAD_LETTER")
    sql(NEWER)
    assert listed(api, "status=DEAD_LETTER") == [letter]
    assert listed(api, f"reminderId={dead}") == [letter]
    assert listed(api, f"status=DEAD_LETTER&channel=EMAIL&reminderId={dead}") == [letter]
    sql("delete from sereno.deliveries where event_id = 0")


def test_viewers_see_no_addresses_in_errors_and_no_deliveries_of_other_programs(
    kit: Kit, api: ApiClient, dead: int
) -> None:
    sql("update sereno.deliveries set error_message = 'no mailbox eve@example.org' where state = 'dead'")
    (letter,) = listed(api, "status=DEAD_LETTER")
    assert "eve@" not in letter["lastError"]
    (letter,) = listed(api, "status=DEAD_LETTER", role="operator")
    assert "eve@example.org" in letter["lastError"]
    sql("update sereno.events set type = 'another.event'")
    assert listed(api) == []
    assert api("POST", f"{LIST}/{letter['id']}/requeue")[0] == 404


def test_sereno_has_the_same_deliveries(api: ApiClient, dead: int) -> None:
    """Its own API and dashboard are served under /sereno, with the same tokens."""
    code, found = api("GET", f"/sereno/api/v1/deliveries?state=dead&subject={dead}", role="viewer")
    assert (code, len(found["items"])) == (200, 1)
