"""The search field of every list has one grammar: matches are shown, and errors are marked."""

from html import unescape
from urllib.parse import quote_plus

import pytest

from sereno import Sereno
from sereno.notifications.deliveries import lists
from tests.server.api.conftest import Ask
from tests.server.api.world import FINGERPRINT, Things, fill, fill_over_http
from tests.server.web.html_reader import Read
from tests.server.web.shared_site import app, ask, connection, database_url, served

__all__ = ["app", "ask", "connection", "database_url", "served"]

ANN, BOB = "canary-ann", "canary-bob"


@pytest.fixture(scope="module")
def tenants(app: Sereno, ask: Ask) -> tuple[Things, Things]:
    made = Things("ann-tenant", ANN), Things("bob-tenant", BOB)
    fill(app, *made)
    fill_over_http(ask("admin"), *made)
    return made


# For each page: its parameters, a search that finds rows of ann, and the text of a row of ann and of a row of bob.
PAGES: dict[str, tuple[dict[str, str], str, str, str]] = {
    "deliveries": ({}, "state:failed recipient:*ann*", f'title="{ANN}-recipient"', f'title="{BOB}-recipient"'),
    "notifications": ({}, "type:tender.* tenant:ann*", f"{ANN}-subject</td>", f"{BOB}-subject</td>"),
    "recipients": ({}, "channel:pager ann", f'aria-label="{ANN}-recipient"', f'aria-label="{BOB}-recipient"'),
    "schedules": ({}, "kind:daily -tenant:bob-tenant", f'data-id="{ANN}-schedule"', f'data-id="{BOB}-schedule"'),
    "tenants": ({}, "paused:yes tenant:ann*", 'data-focus="tenant ann-tenant"', 'data-focus="tenant bob-tenant"'),
    "system": ({"show": "audit"}, f"actor:{ANN}* at:1h..", f">{ANN}-actor</a>", f">{BOB}-actor</a>"),
}


@pytest.mark.slow
def test_every_page_shows_the_matches(read: Read, tenants: tuple[Things, Things]) -> None:
    for path, (given, search, mine, other) in PAGES.items():
        whole = unescape(read(path, "operator", **given).text)
        assert mine in whole, path
        assert other in whole, path
        found = unescape(read(path, "operator", **given, q=search).text)
        assert mine in found, (path, found)
        assert other not in found, path
        assert f'value="{search}"' in found, path
        nothing = unescape(read(path, "operator", **given, q="zzz").text)
        assert mine not in nothing, path
        assert 'class="nothing"' in nothing, path


@pytest.mark.slow
def test_errors_are_searched(read: Read, tenants: tuple[Things, Things]) -> None:
    row = f'data-focus="error {FINGERPRINT}"'
    assert row in read("errors", q="task:work type:OSError canary").text
    assert row not in read("errors", q="task:work -type:OSError").text
    assert "No error matches." in read("errors", q="count:>99").text


@pytest.mark.slow
def test_an_invalid_search_is_marked_at_its_position(read: Read, tenants: tuple[Things, Things]) -> None:
    for path, (given, _, mine, _) in {**PAGES, "errors": ({}, "", FINGERPRINT, "")}.items():
        page = unescape(read(path, "operator", **given, q="one stat:dead").text)
        assert "The search is invalid." in page or path == "notifications", path
        assert 'at character 5 of the search: there is no field "stat"' in page, path
        assert "one <mark>s</mark>tat:dead</pre>" in page, path
        assert "Fields of this list: " in page, path
        assert mine not in page, path


@pytest.mark.slow
def test_bounded_searches_show_their_bound(read: Read, tenants: tuple[Things, Things]) -> None:
    notice = "searched among the newest hundred thousand"
    for path in ("deliveries", "notifications", "recipients"):
        assert notice in read(path, q="canary").text
        assert notice not in read(path).text
    assert notice in read("deliveries", state="sent,failed").text
    assert notice not in read("deliveries", state="failed,dead", channel="pager").text
    assert "searched among 100,000 keys at a time" in read("schedules", q="canary").text
    assert "Searched among the newest" in read("system", show="audit", q="canary").text


def test_failed_deliveries_are_found_below_newer_ones(
    read: Read, tenants: tuple[Things, Things], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "WINDOW", 1)
    page = read("deliveries", "operator", state="failed,dead", channel="pager").text
    assert all(f'data-id="{each.delivery}"' in page for each in tenants)
    assert (
        f'data-id="{tenants[0].delivery}"'
        not in read("deliveries", "operator", state="failed,skipped", channel="x").text
    )


@pytest.mark.slow
def test_a_tenant_finds_only_its_own_rows_on_every_page(read: Read, tenants: tuple[Things, Things]) -> None:
    for path in ("deliveries", "notifications", "recipients", "schedules"):
        for search in ("canary", "tenant:*", "tenant:ann-tenant,bob-tenant", "-zzz"):
            page = read(path, "operator", "ann-tenant", q=search).text
            assert BOB not in page, (path, search)
        assert PAGES[path][2] in unescape(read(path, "operator", "ann-tenant", q="canary").text)


def test_masked_values_cannot_be_found_by_guessing(read: Read, app: Sereno) -> None:
    app.recipients.upsert("ana", {}, data={"pin": "1234"})
    for guess in ("data.pin:1234", "data.pin:9999"):
        page = read("recipients", q=guess).text
        assert "data.pin is masked: only an operator can search by it" in page
        assert ">ana</a>" not in page
    assert ">ana</a>" in read("recipients", "operator", q="data.pin:1234").text


def test_copied_commands_have_the_same_search(read: Read, tenants: tuple[Things, Things]) -> None:
    page = unescape(read("deliveries", q="state:failed -channel:email").text)
    assert "sereno delivery list -- 'state:failed -channel:email'" in page
    assert f"/api/v1/deliveries?q={quote_plus('state:failed -channel:email')}" in page
    assert "sereno schedule list '--search=-kind:cron menu'" in unescape(read("schedules", q="-kind:cron menu").text)
    assert "sereno recipient list --search=ann" in unescape(read("recipients", q="ann").text)
    assert "sereno event list -- type:x" in unescape(read("notifications", q="type:x").text)
    assert "sereno error list --since 24h -- type:x" in unescape(read("errors", q="type:x").text)
