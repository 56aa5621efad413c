"""The system page: checks, sizes, the audit, tokens that are shown once, and settings without secrets."""

from collections.abc import Callable

import httpx
import psycopg
import pytest
from playwright.sync_api import expect

from sereno import Sereno
from sereno.jobs import pauses
from tests.facts import one
from tests.server.api.conftest import Ask, Served
from tests.server.web.html_reader import Read
from tests.server.web.visit import InspectPage, Visits

HOSTILE = "<img src=x onerror=alert(1)>"


def test_the_audit_is_filtered_in_the_query(read: Read, app: Sereno) -> None:
    for name in ("a", "b", HOSTILE):
        app.database.run(pauses.pause("queue", name, actor=HOSTILE if name == HOSTILE else "ann"))
    app.database.run(pauses.resume("queue", "a", actor="bob"))
    assert read("system?show=audit&actor=bob").text.count("<tr data-open>") == 1
    assert read("system?show=audit&action=queue.pause").text.count("<tr data-open>") == 3
    assert read("system?show=audit&action=queue").text.count("<tr data-open>") == 4
    assert read("system?show=audit&subject=queue+a").text.count("<tr data-open>") == 2
    assert "No matching changes lately." in read("system?show=audit&actor=zoe").text
    assert HOSTILE not in read("system?show=audit").text


def test_the_audit_is_listed_in_pages(read: Read, app: Sereno) -> None:
    for number in range(60):
        app.database.run(pauses.pause("queue", f"q{number}", actor="ann"))
    first = read("system?show=audit&action=queue").text
    assert first.count("<tr data-open>") == 50
    cursor = first.split("before=")[1].split('"')[0]
    assert read(f"system?show=audit&action=queue&before={cursor}").text.count("<tr data-open>") == 10


@pytest.mark.slow
def test_settings_have_a_source_and_no_secret(ask: Ask, serve: Callable[..., Served], database_url: str) -> None:
    key = "x7" * 20
    app = Sereno(database_url, secret=key)
    served = Served(app)
    try:
        headers = {"Authorization": ask("admin").headers["Authorization"]}
        text = httpx.get(f"{served.url}/system?show=settings", headers=headers, timeout=30, trust_env=False).text
    finally:
        served.stop()
        app.close()
    assert key not in text
    assert "********" in text
    assert "keep_history_days" in text


@pytest.mark.slow
@pytest.mark.quick
def test_a_token_is_shown_once_and_revoked(
    browse: Visits, inspect_page: InspectPage, connection: psycopg.Connection, served: Served
) -> None:
    page = browse("system?show=tokens")
    page.get_by_role("button", name="New token").click()
    page.locator("#new-name").fill("grafana")
    page.locator("#new-ends").fill("90d")
    page.locator("#new-dialog button.go").click()
    expect(page.locator("#made-secret")).to_contain_text("srn_")
    secret = page.locator("#made-secret").inner_text().strip()
    headers = {"Authorization": f"Bearer {secret}"}
    me = httpx.get(f"{served.url}/api/v1/me", headers=headers, timeout=30, trust_env=False)
    assert me.json() == {"name": "grafana", "role": "viewer", "tenant": None}
    page.get_by_role("button", name="Done").click()
    assert secret not in page.content()
    row = page.locator("#token-rows tr").filter(has_text="grafana")
    expect(row).to_contain_text("active")
    inspect_page(page, "tokens")
    row.get_by_role("button", name="Revoke").click()
    page.locator("#ask button.go").click()
    expect(row).to_contain_text("revoked")
    assert one(connection, "select revoked_at is not null from sereno.tokens where name = 'grafana'")


@pytest.mark.slow
def test_the_system_and_audit_pages_are_accessible(browse: Visits, inspect_page: InspectPage) -> None:
    page = browse("system")
    inspect_page(page, "system")
    page.get_by_role("link", name="Audit").click()
    expect(page.locator("h1")).to_have_text("Who did what, newest first.")
    expect(page.locator("#audit-rows")).to_contain_text("token.create")
    inspect_page(page, "audit")


@pytest.mark.slow
def test_the_system_page_is_accessible_dark_and_on_a_phone(browse: Visits, inspect_page: InspectPage) -> None:
    inspect_page(browse("system", dark=True, width=375, language="pt"), "system")
