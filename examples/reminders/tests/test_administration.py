"""The list of deliveries with filters and pages, and requeue of failed and dead ones only."""

from collections.abc import Callable

import pytest
from reminders.app import app, status
from reminders.stand_ins import BUSY, StandIns
from reminders.tests.clients import ApiClient

from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

Remind = Callable[..., int]


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


def test_the_list_has_filters_and_pages(api: ApiClient, dead: int) -> None:
    code, found = api("GET", f"/deliveries?state=dead&channel=email&subject={dead}", role="viewer")
    assert code == 200
    (line,) = found["items"]
    assert (line["recipient"], line["attempts"]) == ("eve", 5)
    assert "451" in line["error_code"]
    seen = []
    for page in (1, 2, 3):
        _, found = api("GET", f"/deliveries?state=sent&page={page}&page_size=2", role="viewer")
        seen.append([line["id"] for line in found["items"]])
    assert [len(ids) for ids in seen] == [2, 1, 0]
    assert len({number for ids in seen for number in ids}) == 3
    assert api("GET", "/deliveries", role="no token")[0] == 401


def test_a_requeued_dead_letter_arrives(kit: Kit, stand_ins: StandIns, api: ApiClient, dead: int) -> None:
    (letter,) = kit.deliveries(to="eve")
    assert status(dead) == "OVERDUE"
    stand_ins.mails.busy.clear()
    code, answer = api("POST", "/deliveries/requeue", {"ids": [letter.id]})
    assert (code, answer["done"]) == (200, [letter.id])
    assert kit.deliveries(to="eve")[0].state == "pending"
    kit.drain()
    assert status(dead) == "SENT"
    assert [mail.recipients[0] for mail in stand_ins.mails.mails].count(BUSY) == 1


def test_other_states_cannot_be_requeued(kit: Kit, api: ApiClient, dead: int, stand_ins: StandIns) -> None:
    sent = kit.deliveries(to="ana")[0]
    code, problem = api("POST", "/deliveries/requeue", {"ids": [sent.id]})
    assert code == 409
    assert problem["detail"].startswith("only failed and dead deliveries can be requeued")
    assert problem["detail"].endswith(f"{sent.id} is sent")
    (letter,) = kit.deliveries(to="eve")
    assert api("POST", "/deliveries/requeue", {"ids": [letter.id]}, role="viewer")[0] == 403
    assert api("POST", "/deliveries/requeue", {"ids": [letter.id]})[0] == 200
    code, problem = api("POST", "/deliveries/requeue", {"ids": [letter.id]})
    assert (code, problem["detail"].endswith(f"{letter.id} is pending")) == (409, True)
    kit.drain()
    assert len(stand_ins.mails.mails) == 3
