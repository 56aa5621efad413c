"""The page of queues, workers and limits, and its actions."""

import psycopg
import pytest
from playwright.sync_api import expect

from sereno import Limit, Sereno
from sereno.jobs.limits import store as limits
from tests.facts import one
from tests.jobs.job_steps import decided, end, session, take
from tests.jobs.test_requirements import capable
from tests.server.web.html_reader import Read
from tests.server.web.visit import InspectPage, Visits

HOSTILE = '../tenants/<b>"x"'


@pytest.fixture
def busy(app: Sereno, connection: psycopg.Connection) -> int:
    """A worker serves the default queue; none serves the hostile one."""

    @app.task
    def work(number: int) -> None: ...

    @app.task(concurrency=Limit(2, name="mail.out"))
    def mail(number: int) -> None: ...

    app.database.run(limits.declare(app.registry, "test"))
    for number in range(4):
        work.enqueue(number)
    work.using(queue=HOSTILE).enqueue(9)
    owner = session(connection)
    first, second = take(connection, owner, 2)
    end(connection, owner, [first], decided(ValueError("no")))
    return second.id


def test_the_release_of_a_worker_is_shown(read: Read, connection: psycopg.Connection) -> None:
    capable(connection, None, release="2026.<b>")
    assert "release 2026.&lt;b&gt;" in read("queues").text


def test_queues_show_jobs_and_workers(read: Read, busy: int) -> None:
    text = read("queues").text
    assert "One queue has work and no worker." in text
    assert "no worker" in text
    assert "here:1" in text
    assert f'href="./jobs?job={busy}"' in text
    assert "mail.out" in text
    assert "2 at once" in text
    assert HOSTILE not in text
    # Actions that a viewer has no right to are not offered.
    assert "data-do=" not in text
    assert "data-form=" not in text
    # Limits are found by name.
    assert "mail.out" in read("queues?limit=mail.*").text
    assert "No limit matches." in read("queues?limit=x%25").text
    # Users of one tenant cannot open the page.
    assert read("queues", "admin", "ann").status_code == 403


@pytest.mark.quick
def test_a_queue_is_paused_with_a_note_and_resumed(
    browse: Visits, inspect_page: InspectPage, busy: int, connection: psycopg.Connection
) -> None:
    page = browse("queues")
    inspect_page(page, "queues")
    card = page.locator("section.queue").filter(has_text=HOSTILE)
    card.get_by_role("button", name="Pause").click()
    page.get_by_label("Why").locator("visible=true").fill("their API is down")
    page.locator("#pause-dialog button.go").click()
    expect(card).to_contain_text("their API is down")
    assert one(connection, "select note from sereno.pauses where name = %s", HOSTILE) == "their API is down"
    assert one(connection, "select count(*) from sereno.pauses") == 1
    card.get_by_role("button", name="Resume").click()
    expect(card.get_by_role("button", name="Pause")).to_be_visible()
    assert one(connection, "select count(*) from sereno.pauses") == 0


@pytest.mark.slow
def test_a_limit_is_set_closed_and_opened(browse: Visits, busy: int, connection: psycopg.Connection) -> None:
    page = browse("queues")
    row = page.locator("#limit-rows tbody tr").filter(has_text="mail.out")
    row.get_by_role("button", name="Set").click()
    expect(page.locator("#slots-slots")).to_have_value("2")
    page.locator("#slots-slots").fill("7")
    page.locator("#slots-dialog button.go").click()
    expect(row).to_contain_text("7 at once")
    row.get_by_role("button", name="Close").click()
    page.locator("#close-dialog button.go").click()
    row.get_by_role("button", name="Open").click()
    expect(row.get_by_role("button", name="Open")).to_have_count(0)
    row.get_by_role("button", name="Reset").click()
    page.locator("#ask button.go").click()
    expect(row).to_contain_text("2 at once")
    actions = connection.execute("select action from sereno.audit order by id").fetchall()
    assert [action for (action,) in actions if action.startswith("limit")] == [
        "limit.set",
        "limit.close",
        "limit.open",
        "limit.reset",
    ]


@pytest.mark.slow
def test_the_queues_page_is_accessible_dark_and_on_a_phone(
    browse: Visits, inspect_page: InspectPage, busy: int
) -> None:
    inspect_page(browse("queues", dark=True, width=375, language="es"), "queues")
