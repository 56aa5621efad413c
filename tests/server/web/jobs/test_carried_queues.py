"""Carried queues on the page of queues: the line about the carrier, and the form that sets its share."""

import psycopg
import pytest
from playwright.sync_api import expect

from tests.carriers.report_steps import add_batch, report, report_failure
from tests.facts import advance, one, until
from tests.jobs.job_steps import add, session
from tests.server.web.html_reader import Read
from tests.server.web.visit import InspectPage, Visits


@pytest.fixture
def carried(connection: psycopg.Connection) -> None:
    """A carried queue with work on both sides, and one without a carrier."""
    session(connection, queues={"clicks": 10, "mails": 2})
    add(connection, 2, queue="clicks")
    add(connection, 1, queue="mails")
    add_batch(connection, 11, 12)
    report(connection, pending_messages=20, held_messages=3, redelivered_messages=1, oldest=4.0, current_replicas=2)


@pytest.mark.usefixtures("carried")
def test_a_card_shows_what_its_carrier_has(read: Read) -> None:
    text = read("queues").text
    for fact in (
        "jetstream · up",
        "about 23 jobs in 23 messages",
        "2 jobs to publish",
        "1 delivered again",
        "100 % of new jobs",
        "2 of 3 replicas",
    ):
        assert fact in text
    assert text.count("jetstream") == 1
    assert "secret" not in text
    # A viewer cannot change the share.
    assert "carry-form" not in text
    assert "carry-form" in read("queues", "operator").text


@pytest.mark.slow
@pytest.mark.usefixtures("carried")
def test_a_card_says_what_is_wrong_with_its_carrier(read: Read, connection: psycopg.Connection) -> None:
    advance(connection, 20)
    report_failure(connection)
    # The page is cached for a moment.
    until(lambda: "The carrier does not answer: new jobs run from PostgreSQL." in read("queues").text)
    assert "<h1>The carrier of a queue does not answer.</h1>" in read("queues").text
    advance(connection, 60)
    until(lambda: "No worker reports the carrier. Start one:" in read("queues").text)


@pytest.mark.slow
@pytest.mark.usefixtures("carried")
def test_an_operator_sets_the_share(browse: Visits, connection: psycopg.Connection) -> None:
    page = browse("queues")
    card = page.locator("section.queue").filter(has_text="clicks")
    card.get_by_role("button", name="Share").click()
    expect(page.locator("#carry-share")).to_have_value("100")
    page.locator("#carry-share").fill("10")
    page.locator("#carry-dialog button.go").click()
    expect(card).to_contain_text("10 % of new jobs")
    assert one(connection, "select share from sereno.carried_queues where queue = 'clicks'") == 10
    assert one(connection, "select action from sereno.audit order by id desc limit 1") == "queue.carry"


@pytest.mark.slow
@pytest.mark.usefixtures("carried")
def test_the_line_of_a_carrier_is_readable_on_every_screen(
    browse: Visits, inspect_page: InspectPage, subtests: pytest.Subtests
) -> None:
    for dark, width, language in ((False, 1440, "en"), (True, 390, "es"), (True, 1440, "pt")):
        with subtests.test(dark=dark, width=width, language=language):
            inspect_page(browse("queues", dark=dark, width=width, language=language), "queues")
