"""`why`: one test for each reason that a job is not running."""

from sereno.database.driver import drive
from sereno.error_text import describe
from sereno.jobs import operations as jobs
from sereno.jobs import pauses
from sereno.jobs.attempt import SUCCEEDED, Settlement
from sereno.jobs.filters import JobFilter
from sereno.jobs.queries.why import why
from tests.manual_worker import ManualWorker


def _why(manual: ManualWorker, job_id: int) -> str:
    return "\n".join(manual.app.database.run(why(job_id)))


def test_why_reports_an_unknown_job(manual: ManualWorker) -> None:
    assert "No job has the id 999" in _why(manual, 999)


def test_why_reports_a_success(manual: ManualWorker) -> None:
    text = _why(manual, manual.finish(SUCCEEDED))
    assert text.startswith("It succeeded: it finished at 20")
    assert "after 1 attempt." in text


def test_why_reports_a_dead_job_its_reason_and_how_to_retry_it(manual: ManualWorker) -> None:
    job_id = manual.dead("connection reset")
    text = _why(manual, job_id)
    assert "dead letter" in text
    assert "The reason: failed 1 times." in text
    assert "OSError: connection reset" in text
    assert f"sereno job retry {job_id}" in text


def test_why_reports_a_cancelled_job_and_its_reason(manual: ManualWorker) -> None:
    job_id = manual.enqueue()
    drive(jobs.cancel(JobFilter(ids=[job_id]), reason="not wanted"), manual.app.database.run)
    text = _why(manual, job_id)
    assert "It was cancelled" in text
    assert "not wanted" in text


def test_why_reports_the_worker_duration_and_progress_of_a_running_job(manual: ManualWorker) -> None:
    session = manual.worker()
    job_id = manual.enqueue()
    manual.claim(session)
    manual.connection.execute("insert into sereno.progress values (%s, 1, 0.25, 'page 3')", [job_id])
    text = _why(manual, job_id)
    assert f"attempt 1, by worker session {session} (somewhere, pid 4242)" in text
    assert "It is running for" in text
    assert "25% is done, page 3" in text


def test_why_reports_a_requested_cancel(manual: ManualWorker) -> None:
    manual.worker()
    job_id = manual.enqueue()
    manual.claim(1)
    drive(jobs.cancel(JobFilter(ids=[job_id])), manual.app.database.run)
    assert "A cancel was requested" in _why(manual, job_id)


def test_why_reports_a_delay(manual: ManualWorker) -> None:
    manual.worker()
    text = _why(manual, manual.enqueue(delay="2h"))
    assert "It is scheduled for" in text
    assert "in 2 h" in text or "in 1 h 59 m" in text
    assert "delay" in text


def test_why_reports_the_error_before_a_retry(manual: ManualWorker) -> None:
    manual.worker(queues={"apart": 1})
    text = _why(manual, manual.finish(Settlement("retry", delay=600.0, error=describe(OSError("no route")))))
    assert "in 10 m" in text or "in 9 m" in text
    assert "Attempt 1 failed (OSError: no route); this is its retry." in text


def test_why_reports_the_reason_of_a_snooze(manual: ManualWorker) -> None:
    manual.worker(queues={"apart": 1})
    text = _why(manual, manual.finish(Settlement("snooze", delay=600.0, reason="shop is closed")))
    assert "Attempt 1 snoozed it: shop is closed." in text


def test_why_reports_a_due_job_without_a_worker(manual: ManualWorker) -> None:
    job_id = manual.enqueue(delay="1h")
    manual.connection.execute("update sereno.jobs set run_at = now() - interval '2 hours'")
    text = _why(manual, job_id)
    assert "It has been due for 2 h" in text
    assert "No worker is alive" in text


def test_why_reports_a_pause_with_its_actor_and_note(manual: ManualWorker) -> None:
    manual.worker()
    job_id = manual.enqueue(tenant="r1")
    for kind, name, flag in (("queue", "default", ""), ("task", "greet", "--task "), ("tenant", "r1", "--tenant ")):
        manual.app.database.run(pauses.pause(kind, name, note="broken", actor="eve@host"))  # type: ignore[arg-type]  # a value of PauseKind
        text = _why(manual, job_id)
        assert f"Its {kind} {name!r} is paused, by eve@host at" in text
        assert "'broken'" in text
        assert f"sereno queue resume {flag}{name}" in text
        manual.app.database.run(pauses.resume(kind, name))  # type: ignore[arg-type]  # a value of PauseKind


def test_why_ignores_a_pause_of_another_tenant(manual: ManualWorker) -> None:
    manual.worker()
    manual.app.database.run(pauses.pause("tenant", "r2"))
    assert "paused" not in _why(manual, manual.enqueue(tenant="r1"))


def test_why_reports_that_no_worker_is_alive(manual: ManualWorker) -> None:
    assert "No worker is alive" in _why(manual, manual.enqueue())


def test_why_reports_that_no_worker_serves_its_queue(manual: ManualWorker) -> None:
    manual.worker(queues={"elsewhere": 1})
    assert "No live worker serves its queue 'default'" in _why(manual, manual.enqueue())


def test_why_reports_that_no_worker_knows_its_task(manual: ManualWorker) -> None:
    manual.worker(tasks=["other"])
    assert "knows its task 'greet'" in _why(manual, manual.enqueue())


def test_why_reports_that_every_slot_is_busy(manual: ManualWorker) -> None:
    session = manual.worker(queues={"default": 1})
    manual.enqueue()
    manual.claim(session)
    assert "All 1 slots of the workers of its queue 'default' are busy." in _why(manual, manual.enqueue())


def test_why_counts_the_jobs_ahead(manual: ManualWorker) -> None:
    manual.worker()
    manual.enqueue()
    urgent = manual.enqueue(priority=1)
    job_id = manual.enqueue()
    manual.enqueue()
    manual.enqueue(queue="elsewhere")
    assert "2 jobs are ahead of it" in _why(manual, job_id)
    assert "ahead" not in _why(manual, urgent)


def test_why_reports_that_a_job_should_start_soon(manual: ManualWorker) -> None:
    manual.worker()
    assert _why(manual, manual.enqueue()) == ("It should start within moments; if it does not, run `sereno doctor`.")


def test_why_reports_an_expired_job(manual: ManualWorker) -> None:
    manual.worker()
    job_id = manual.enqueue()
    manual.connection.execute("update sereno.jobs set expires_at = now() - interval '1 minute'")
    assert "It expired at" in _why(manual, job_id)
