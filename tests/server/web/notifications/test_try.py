"""A test notification goes to one recipient; a template is tried with a sample payload."""

from collections.abc import Iterator
from contextlib import closing

import msgspec
import psycopg
import pytest
from playwright.sync_api import expect

from sereno import Sereno
from sereno.notifications.event_types import declare
from tests.facts import one
from tests.server.web.notifications.notified_events import NotifiedEvents, notify
from tests.server.web.visit import DARK_PHONE, LIGHT_DESKTOP, InspectPage, Visits


class Greeting(msgspec.Struct):
    """A payload of an application that the server has not imported."""

    name: str


@pytest.fixture
def notified(app: Sereno, connection: psycopg.Connection) -> NotifiedEvents:
    return notify(app, connection)


@pytest.fixture
def elsewhere(app: Sereno, database_url: str) -> Iterator[None]:
    with closing(Sereno(database_url)) as theirs:
        theirs.event("greeting.sent", Greeting, channels=["pager"])
        client = theirs.notifications
        app.database.run(declare(client.definitions.values(), app.channels.resolve))
        yield


@pytest.mark.slow
def test_a_test_notification_goes_to_one_recipient(
    browse: Visits,
    notified: NotifiedEvents,
    elsewhere: None,
    connection: psycopg.Connection,
    inspect_page: InspectPage,
) -> None:
    page = browse("recipient?key=ana", "operator")
    page.get_by_role("button", name="Send a test").click()
    dialog = page.locator("#test-notification")
    types = ["alarm", "digest", "greeting.sent", "tender.published"]
    expect(dialog.get_by_label("event", exact=True).locator("option")).to_have_text(types)
    dialog.get_by_label("event", exact=True).select_option("tender.published")
    # The payload of the last event of this type.
    expect(dialog.get_by_label("Payload")).not_to_have_value("{}")
    inspect_page(page, "test-notification", LIGHT_DESKTOP, DARK_PHONE)
    dialog.get_by_label("event", exact=True).select_option("greeting.sent")
    expect(dialog.get_by_label("Payload")).to_have_value("{}")
    dialog.get_by_label("Payload").fill('{"name": "Ada"}')
    dialog.get_by_role("button", name="Send", exact=True).click()
    page.wait_for_url("**why=*")
    found = connection.execute(
        "select payload ->> 'name', audience, unchecked from sereno.events where type = 'greeting.sent'"
    ).fetchall()
    assert found == [("Ada", ["ana"], True)]
    assert one(connection, "select count(*) from sereno.audit where action = 'event.notify'") == 1


@pytest.mark.slow
def test_a_template_is_tried_with_a_sample_payload(browse: Visits, notified: NotifiedEvents) -> None:
    page = browse("template?event=tender.published&channel=pager&part=body")
    page.get_by_label("Jinja").fill("Tender {{ code }} of {{ region }}")
    page.get_by_label("Sample payload").fill('{"code": "1057-22", "region": "RM"}')
    page.get_by_role("button", name="Preview").last.click()
    message = page.frame_locator("iframe[name=preview]")
    expect(message.locator("body")).to_contain_text("Tender 1057-22 of RM")
    page.get_by_label("Sample payload").fill("[1]")
    expect(message.locator(".wrong")).to_have_text("The sample payload must be a JSON object.")
