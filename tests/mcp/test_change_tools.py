"""The tools that change something: shown first, confirmed, done once, by operators, and recorded."""

import psycopg
import pytest

from sereno import Every, Sereno
from sereno.jobs.job import JobOptions
from tests.facts import one, state
from tests.manual_worker import ManualWorker
from tests.mcp.conftest import Assistant, Connect
from tests.server.api.notifications.test_deliveries import ADDRESS, NotifiedEvents


async def confirmed(assistant: Assistant, tool: str, **arguments: object) -> object:
    """Call a tool, and again with its confirmation; return what was done."""
    shown = await assistant.call(tool, **arguments)
    assert shown["dry_run"] is True
    done = await assistant.call(tool, **arguments, confirmation=shown["confirmation"])
    assert done["dry_run"] is False
    return done["done"]


async def test_a_retry_is_shown_confirmed_done_and_recorded(
    manual: ManualWorker, connect: Connect, connection: psycopg.Connection
) -> None:
    first, second = manual.dead(), manual.dead()
    async with connect("operator", allow_writes=True) as assistant:
        shown = await assistant.call("retry_jobs", job_ids=[first])
        assert shown["would_change"] == {
            "operation": "/jobs/retry",
            "ids": [first],
            "total": 1,
            "exact": True,
            "by_task": {"greet": 1},
            "by_queue": {"apart": 1},
        }
        assert state(connection, first) == "dead"
        for other in ({"job_ids": [first, second]}, {"job_ids": [second]}):
            again = await assistant.call("retry_jobs", **other, confirmation=shown["confirmation"])
            assert again["dry_run"] is True
            assert again["next"].startswith("The confirmation has expired, or the change differs")
        done = await assistant.call("retry_jobs", job_ids=[first], confirmation=shown["confirmation"])
        assert done["done"]["done"] == [first]
        assert (state(connection, first), state(connection, second)) == ("ready", "dead")
        assert "nothing would change" in await assistant.refused("retry_jobs", job_ids=[first])
    recorded = "select count(*) from sereno.audit where action = 'job.retry' and actor = 'operator 1'"
    assert one(connection, recorded) == 1


async def test_a_confirmation_is_of_one_user(manual: ManualWorker, connect: Connect) -> None:
    dead = manual.dead()
    async with connect("operator", allow_writes=True) as one_user, connect("admin", allow_writes=True) as other:
        shown = await one_user.call("retry_jobs", job_ids=[dead])
        assert (await other.call("retry_jobs", job_ids=[dead], confirmation=shown["confirmation"]))["dry_run"] is True


async def test_queues_and_schedules_are_paused_and_resumed(
    app: Sereno, manual: ManualWorker, connect: Connect, connection: psycopg.Connection
) -> None:
    manual.enqueue()
    app.schedules.upsert("a/../b", app.new_job("greet", b'{"name": "Ada"}', JobOptions()), Every("1h"))
    paused = "select count(*) from sereno.pauses where kind = 'queue' and name = 'default'"
    enabled = "select state from sereno.schedules where key = 'a/../b'"
    async with connect("operator", allow_writes=True) as assistant:
        await confirmed(assistant, "pause_queue", queue="default", note="the disk is full")
        assert one(connection, paused) == 1
        await confirmed(assistant, "resume_queue", queue="default")
        assert one(connection, paused) == 0
        assert "there is no queue '..'" in await assistant.refused("pause_queue", queue="..")
        await confirmed(assistant, "pause_schedules", keys=["a/../b"])
        assert one(connection, enabled) == "paused"
        await confirmed(assistant, "resume_schedules", keys=["a/../b"])
        assert one(connection, enabled) == "enabled"


@pytest.fixture
def notified(app: Sereno, connection: psycopg.Connection) -> NotifiedEvents:
    return NotifiedEvents(app, connection)


async def test_failed_deliveries_are_found_and_sent_again(
    notified: NotifiedEvents, connect: Connect, connection: psycopg.Connection
) -> None:
    fails, theirs = notified.deliveries["fails"], notified.deliveries["theirs"]
    async with connect("operator", tenant="a", allow_writes=True) as assistant:
        assert [each["id"] for each in (await assistant.call("search_deliveries", q="state:failed"))["items"]] == [
            theirs
        ]
        assert "404: " in await assistant.refused("show_delivery", delivery_id=fails)
        assert "nothing would change" in await assistant.refused("requeue_deliveries", delivery_ids=[fails])
    async with connect("operator", allow_writes=True) as assistant:
        shown = await assistant.text("show_delivery", delivery_id=notified.deliveries["ok"])
        assert ADDRESS not in shown
        assert '"sent"' in shown
        assert " is sent" in await assistant.refused("requeue_deliveries", delivery_ids=[notified.deliveries["ok"]])
        await confirmed(assistant, "requeue_deliveries", delivery_ids=[fails])
    assert one(connection, "select state from sereno.deliveries where id = %s", fails) == "pending"


async def test_viewers_and_other_tenants_change_nothing(
    manual: ManualWorker, connect: Connect, connection: psycopg.Connection
) -> None:
    waiting = manual.enqueue(tenant="r42")
    async with connect("viewer", allow_writes=True) as assistant:
        for tool, arguments in (
            ("cancel_jobs", {"job_ids": [waiting]}),
            ("pause_queue", {"queue": "default"}),
            ("requeue_deliveries", {"delivery_ids": [1]}),
        ):
            assert "needs a token with the role operator" in await assistant.refused(tool, **arguments), tool
    async with connect("operator", tenant="r43", allow_writes=True) as assistant:
        assert "nothing would change" in await assistant.refused("cancel_jobs", job_ids=[waiting])
        assert "403: " in await assistant.refused("pause_queue", queue="default")
    assert state(connection, waiting) == "ready"
    async with connect("operator", tenant="r42", allow_writes=True) as assistant:
        await confirmed(assistant, "cancel_jobs", job_ids=[waiting], reason="by request")
    assert state(connection, waiting) == "cancelled"


async def test_one_call_changes_a_hundred_jobs_at_most(connect: Connect) -> None:
    async with connect("operator", allow_writes=True) as assistant:
        assert "at most 100 items" in await assistant.refused("retry_jobs", job_ids=list(range(101)))
