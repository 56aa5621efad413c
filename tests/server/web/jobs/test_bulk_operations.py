"""The pages of bulk operations show their progress, to users of their tenant only."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from sereno import Sereno
from tests.plain_http import NO_CERTIFICATES
from tests.server.api.conftest import Ask, Served
from tests.server.web.visit import Visits

InspectPage = Callable[[Page, str], None]


@pytest.fixture
def operation(app: Sereno, ask: Ask) -> int:
    """An operation of ann that no worker runs."""

    @app.task
    def work(number: int) -> None: ...

    for tenant in ("ann", "ann", "bob"):
        work.using(tenant=tenant).enqueue(1)
    body = {"q": "task:work", "tenant": "ann", "all": True, "in_background": True, "reason": "moved <b>"}
    answer = ask("admin").post("/jobs/cancel", json=body)
    assert answer.status_code == 202, answer.text
    number: int = answer.json()["id"]
    return number


def test_the_progress_of_an_operation_is_shown(browse: Visits, inspect_page: InspectPage, operation: int) -> None:
    page = browse("operations")
    expect(page.locator("h1")).to_have_text("One bulk change is under way.")
    inspect_page(page, "operations")
    page.locator("tr a").click()
    expect(page.locator("h1")).to_have_text("0 of 2 jobs cancelled.")
    expect(page.locator("#operation")).to_contain_text("moved <b>")
    expect(page.locator("#operation")).to_contain_text("waits for a worker")
    inspect_page(page, "operation")


def test_a_list_without_operations(browse: Visits, inspect_page: InspectPage) -> None:
    page = browse("operations", width=375)
    expect(page.locator("h1")).to_have_text("No bulk change yet.")
    inspect_page(page, "operations-empty")


def test_a_tenant_sees_only_its_own_operations(ask: Ask, served: Served, operation: int) -> None:
    def get(path: str, tenant: str, **params: Any) -> httpx.Response:
        headers = {"Authorization": ask("admin", tenant).headers["Authorization"]}
        options: dict[str, Any] = {"verify": NO_CERTIFICATES, "trust_env": False, "timeout": 30}
        return httpx.get(f"{served.url}/{path}", params=params, headers=headers, **options)

    assert "moved" in get("operation", "ann", id=operation).text
    assert f"operation?id={operation}" in get("operations", "ann").text
    assert get("operations", "ann", id=operation).headers["location"].endswith(f"operation?id={operation}")
    foreign = get("operation", "bob", id=operation)
    assert (foreign.status_code, "moved" in foreign.text) == (404, False)
    assert f"id={operation}" not in get("operations", "bob").text
    for wrong in ("x", "", "9" * 30, 999_999):
        assert get("operation", "ann", id=wrong).status_code == 404
