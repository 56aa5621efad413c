"""The pages of traces: they are found by id or subject and drawn as a time line, for users of their tenant."""

from html import unescape

import psycopg
import pytest
from playwright.sync_api import expect

from sereno import Sereno
from tests.facts import one
from tests.notifications.conftest import Pager, Tender
from tests.server.web.html_reader import Read
from tests.server.web.shared_site import app, ask, connection, database_url, served
from tests.server.web.visit import InspectPage, Visits

__all__ = ["app", "ask", "connection", "database_url", "served"]

HOSTILE = "<img src=x onerror=alert(1)>\"' {{7*7}}"


@pytest.fixture(scope="module")
def job(app: Sereno, connection: psycopg.Connection) -> int:
    """One trace: an event of ann with three deliveries, one of them held, jobs of bob, and receipts much later."""

    @app.task
    def work() -> None: ...

    published = app.event("tender.published", Tender, channels=[Pager()])
    published.notify(Tender("T"), subject="tender 2201-7", tenant="ann", trace="a/b c")
    published.notify(Tender("T"), subject=HOSTILE, tenant="ann")
    event = one(connection, "select id from sereno.events where subject = 'tender 2201-7'")
    connection.execute(
        "insert into sereno.recipients (tenant, key) select 'ann', 'person ' || n from generate_series(1, 3) as n"
    )
    connection.execute(
        "insert into sereno.deliveries (event_id, recipient_id, channel, tenant, state, created_at, due_at, "
        "sent_at, changed_at, reason) "
        "select %s, r.id, 'pager', 'ann', case when r.key = 'person 3' then 'pending' else 'sent' end, "
        "sereno.now(), sereno.now() + case when r.key = 'person 3' then interval '8 hours' else interval '0' end, "
        "case when r.key <> 'person 3' then sereno.now() + interval '1 second' end, sereno.now() + interval '2 s', "
        "case when r.key = 'person 3' then 'quiet hours' end from sereno.recipients r",
        (event,),
    )
    connection.execute(
        "insert into sereno.receipts (channel, receipt_id, delivery_id, outcome, at) "
        "select 'pager', 'r' || id, id, 'delivered', sereno.now() + interval '15 minutes' "
        "from sereno.deliveries where state = 'sent'"
    )
    return [work.using(trace="a/b c", tenant="bob").enqueue().id for _ in range(8)][-1]


@pytest.mark.slow
def test_traces_are_found_by_id_subject_job_and_delivery(read: Read, job: int, connection: psycopg.Connection) -> None:
    listed = read("traces")
    assert HOSTILE not in listed.text
    assert "tender 2201-7" in listed.text
    delivery = one(connection, "select min(id) from sereno.deliveries")
    for params in (
        {"q": "tender 2201-7"},
        {"q": "a/b c"},
        {"q": f"job:{job}"},
        {"q": "tender 2201-7", "by": "subject"},
        {"q": job, "by": "job"},
        {"q": delivery, "by": "delivery"},
        {"q": "a/b c", "by": "trace"},
    ):
        answer = read("traces", **params)
        assert (answer.status_code, answer.headers.get("location")) == (303, "./trace?id=a%2Fb+c"), params
    for nothing in ("zed", "9" * 30, "job:" + "9" * 19, "event:999999", "\N{SUPERSCRIPT TWO}"):
        assert "No trace matches." in read("traces", q=nothing).text
    assert "No trace matches." in read("traces", q="x", by="job").text
    assert read("traces", q="\x00").status_code == 422


def test_a_trace_is_drawn_as_a_time_line(read: Read, job: int) -> None:
    page = unescape(read("trace", id="a/b c").text)
    assert "of it active." in page
    assert "work, 8 jobs" in page
    assert "pager 3" in page
    assert "2: delivered" in page
    assert "held 1, pager" in page
    assert "quiet hours" in page
    assert 'class="cut"' in page
    assert f"jobs?job={job}" in page
    assert "deliveries?event=" in page
    assert "event?id=" in page


def test_a_tenants_user_sees_only_their_part_of_a_trace(read: Read, job: int) -> None:
    assert "tender 2201-7" not in read("traces", "admin", "bob").text
    assert "No trace matches." in read("traces", "admin", "bob", q="tender 2201-7").text
    bobs = unescape(read("trace", "admin", "bob", id="a/b c").text)
    assert "work, 8 jobs" in bobs
    assert "pager" not in bobs
    anns = unescape(read("trace", "admin", "ann", id="a/b c").text)
    assert "pager 3" in anns
    assert "work, 8 jobs" not in anns
    assert read("trace", "admin", "zed", id="a/b c").status_code == 404
    assert read("trace", "admin", "ann", id=f"job:{job}").status_code == 404


@pytest.mark.slow
def test_the_picture_of_a_trace_has_a_table(browse: Visits, inspect_page: InspectPage, job: int) -> None:
    page = browse("trace?id=a%2Fb+c", "viewer")
    expect(page.locator("#trace-picture svg a").first).to_be_visible()
    expect(page.locator("#trace-table table")).to_be_hidden()
    page.keyboard.press("v")
    expect(page.locator("#trace-table table")).to_be_visible()
    expect(page.locator("#trace-table")).to_contain_text("tender.published tender 2201-7")
    inspect_page(page, "trace")
    small = browse("traces", "viewer", dark=True, width=375, language="es")
    expect(small.locator("table")).to_contain_text(HOSTILE)
    inspect_page(small, "traces")
