"""How many workers are wanted: for the backlog, the run time of jobs, and the age of the oldest one."""

from dataclasses import replace

import psycopg
import pytest

from sereno.errors import InvalidArguments
from sereno.jobs.pauses import pause
from sereno.jobs.queries import minute_stats
from sereno.jobs.queries.autoscale import AutoscaleQuery, QueueDemand, autoscale, queue_demands, wanted_workers
from sereno.settings import Settings
from sereno.telemetry.metrics import MetricTally
from sereno.worker.autoscale import parse_query
from tests.carriers.report_steps import add_batch, report
from tests.facts import advance
from tests.jobs.job_steps import add, do, session, take
from tests.roles import made

IDLE = QueueDemand("mails", 0, 0, 0.0, None, 0, 0, is_paused=False)


def test_wanted_workers_have_slots_for_what_is_to_start_in_time(subtests: pytest.Subtests) -> None:
    late = {"oldest_seconds": 90.0, "workers": 3, "slots": 30, "running": 30, "ready": 5, "run_seconds": 0.01}
    for name, changes, slots, wanted in (
        ("nothing to do", {}, 10, 0),
        ("a first job", {"ready": 1}, 10, 1),
        ("jobs of unknown length", {"ready": 45}, 10, 5),
        ("long jobs need a slot each", {"ready": 45, "run_seconds": 600.0}, 10, 5),
        ("short jobs share slots", {"ready": 10_000, "run_seconds": 0.6}, 10, 10),
        ("very short jobs", {"ready": 10_000, "run_seconds": 0.001}, 10, 1),
        ("running jobs keep their slots", {"running": 30, "workers": 3, "slots": 30}, 10, 3),
        ("both", {"running": 30, "ready": 1000, "run_seconds": 0.6, "workers": 3, "slots": 30}, 10, 4),
        ("late although all slots are busy", late, 10, 4),
        ("late, with free slots: more workers would not help", late | {"running": 20}, 10, 3),
        ("paused", {"ready": 100, "is_paused": True}, 10, 0),
        ("paused with running jobs", {"ready": 100, "running": 11, "is_paused": True}, 10, 2),
    ):
        with subtests.test(name):
            assert wanted_workers(replace(IDLE, **changes), slots, 60.0) == wanted


def test_a_deployment_needs_what_its_busiest_queue_needs() -> None:
    demands = [replace(IDLE, ready=30), replace(IDLE, queue="reports", ready=8, workers=2, slots=4, oldest_seconds=9.0)]
    found = autoscale(demands, AutoscaleQuery(("mails", "reports", "none")), Settings(queues={"mails": 15}))
    assert [each.wanted_workers for each in found.queues] == [2, 4, 0]
    assert (found.wanted_workers, found.ready, found.workers, found.oldest_seconds) == (4, 38, 2, 9.0)
    assert autoscale(demands, AutoscaleQuery(), Settings()).ready == 38
    assert autoscale([], AutoscaleQuery(), Settings()).wanted_workers == 0


def test_the_demand_is_read_from_the_database(connection: psycopg.Connection) -> None:
    session(connection, queues={"mails": 4})
    session(connection, queues={"mails": 4})
    add(connection, 5, queue="mails")
    take(connection, session(connection, queues={"mails": 4}), 2, queue="mails")
    tally = MetricTally()
    for ran in (1.0, 3.0):
        tally.job("mails", "work", "succeeded", 0.1, ran)
    do(connection, minute_stats.add(tally))
    add(connection, 1, queue="apart")
    do(connection, pause("queue", "apart", actor="test"))
    advance(connection, 20)
    apart, mails = do(connection, queue_demands())
    assert (apart.queue, apart.is_paused, apart.run_seconds) == ("apart", True, None)
    assert (mails.ready, mails.running, mails.workers, mails.slots, mails.run_seconds) == (3, 2, 3, 12, 2.0)
    assert mails.oldest_seconds >= 20


def test_due_jobs_that_no_worker_has_made_ready_are_counted(connection: psycopg.Connection) -> None:
    add(connection, 2, queue="mails", delay=30)
    add(connection, 1, queue="mails", delay=300)
    assert [each.ready for each in do(connection, queue_demands())] == [0]
    advance(connection, 60)
    (found,) = do(connection, queue_demands())
    assert (found.ready, 30 <= found.oldest_seconds < 60) == (2, True)
    assert autoscale([found], AutoscaleQuery(), Settings()).wanted_workers == 1


def test_jobs_at_a_carrier_are_ready(connection: psycopg.Connection) -> None:
    report(connection, pending_messages=3, oldest=5.0)
    add_batch(connection, 1, 2)
    (found,) = do(connection, queue_demands())
    assert (found.queue, found.ready >= 2, found.oldest_seconds >= 5) == ("clicks", True, True)


@pytest.mark.parametrize("login", ["worker", "server"])
def test_logins_with_few_privileges_can_read_it(connection: psycopg.Connection, database_url: str, login: str) -> None:
    add(connection, 2)
    with made(connection, database_url) as logins, logins.connect(login) as restricted:
        (found,) = do(restricted, queue_demands())
        assert found.ready == 2


def test_a_query_is_checked(subtests: pytest.Subtests) -> None:
    assert parse_query("") == AutoscaleQuery()
    assert parse_query("queue=a%26b&queue=c&queue=c&slots=20&target=2m") == AutoscaleQuery(("a&b", "c"), 20, 120.0)
    for text in (
        "slots=0",
        "slots=-1",
        "slots=1e3",
        "slots=9999999999",
        "target=0",
        "target=2d",
        "target=soon",
        "target=nan",
        "queue=",
        "queue=%00",
        f"queue={'x' * 1000}",
        "color=red",
        "queue",
        "&".join(["queue=a"] * 200),
    ):
        with subtests.test(text=text[:40]), pytest.raises(InvalidArguments):
            parse_query(text)
