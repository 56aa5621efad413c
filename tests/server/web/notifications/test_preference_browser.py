"""The page of the preference centre in a browser, without scripts: keyboard, widths, colours, names."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Page, expect

from sereno import Sereno
from tests.server.api.conftest import Served
from tests.server.web.chromium import Chromium
from tests.server.web.notifications.preference_pages import fill, preferences
from tests.server.web.visit import DARK_PHONE, LIGHT_PHONE, InspectPage

OPTIONS: dict[str, Any] = {"locale": "en", "timezone_id": "UTC"}


@pytest.fixture
def page(app: Sereno, served: Served, running_chromium: Chromium) -> Iterator[Page]:
    fill(app)
    url = app.recipients.preferences_url("ada", tenant="a").replace("https://post.example.com", served.url)
    problems: list[str] = []
    with running_chromium.in_use(), ExitStack() as opened:
        found = running_chromium.open_page(dark=False, width=1440, height=900, **OPTIONS)
        opened.callback(running_chromium.return_page, found, **OPTIONS)

        def logged(message: Any) -> None:
            if message.type in ("error", "warning") and "status of 400" not in message.text:
                problems.append(message.text)

        found.on("console", logged)
        opened.callback(found.remove_listener, "console", logged)
        found.goto(url)
        yield found
    assert problems == []


@pytest.mark.quick
def test_a_choice_is_changed_with_the_keyboard(page: Page, connection: psycopg.Connection) -> None:
    tenders = page.get_by_role("group", name="Tenders", exact=True).get_by_role("checkbox", name="E-mail")
    often = page.get_by_role("combobox", name="How often Tenders")
    expect(often.locator("option:checked")).to_have_text("as usual: every 15 minutes")
    often.select_option("once a day")
    tenders.focus()
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("Saved")
    expect(often).to_have_value("86400")
    expect(tenders).not_to_be_checked()
    page.get_by_text("Single kinds of message Tenders").click()
    closed = page.get_by_role("group", name="Tender closed").get_by_role("checkbox", name="E-mail")
    expect(closed).not_to_be_checked()
    closed.check()
    page.get_by_role("button", name="Save").click()
    expect(
        page.get_by_role("group", name="Tenders", exact=True).get_by_role("checkbox", name="E-mail some")
    ).to_be_checked()
    assert preferences(connection) == [("tenders", None, "email", False), (None, "tender.closed", "email", True)]
    fixed = page.get_by_role("group", name="Security", exact=True).get_by_role("checkbox", name="E-mail always sent")
    expect(fixed).to_be_disabled()
    expect(fixed).to_be_checked()


@pytest.mark.slow
def test_the_page_is_accessible_and_fits(page: Page, inspect_page: InspectPage) -> None:
    looks = ((False, 1440), (True, 1440), (False, 390), (True, 390), LIGHT_PHONE, DARK_PHONE)
    page.locator("summary").first.click()
    inspect_page(page, "preference-centre", *looks)
    # Also of those inside of the closed details.
    names = page.evaluate(
        "[...document.querySelectorAll('input:not([type=hidden]),select,button')]"
        ".map((each) => (each.labels?.[0] ?? each).textContent.trim())"
    )
    assert len(names) > 20
    assert all(names), names
    page.goto(f"{page.url}&lang=es" if "?" in page.url else f"{page.url}?lang=es")
    inspect_page(page, "preference-centre-es", (False, 390))


@pytest.mark.slow
def test_the_page_of_a_broken_link_is_accessible(page: Page, inspect_page: InspectPage) -> None:
    page.goto(page.url[:-1])
    expect(page.get_by_role("alert")).to_contain_text("incomplete")
    inspect_page(page, "preference-problem", (False, 390), (True, 1440))
