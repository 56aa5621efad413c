"""What a browser and a program get at an unknown address, without a permission, and after a failure."""

from typing import Any

import httpx
import psycopg
import pytest
from playwright.sync_api import expect

from sereno.server.web.messages import LANGUAGES, say
from sereno.server.web.schedules import schedules
from tests.plain_http import NO_CERTIFICATES
from tests.server.api.conftest import Ask, Served
from tests.server.web.visit import LIGHT_PHONE, InspectPage, Visits

HTML = {"Accept": "text/html,*/*;q=0.8"}
PROBLEM = "application/problem+json"


def test_an_unknown_address_is_a_page_for_browsers_only(served: Served, subtests: pytest.Subtests) -> None:
    options: dict[str, Any] = {"timeout": 30, "verify": NO_CERTIFICATES, "trust_env": False}
    for address in ("nowhere", "a/b/c", "api/v2/jobs", "<script>alert(1)</script>"):
        for language in LANGUAGES:
            with subtests.test(address=address, language=language):
                headers = {**HTML, "Accept-Language": language}
                answer = httpx.get(f"{served.url}/{address}", headers=headers, **options)
                assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
                assert say(language, "Page not found") in answer.text
                assert "default-src 'none'" in answer.headers["content-security-policy"]
                assert "alert(1)" not in answer.text
        answer = httpx.get(f"{served.url}/{address}", **options)
        assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM)
    answer = httpx.post(f"{served.url}/nowhere", headers=HTML, **options)
    assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM)
    # The API answers programs, whatever they accept.
    answer = httpx.get(f"{served.url}/api/v1/nowhere", headers=HTML, **options)
    assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM)


@pytest.mark.slow
def test_pages_of_errors_are_styled_and_lead_on(browse: Visits, inspect_page: InspectPage) -> None:
    page = browse("deep/nowhere", status=404)
    expect(page.locator("h1")).to_have_text("Page not found")
    inspect_page(page, "not-found", LIGHT_PHONE)
    page.locator(".problem a.go").click()
    expect(page.locator("aside a[aria-current]")).to_have_text("Now")
    refused = browse("system?show=tokens", "viewer", status=403)
    expect(refused.locator(".problem .sub")).to_contain_text("this is for admins")
    inspect_page(refused, "forbidden", LIGHT_PHONE)


@pytest.mark.slow
def test_a_failure_of_the_server_shows_no_internals(ask: Ask, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("secret detail")

    client = ask("admin")
    client.base_url = httpx.URL(served.url)
    monkeypatch.setattr(schedules, "_sentence", fails)
    for headers, kind in ((HTML, "text/html; charset=utf-8"), ({"Accept": "*/*"}, PROBLEM)):
        # After an error, the server closes the connection.
        answer = client.get("/schedules", headers={**headers, "Connection": "close"})
        assert (answer.status_code, answer.headers["content-type"]) == (500, kind), answer.text
        assert "secret detail" not in answer.text
        assert "RuntimeError" not in answer.text
        assert "log" in answer.text


@pytest.mark.slow
def test_a_missing_table_is_explained_without_its_name(
    ask: Ask, served: Served, connection: psycopg.Connection
) -> None:
    client = ask("admin")
    client.base_url = httpx.URL(served.url)
    connection.execute("alter table sereno.schedules rename to gone")
    answer = client.get("/schedules", headers=HTML)
    assert answer.status_code == 503
    assert "sereno migrate" in answer.text
    assert "sereno.schedules" not in answer.text
