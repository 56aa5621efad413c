"""An address is added on the page of the preference centre, and confirmed on the page behind the link it gets."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import psycopg
import pytest
from playwright.sync_api import Page, expect

from sereno import Sereno
from sereno.channels.email import Email
from sereno.notifications.recipients.address_requests import MOST_REQUESTS
from sereno.notifications.recipients.address_token import AddressClaim, make_token
from sereno.notifications.recipients.preference_token import PreferenceOwner
from sereno.notifications.recipients.preference_token import make_token as make_preference_token
from sereno.testing.smtp import MailServer
from tests.facts import auntil, one
from tests.notifications.conftest import Tender
from tests.server.api.conftest import PLAIN, Ask, Served
from tests.server.web.chromium import Chromium
from tests.server.web.notifications.preference_pages import SECRET, fill, post
from tests.server.web.visit import InspectPage

HOME, NEW = "https://post.example.com", "ada@new.example.org"
OPTIONS: dict[str, Any] = {"locale": "en", "timezone_id": "UTC"}
STATE = f"select state from sereno.addresses where address = '{NEW}'"


@pytest.fixture
def url(app: Sereno, served: Served) -> str:
    """Return the address of the page of a recipient who can add addresses."""
    fill(app)
    app.confirm_addresses(app.channels["email"])
    app.database.run(app.notifications.declare())
    return app.recipients.preferences_url("ada", tenant="a").replace(HOME, served.url)


def confirm_url(served: Served, address: str = NEW, until: int = 2**40) -> str:
    token = make_token(SECRET, AddressClaim("a", "ada", "email", address, until))
    return f"{served.url}/confirm-address/{token}"


async def test_the_link_of_the_message_confirms_the_address(
    app: Sereno, served: Served, connection: psycopg.Connection
) -> None:
    app.override(secret=SECRET, public_url=HOME)
    async with MailServer() as server, httpx.AsyncClient(**PLAIN) as client:
        email = Email(host=server.host, port=server.port, sender="Shop <shop@example.org>")
        app.event("tender.published", Tender, channels=[email])
        app.confirm_addresses(email)
        await app.recipients.aupsert("ada", {"email": "ada@example.org"}, tenant="a", locale="pt")
        url = app.recipients.preferences_url("ada", tenant="a").replace(HOME, served.url)
        async with app.working():
            await auntil(lambda: one(connection, "select count(*) from sereno.event_types") == 2)
            page = await client.get(url)
            assert 'type="email"' in page.text
            sent = await client.post(url, data={"address": NEW})
            assert (sent.status_code, sent.headers["location"]) == (303, "?requested=1")
            await auntil(lambda: len(server.mails) == 1)
        (taken,) = server.mails
        text = taken.parsed().get_content()
        assert taken.recipients == (NEW,)
        assert "Cancelar a inscrição: " in text
        assert "/preference-centre/" not in text
        (link,) = re.findall(rf"{HOME}(/confirm-address/\S+)", text)
        for _ in range(2):
            asked = await client.get(served.url + link)
            assert NEW in asked.text
            assert asked.text.count("<button>") == 1
            # Programs that read mail follow links.
            assert one(connection, STATE) == "unverified"
        assert (await client.get(url)).text.count("<li>") == 1, "what is not confirmed is not shown"
        for _ in range(2):
            done = await client.post(served.url + link)
            assert (done.status_code, "Address confirmed" in done.text) == (200, True)
            assert one(connection, STATE) == "active"
        assert (await client.get(url)).text.count("<li>") == 2


@pytest.mark.quick
def test_the_page_answers_the_same_for_known_addresses(url: str, connection: psycopg.Connection) -> None:
    answers = [post(url, [("address", address)]) for address in (NEW, "ada.lovelace@example.org", NEW)]
    assert {(each.status_code, each.headers["location"]) for each in answers} == {(303, "?requested=1")}
    wrong = post(f"{url}?lang=es", [("address", "<b>invalid</b>")])
    assert wrong.status_code == 422
    assert "No es una dirección de correo" in wrong.text
    assert "<b>invalid" not in wrong.text
    for _ in range(MOST_REQUESTS - 3):
        assert post(url, [("address", NEW)]).status_code == 303
    refused = post(url, [("address", NEW)])
    assert (refused.status_code, "in an hour" in refused.text) == (429, True)
    # A person to whom a message was forwarded could read along.
    forwarded = url.rpartition("/")[0] + "/" + make_preference_token(SECRET, PreferenceOwner("a", "ada", 2**40))
    assert 'name="address"' not in httpx.get(forwarded, **PLAIN).text
    assert post(forwarded, [("address", NEW)]).status_code == 403
    for site in ("cross-site", "same-site"):
        assert post(url, [("address", NEW)], **{"Sec-Fetch-Site": site}).status_code == 403
    assert one(connection, "select count(*) from sereno.addresses") == 3


@pytest.mark.quick
def test_a_confirmation_that_does_not_work_is_explained_and_changes_nothing(
    app: Sereno, served: Served, url: str, connection: psycopg.Connection
) -> None:
    assert post(url, [("address", NEW)]).status_code == 303
    good = confirm_url(served)
    for link, status, words in (
        (confirm_url(served, until=int(time.time()) - 1), 410, "has expired"),
        (good[:-1], 400, "incomplete"),
        (url.replace("preference-centre", "confirm-address"), 400, "incomplete"),
        (f"{served.url}/confirm-address/<b>", 400, "incomplete"),
    ):
        for answer in (httpx.get(link, **PLAIN), httpx.post(link, **PLAIN)):
            assert (answer.status_code, words in answer.text) == (status, True), answer.text
            assert "<b>" not in answer.text
            assert answer.headers["referrer-policy"] == "no-referrer"
    gone = httpx.post(confirm_url(served, "other@example.org"), headers={"Accept-Language": "es"}, **PLAIN)
    assert (gone.status_code, "Este enlace ha caducado" in gone.text) == (404, True)
    assert httpx.post(good, headers={"Sec-Fetch-Site": "cross-site"}, **PLAIN).status_code == 403
    app.override(read_only=True)
    assert httpx.post(good, **PLAIN).status_code == 403
    assert one(connection, STATE) == "unverified"


def test_addresses_are_added_only_where_the_application_confirms_them(
    app: Sereno, served: Served, ask: Ask, connection: psycopg.Connection
) -> None:
    fill(app)
    url = app.recipients.preferences_url("ada", tenant="a").replace(HOME, served.url)
    assert 'name="address"' not in httpx.get(url, **PLAIN).text
    assert post(url, [("address", NEW)]).status_code == 404
    path, of_ada = "/preference-centre/addresses", {"recipient": "ada", "tenant": "a"}
    assert ask().post(path, params=of_ada, json={"address": NEW}).status_code == 404
    app.confirm_addresses(app.channels["email"])
    app.database.run(app.notifications.declare())
    with httpx.Client(base_url=f"{served.url}/api/v1", **PLAIN) as client:
        token = app.recipients.preferences_token("ada", tenant="a")
        client.headers["Authorization"] = f"Bearer {token}"
        assert client.get("/preference-centre").json()["can_add"] == ["email"]
        assert client.post(path, json={"address": NEW, "language": "pt"}).status_code == 202
        assert client.post(path, json={"address": "invalid"}).status_code == 422
        assert client.post(path, json={"address": NEW, "channel": "sms"}).status_code == 422
        client.headers["Authorization"] = f"Bearer {make_preference_token(SECRET, PreferenceOwner('a', 'ada', 2**40))}"
        assert client.get("/preference-centre").json()["can_add"] == []
        assert client.post(path, json={"address": NEW}).status_code == 403
    assert ask().post(path, params=of_ada, json={"address": NEW}).status_code == 202
    assert ask("operator").post(path, params=of_ada, json={"address": NEW}).status_code == 403
    assert ask("admin", "b").post(path, params={"recipient": "ada"}, json={"address": NEW}).status_code == 404
    actors = connection.execute("select actor from sereno.audit where action like 'recipient.%' order by id").fetchall()
    assert len(actors) == 2
    assert actors[0] == ("recipient ada",)


@pytest.fixture
def page(url: str, running_chromium: Chromium) -> Iterator[Page]:
    with running_chromium.in_use(), ExitStack() as opened:
        found = running_chromium.open_page(dark=False, width=1440, height=900, **OPTIONS)
        opened.callback(running_chromium.return_page, found, **OPTIONS)
        found.goto(url)
        yield found


@pytest.mark.quick
def test_an_address_is_added_and_confirmed_in_a_browser(
    page: Page, served: Served, connection: psycopg.Connection
) -> None:
    page.get_by_label("E-mail", exact=True).last.fill(NEW)
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("within 24 hours")
    page.goto(confirm_url(served))
    page.get_by_role("link", name="Español").click()
    expect(page.get_by_role("heading")).to_have_text("Confirme su dirección")
    page.get_by_role("button", name="Confirmar").click()
    expect(page.get_by_role("heading")).to_have_text("Dirección confirmada")
    assert one(connection, STATE) == "active"


@pytest.mark.slow
def test_the_pages_are_accessible_and_fit(page: Page, served: Served, inspect_page: InspectPage) -> None:
    looks = ((False, 390), (True, 390), (True, 1440))
    inspect_page(page, "preference-centre-add", *looks)
    page.goto(confirm_url(served))
    inspect_page(page, "confirm-address", *looks)
    page.goto(served.url + "/unsubscribe/x")
    inspect_page(page, "unsubscribe-problem", *looks)
