"""The pages of errors: failures are grouped by cause, and operators retry and mute them."""

from html import unescape

import psycopg
import pytest
from playwright.sync_api import expect

from sereno import Sereno
from sereno.error_text import FailureText
from sereno.jobs.queries import error_groups
from sereno.telemetry.metrics import MetricTally
from tests.facts import one, until
from tests.server.api.conftest import Ask
from tests.server.web.html_reader import Read
from tests.server.web.visit import InspectPage, Visits

FINGERPRINT, OTHER_FINGERPRINT, UNKNOWN_FINGERPRINT = "00000000000a", "00000000000b", "00000000000c"
HOSTILE = "<img src=x onerror=alert(1)>\"' {{7*7}}"


@pytest.fixture
def failures(app: Sereno, connection: psycopg.Connection) -> None:
    """Two failures of one group, with three dead letters, and one failure of a group with hostile names."""
    tally = MetricTally()
    for tenant in ("ann", "bob"):
        tally.failed(FailureText(FINGERPRINT, "charge", "OSError", "card 7 refused", "shop.py:charge"), 2, tenant)
    tally.failed(FailureText(OTHER_FINGERPRINT, HOSTILE, "ValueError", HOSTILE, "shop.py:mail"), 9, HOSTILE)
    for outcome in ("succeeded", "succeeded", "succeeded"):
        tally.job("default", "charge", outcome, 0.1, 0.1)
    tally.succeeded_after("charge", 2)
    app.database.run(error_groups.add(tally))
    connection.execute(
        "insert into sereno.history (id, finished_at, run_at, created_at, attempt, failures, crashes, snoozes, "
        "releases, priority, state, queue, task, tenant, args, fingerprint, error_type, error_message, traceback) "
        "select n, sereno.now(), sereno.now(), sereno.now(), 1, 1, 0, 0, 0, 5, 'dead', 'default', 'charge', 'ann', "
        "'{}', %s, 'OSError', 'card ' || n || ' refused', "
        "'Traceback\n  File \"/srv/shop.py\", line 12, in charge\n    pay(<b>)\nOSError: refused' "
        "from generate_series(1, 3) as n",
        (FINGERPRINT,),
    )


def test_errors_are_grouped_by_cause(read: Read, failures: None) -> None:
    page = unescape(read("errors").text)
    assert "2 error groups, most often OSError in charge." in page
    assert "card 7 refused" in page
    assert f"error?fingerprint={FINGERPRINT}&range=24h" in page
    assert HOSTILE not in read("errors").text
    assert HOSTILE in page
    assert OTHER_FINGERPRINT not in read("errors", task="charge").text
    assert FINGERPRINT not in read("errors", tenant=HOSTILE).text
    assert "No failures of this kind" in read("errors", task="unknown").text
    most = read("errors", sort="count", range="7d", before="nonsense").text
    assert most.index(FINGERPRINT) < most.index(OTHER_FINGERPRINT)


@pytest.mark.slow
def test_muted_errors_are_folded(read: Read, ask: Ask, failures: None) -> None:
    body = {"for": "8h", "note": "known since <b>May</b>"}
    assert ask("operator").post(f"/errors/{FINGERPRINT}/mute", json=body).status_code == 200
    page = read("errors").text
    assert "1 muted" in page
    assert page.index("1 muted") < page.index(FINGERPRINT)
    assert "known since &lt;b&gt;May" in page
    assert "Unmute" in read("error", "operator", fingerprint=FINGERPRINT).text
    assert "Unmute" not in read("error", fingerprint=FINGERPRINT).text


def test_a_tenants_user_is_redirected_to_the_errors_of_the_tenant(read: Read, failures: None) -> None:
    answer = read("errors", "admin", "ann")
    assert (answer.status_code, answer.headers["location"]) == (303, "./tenant?name=ann#errors")
    refused = read("error", "admin", "ann", fingerprint=FINGERPRINT)
    assert (refused.status_code, "card" in refused.text) == (403, False)


def test_the_page_of_an_error_group(read: Read, failures: None) -> None:
    raw = read("error", fingerprint=FINGERPRINT).text
    page = unescape(raw)
    assert "OSError in charge: 2 times in 24h." in page
    assert "card 2 refused" in page
    assert "/srv/shop.py:12" in page
    assert "pay(<b>)" not in raw
    assert "tenant?name=ann" in page
    assert "66.7 %" in page
    assert f"jobs?q=state%3Adead+fingerprint%3A{FINGERPRINT}" in page
    assert "Retry these" not in page
    hostile = read("error", fingerprint=OTHER_FINGERPRINT).text
    assert HOSTILE not in hostile
    assert "no longer stored" in hostile


@pytest.mark.slow
@pytest.mark.quick
def test_dead_letters_are_retried_and_the_error_is_muted(
    browse: Visits, inspect_page: InspectPage, failures: None, connection: psycopg.Connection
) -> None:
    page = browse(f"error?fingerprint={FINGERPRINT}", "operator")
    inspect_page(page, "error")
    page.locator("#mute-for").select_option("7d")
    page.get_by_role("button", name="Mute").click()
    expect(page.locator("#error-head")).to_contain_text("muted until")
    page.locator("#note").fill("known")
    page.get_by_role("button", name="Save the note").click()
    expect(page.locator("#error-sample")).to_contain_text("known")
    expect(page.locator("#error-head")).to_contain_text("muted until")
    assert one(connection, "select note from sereno.error_groups where fingerprint = %s", FINGERPRINT) == "known"
    page.get_by_role("button", name="Retry these 3").click()
    dialog = page.locator("#ask")
    expect(dialog).to_contain_text("task: charge 3")
    dialog.locator("[value=yes]").click()
    page.wait_for_url("**/operation?id=*")
    until(lambda: one(connection, "select rate from sereno.bulk_operations") == 50)


@pytest.mark.slow
def test_the_errors_page_is_accessible(browse: Visits, inspect_page: InspectPage, failures: None) -> None:
    page = browse("errors", "viewer", dark=True, width=375, language="es")
    expect(page.locator("h1")).to_contain_text("2 grupos de errores")
    inspect_page(page, "errors")
