"""Queues: job counts, workers and pauses."""

import pytest

from sereno.bounded_count import BoundedCount
from sereno.jobs import pauses
from sereno.jobs.queries import queues
from sereno.monitoring.status import status
from sereno.worker import operations as workers
from tests.manual_worker import ManualWorker


def test_a_queue_line_counts_its_jobs(manual: ManualWorker) -> None:
    manual.enqueue()
    manual.enqueue()
    manual.enqueue(delay="1h")
    manual.enqueue(queue="without workers")
    manual.enqueue(queue="waits", after=[manual.enqueue(delay="1h")])
    session = manual.worker(queues={"default": 3, "served": 2})
    manual.claim(session)
    manual.connection.execute("update sereno.jobs set run_at = run_at - interval '90 seconds' where state = 'ready'")
    lines = {line.queue: line for line in manual.app.database.run(queues.list_queues())}
    assert set(lines) == {"default", "without workers", "served", "waits"}
    default = lines["default"]
    assert [str(count) for count in (default.ready, default.running, default.scheduled)] == ["1", "1", "2"]
    assert (lines["waits"].waiting, default.waiting) == (BoundedCount(1), BoundedCount(0))
    assert (default.slots, default.workers) == (3, 1)
    assert default.oldest_seconds is not None
    assert 90 <= default.oldest_seconds < 120
    assert lines["without workers"].slots == 0
    assert lines["served"].slots == 2


def test_jobs_finished_within_the_last_minute_are_counted(manual: ManualWorker) -> None:
    manual.dead()
    manual.dead()
    manual.connection.execute("update sereno.history set finished_at = now() - interval '2 minutes' where id = 1")
    manual.enqueue(queue="apart")
    (line,) = manual.app.database.run(queues.list_queues())
    assert line.finished_last_minute == BoundedCount(1)


@pytest.mark.slow
def test_counts_stop_at_a_bound_and_are_marked_inexact(manual: ManualWorker) -> None:
    manual.connection.execute(
        """insert into sereno.jobs (task, args, state, ready_seq)
           select 'greet', '{}', 'ready', nextval('sereno.ready_seq') from generate_series(1, 10001)"""
    )
    manual.connection.execute(
        """insert into sereno.jobs (task, args, state, run_at)
           select 'greet', '{}', 'scheduled', now() + interval '1 hour' from generate_series(1, 10001)"""
    )
    (line,) = manual.app.database.run(queues.list_queues())
    assert line.ready == BoundedCount(10_000, exact=False)
    assert str(line.ready) == ">10,000"
    assert not line.scheduled.exact


def test_the_slots_of_a_dead_worker_are_not_counted(manual: ManualWorker) -> None:
    manual.worker(lease=0.0)
    assert manual.app.database.run(queues.list_queues()) == []
    (line,) = manual.app.database.run(workers.list_workers())
    assert line.state == "expired"


def test_pause_and_resume_are_audited_and_a_second_pause_changes_nothing(manual: ManualWorker) -> None:
    run = manual.app.database.run
    assert run(pauses.pause("queue", "default", note="down", actor="eve@host"))
    assert not run(pauses.pause("queue", "default", note="me too", actor="bob@host"))
    (line,) = run(queues.list_queues())
    assert (line.paused_by, line.note) == ("eve@host", "down")
    assert run(pauses.resume("queue", "default", actor="eve@host"))
    assert not run(pauses.resume("queue", "default"))
    assert manual.audit() == [
        ("eve@host", "queue.pause", "queue default"),
        ("eve@host", "queue.resume", "queue default"),
    ]


def test_a_pause_stops_claims_of_a_queue_a_task_or_a_tenant(manual: ManualWorker) -> None:
    session = manual.worker()
    manual.enqueue(tenant="r1")
    for kind, name in (("queue", "default"), ("task", "greet"), ("tenant", "r1")):
        manual.app.database.run(pauses.pause(kind, name))  # type: ignore[arg-type]  # a value of PauseKind
        assert manual.claim(session) == []
        manual.app.database.run(pauses.resume(kind, name))  # type: ignore[arg-type]  # a value of PauseKind
    assert len(manual.claim(session)) == 1


def test_resume_notifies_workers(manual: ManualWorker) -> None:
    manual.connection.execute('listen "sereno.ready"')
    for kind, name in (("queue", "default"), ("tenant", "r1")):
        manual.app.database.run(pauses.pause(kind, name))  # type: ignore[arg-type]  # a value of PauseKind
        manual.app.database.run(pauses.resume(kind, name))  # type: ignore[arg-type]  # a value of PauseKind
    notified = [notice.payload for notice in manual.connection.notifies(timeout=5, stop_after=2)]
    assert notified == ["default", ""]


def test_the_actor_is_the_user_at_this_machine_unless_given(manual: ManualWorker) -> None:
    manual.app.database.run(pauses.pause("queue", "default"))
    ((actor, _, _),) = manual.audit()
    assert "@" in actor


def test_status_returns_workers_dead_letters_schedules_and_pauses(manual: ManualWorker) -> None:
    manual.dead()
    job_id = manual.enqueue(delay="1h")
    manual.worker(queues={"default": 3})
    manual.app.database.run(pauses.pause("tenant", "r1"))
    found = manual.app.database.run(status())
    assert (found.workers_alive, found.slots, found.dead_letters) == (1, 3, BoundedCount(1))
    assert found.next_scheduled is not None
    assert found.next_scheduled.id == job_id
    assert 3500 < found.next_scheduled.in_seconds <= 3600
    assert [pause.name for pause in found.pauses] == ["r1"]
    assert found.schema_version >= 1


def test_live_workers_are_listed_first(manual: ManualWorker) -> None:
    ended = manual.worker()
    manual.connection.execute("update sereno.sessions set state = 'closed', ended_at = now() where id = %s", [ended])
    alive = manual.worker()
    manual.enqueue()
    manual.claim(alive)
    lines = manual.app.database.run(workers.list_workers())
    assert [(line.id, line.state, line.running) for line in lines] == [(alive, "alive", 1), (ended, "closed", 0)]
    assert 50 < lines[0].lease_seconds <= 60
