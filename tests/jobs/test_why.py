"""`why`: one test for each reason that a job is not running."""

from sereno.database.driver import drive
from sereno.error_text import describe
from sereno.jobs import operations as jobs
from sereno.jobs import queues
from sereno.jobs.attempt import SUCCEEDED, Settlement
from sereno.jobs.filters import JobFilter
from sereno.jobs.why import why
from tests.manual_worker import ManualWorker


def _why(manual: ManualWorker, job_id: int) -> str:
    return "\n".join(manual.app.database.run(why(job_id)))


def test_unknown(manual: ManualWorker) -> None:
    assert "No job has the id 999" in _why(manual, 999)


def test_succeeded(manual: ManualWorker) -> None:
    text = _why(manual, manual.finish(SUCCEEDED))
    assert text.startswith("It succeeded: it finished at 20")
    assert "after 1 attempt." in text


def test_dead_with_its_reason_and_how_to_retry(manual: ManualWorker) -> None:
    job_id = manual.dead("connection reset")
    text = _why(manual, job_id)
    assert "dead letter" in text
    assert "The reason: failed 1 times." in text
    assert "OSError: connection reset" in text
    assert f"sereno job retry {job_id}" in text


def test_cancelled(manual: ManualWorker) -> None:
    job_id = manual.enqueue()
    drive(jobs.cancel(JobFilter(ids=[job_id]), reason="not wanted"), manual.app.database.run)
    text = _why(manual, job_id)
    assert "It was cancelled" in text
    assert "not wanted" in text


def test_running_with_its_worker_duration_and_progress(manual: ManualWorker) -> None:
    session = manual.worker()
    job_id = manual.enqueue()
    manual.claim(session)
    manual.connection.execute("insert into sereno.progress values (%s, 1, 0.25, 'page 3')", [job_id])
    text = _why(manual, job_id)
    assert f"attempt 1, by worker session {session} (somewhere, pid 4242)" in text
    assert "It is running for" in text
    assert "25% is done, page 3" in text


def test_running_and_asked_to_stop(manual: ManualWorker) -> None:
    manual.worker()
    job_id = manual.enqueue()
    manual.claim(1)
    drive(jobs.cancel(JobFilter(ids=[job_id])), manual.app.database.run)
    assert "A cancel was requested" in _why(manual, job_id)


def test_delayed(manual: ManualWorker) -> None:
    manual.worker()
    text = _why(manual, manual.enqueue(delay="2h"))
    assert "It is scheduled for" in text
    assert "in 2 h" in text or "in 1 h 59 m" in text
    assert "delay" in text


def test_waiting_for_a_retry_after_an_error(manual: ManualWorker) -> None:
    manual.worker(queues={"apart": 1})
    text = _why(manual, manual.finish(Settlement("retry", delay=600.0, error=describe(OSError("no route")))))
    assert "in 10 m" in text or "in 9 m" in text
    assert "Attempt 1 failed (OSError: no route); this is its retry." in text


def test_snoozed(manual: ManualWorker) -> None:
    manual.worker(queues={"apart": 1})
    text = _why(manual, manual.finish(Settlement("snooze", delay=600.0, reason="shop is closed")))
    assert "Attempt 1 snoozed it: shop is closed." in text


def test_due_but_not_promoted_without_a_worker(manual: ManualWorker) -> None:
    job_id = manual.enqueue(delay="1h")
    manual.connection.execute("update sereno.jobs set run_at = now() - interval '2 hours'")
    text = _why(manual, job_id)
    assert "It has been due for 2 h" in text
    assert "No worker is alive" in text


def test_its_queue_task_or_tenant_is_paused_with_actor_and_note(manual: ManualWorker) -> None:
    manual.worker()
    job_id = manual.enqueue(tenant="r1")
    for kind, name, flag in (("queue", "default", ""), ("task", "greet", "--task "), ("tenant", "r1", "--tenant ")):
        manual.app.database.run(queues.pause(kind, name, note="broken", actor="eve@desk"))  # type: ignore[arg-type]  # the words of PauseKind
        text = _why(manual, job_id)
        assert f"Its {kind} {name!r} is paused, by eve@desk at" in text
        assert "'broken'" in text
        assert f"sereno queue resume {flag}{name}" in text
        manual.app.database.run(queues.resume(kind, name))  # type: ignore[arg-type]  # the words of PauseKind


def test_a_pause_of_another_tenant_is_not_the_reason(manual: ManualWorker) -> None:
    manual.worker()
    manual.app.database.run(queues.pause("tenant", "r2"))
    assert "paused" not in _why(manual, manual.enqueue(tenant="r1"))


def test_no_worker_at_all(manual: ManualWorker) -> None:
    assert "No worker is alive" in _why(manual, manual.enqueue())


def test_no_worker_serves_its_queue(manual: ManualWorker) -> None:
    manual.worker(queues={"elsewhere": 1})
    assert "No live worker serves its queue 'default'" in _why(manual, manual.enqueue())


def test_no_worker_knows_its_task(manual: ManualWorker) -> None:
    manual.worker(tasks=["other"])
    assert "knows its task 'greet'" in _why(manual, manual.enqueue())


def test_every_slot_is_busy(manual: ManualWorker) -> None:
    session = manual.worker(queues={"default": 1})
    manual.enqueue()
    manual.claim(session)
    assert "All 1 slots of the workers of its queue 'default' are busy." in _why(manual, manual.enqueue())


def test_behind_others_by_priority_and_arrival(manual: ManualWorker) -> None:
    manual.worker()
    manual.enqueue()
    urgent = manual.enqueue(priority=1)
    job_id = manual.enqueue()
    manual.enqueue()
    manual.enqueue(queue="elsewhere")
    assert "2 jobs are ahead of it" in _why(manual, job_id)
    assert "ahead" not in _why(manual, urgent)


def test_no_reason_to_wait(manual: ManualWorker) -> None:
    manual.worker()
    assert _why(manual, manual.enqueue()) == ("It should start within moments; if it does not, run `sereno doctor`.")


def test_expired_before_it_could_run(manual: ManualWorker) -> None:
    manual.worker()
    job_id = manual.enqueue()
    manual.connection.execute("update sereno.jobs set expires_at = now() - interval '1 minute'")
    assert "It expired at" in _why(manual, job_id)
