"""The dead-letter queue: one job for each delivery that dies, for this program or another one."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from reminders.app import app
from reminders.settings import DEAD_LETTER_QUEUE, MAX_ATTEMPTS
from reminders.stand_ins import BUSY, StandIns

from sereno import Sereno
from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

Remind = Callable[..., int]


@pytest.fixture
def letter(kit: Kit, stand_ins: StandIns, remind: Remind) -> dict[str, Any]:
    """The arguments of the job that a dead delivery must have."""
    app.recipients.upsert("eve", {"email": BUSY})
    number = remind("eve")
    kit.travel("5m")
    die(kit)
    (delivery,) = kit.deliveries(to="eve", channel="email")
    return {"delivery": delivery.id, "reminder": str(number), "channel": "EMAIL", "attempts": MAX_ATTEMPTS}


def die(kit: Kit) -> None:
    kit.drain()
    while kit.deliveries(to="eve", channel="email")[0].state == "pending":
        kit.travel_to_next()
        kit.drain()


def letters(kit: Kit) -> list[dict[str, Any]]:
    found = [dict(job.args["letter"]) for job in kit.jobs("reminders.dead_letter")]
    assert all("451" in each.pop("error") for each in found)
    return found


def test_each_death_of_a_delivery_is_one_job_of_the_queue(kit: Kit, letter: dict[str, Any]) -> None:
    for _ in range(3):
        kit.travel("1m")
        kit.drain()
    assert letters(kit) == [letter]
    assert {job.queue for job in kit.jobs("reminders.dead_letter")} == {DEAD_LETTER_QUEUE}
    assert [job.state for job in kit.jobs("reminders.dead_letter")] == ["succeeded"]

    app.notifications.requeue([letter["delivery"]])
    die(kit)
    kit.travel("1m")
    kit.drain()
    assert letters(kit) == [letter] * 2


def test_another_program_takes_the_jobs_of_the_queue(
    kit: Kit, letter: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers of reminders do not serve the queue; a program that knows nothing of reminders does."""
    monkeypatch.setenv("NOTIFICATION_DLQ_NAME", "desk.dead")
    kit.travel("1m")
    with kit.crash_worker("reminders.app:app", "--queue", "reminders=2") as worker:
        worker.until(lambda: kit.jobs("reminders.dead_letter"))
    taken: list[dict[str, Any]] = []
    desk = Sereno(app.url, schema=app.settings.schema, service="desk", scheduler=False)

    @desk.task(name="reminders.dead_letter", queue="desk.dead")
    async def open_ticket(letter: dict[str, Any]) -> None:
        taken.append(letter)

    async def work() -> None:
        async with desk.working({"desk.dead": 1}):
            await asyncio.to_thread(kit.until, lambda: taken)
        await desk.aclose()

    asyncio.run(work())
    assert [{name: each[name] for name in letter} for each in taken] == [letter]
