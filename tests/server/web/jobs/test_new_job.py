"""A job is enqueued from a form that is made from the signature of its task."""

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from playwright.sync_api import expect

from sereno import Sereno
from sereno.jobs.task_rows import declare_code
from tests.facts import one
from tests.server.web.visit import DARK_PHONE, LIGHT_DESKTOP, InspectPage, Visits


@pytest.fixture
def declared(app: Sereno, database_url: str) -> Iterator[None]:
    """Tasks of a worker, whose code the server does not have."""
    with closing(Sereno(database_url)) as theirs:

        @theirs.task(queue="mail")
        def remind(account: str, days: int = 3, dry_run: bool = False, extra: dict[str, int] | None = None) -> None: ...

        @theirs.task(tenants=False)
        def purge() -> None: ...

        @theirs.task(encrypt=["card"])
        def pay(card: str) -> None: ...

        app.database.run(declare_code(theirs.registry, "shop"))
        yield


@pytest.mark.slow
def test_a_job_is_enqueued_from_the_form_of_its_task(
    browse: Visits, declared: None, connection: psycopg.Connection, inspect_page: InspectPage
) -> None:
    page = browse("jobs", "operator")
    page.get_by_role("button", name="New job").click()
    dialog = page.locator("#new-job")
    expect(dialog.get_by_label("task").locator("option")).to_have_text(["pay", "purge", "remind"])
    # A task whose arguments only its application can encrypt.
    expect(dialog.locator(".note")).to_contain_text("enqueue its jobs from the application")
    expect(dialog.get_by_role("button", name="Enqueue")).to_be_disabled()
    dialog.get_by_label("task").select_option("remind")
    expect(dialog.locator("[data-parameter]")).to_have_count(4)
    expect(dialog.get_by_label("days")).to_have_attribute("placeholder", "default: 3")
    inspect_page(page, "new-job", LIGHT_DESKTOP, DARK_PHONE)
    dialog.get_by_label("account").fill("a-1")
    dialog.get_by_label("dry_run").select_option("true")
    dialog.get_by_label("extra").fill('{"x": ')
    dialog.get_by_role("button", name="Enqueue").click()
    expect(page.locator("#toast .bad").first).to_contain_text("extra: ")
    dialog.get_by_label("extra").fill('{"x": 1}')
    dialog.locator("summary").click()
    dialog.get_by_label("tenant").fill("ann")
    dialog.get_by_role("button", name="Enqueue").click()
    page.wait_for_url("**/jobs?job=*")
    assert one(
        connection, "select args from sereno.jobs where task = 'remind' and queue = 'mail' and tenant = 'ann'"
    ) == {
        "account": "a-1",
        "dry_run": True,
        "extra": {"x": 1},
    }
    assert one(connection, "select count(*) from sereno.audit where action = 'job.enqueue'") == 1


@pytest.mark.slow
def test_arguments_can_be_written_as_json(browse: Visits, declared: None, connection: psycopg.Connection) -> None:
    page = browse("jobs", "operator", tenant="ann")
    page.get_by_role("button", name="New job").click()
    dialog = page.locator("#new-job")
    # A tenant's user is offered the tasks that are open to tenants.
    expect(dialog.get_by_label("task").locator("option")).to_have_text(["pay", "remind"])
    dialog.get_by_label("task").select_option("remind")
    dialog.get_by_label("account").fill("a-2")
    dialog.get_by_label("Arguments as JSON").check()
    expect(dialog.get_by_label("arguments", exact=True)).to_have_value('{\n  "account": "a-2"\n}')
    dialog.get_by_role("button", name="Enqueue").click()
    page.wait_for_url("**/jobs?job=*")
    assert one(connection, "select tenant from sereno.jobs where task = 'remind'") == "ann"


@pytest.mark.slow
def test_viewers_get_no_form(browse: Visits, declared: None) -> None:
    page = browse("jobs", "viewer")
    expect(page.get_by_role("button", name="New job")).to_have_count(0)
