"""An operator of a tenant pauses it on its page."""

from urllib.parse import quote_plus

import psycopg
import pytest
from playwright.sync_api import expect

from sereno import Sereno
from tests.facts import one, until
from tests.server.web.monitoring.tenant_rows import HOSTILE, create_tenants
from tests.server.web.visit import InspectPage, Visits


@pytest.mark.slow
@pytest.mark.quick
def test_a_tenant_is_paused_and_resumed(
    app: Sereno, browse: Visits, inspect_page: InspectPage, connection: psycopg.Connection
) -> None:
    create_tenants(app)
    page = browse(f"tenant?name={quote_plus(HOSTILE)}", "operator", HOSTILE)
    page.get_by_role("button", name="Pause").click()
    page.locator("#ask [value=yes]").click()
    expect(page.locator("h1")).to_contain_text("is paused: none of its jobs is started.")
    assert one(connection, "select name from sereno.pauses where kind = 'tenant'") == HOSTILE
    inspect_page(page, "tenant")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("h1")).not_to_contain_text("is paused")
    until(lambda: one(connection, "select count(*) from sereno.pauses") == 0)
