"""Operator actions on jobs: list, show, enqueue, retry, cancel, delete."""

from datetime import UTC, datetime
from typing import Any

import pytest

from sereno.database.driver import adrive, drive
from sereno.error_text import describe
from sereno.errors import JobNotFound, Refused
from sereno.jobs import bulk_selection
from sereno.jobs import operations as jobs
from sereno.jobs.attempt import SUCCEEDED, Settlement
from sereno.jobs.filters import JobFilter
from sereno.jobs.rows import KeyConflict
from tests.manual_worker import ManualWorker

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def test_live_and_finished_jobs_are_listed_together_newest_first(manual: ManualWorker) -> None:
    done = manual.finish(SUCCEEDED)
    dead = manual.dead()
    waiting = manual.enqueue()
    page = manual.app.database.run(jobs.list_jobs())
    assert [(line.id, line.state) for line in page.items] == [(waiting, "ready"), (dead, "dead"), (done, "succeeded")]
    assert page.next is None


def test_pages_have_no_gaps_and_no_duplicates(manual: ManualWorker) -> None:
    made = [manual.enqueue() for _ in range(5)] + [manual.dead(), manual.dead()]
    seen: list[int] = []
    before = None
    while True:
        page = manual.app.database.run(jobs.list_jobs(limit=3, before=before))
        seen += [line.id for line in page.items]
        before = page.next
        if before is None:
            break
    assert seen == sorted(made, reverse=True)


FILTERS = (
    (JobFilter(), 5),
    (JobFilter(states=["dead"]), 1),
    (JobFilter(states=["dead", "ready"]), 3),
    (JobFilter(queue="q2"), 1),
    (JobFilter(task="other"), 1),
    (JobFilter(tenant="r1"), 2),
    (JobFilter(tag="blue"), 1),
    (JobFilter(error="CONNECTION reset"), 1),
    (JobFilter(unique_key="k"), 1),
    (JobFilter(finished_after=LONG_AGO), 2),
    (JobFilter(finished_before=LONG_AGO), 0),
    (JobFilter(created_after=LONG_AGO), 5),
    (JobFilter(created_before=LONG_AGO), 0),
    (JobFilter(tenant="r1", states=["succeeded"]), 1),
)


@pytest.mark.slow
def test_a_filter_matches_the_same_jobs_in_lists_counts_and_changes(
    manual: ManualWorker, subtests: pytest.Subtests
) -> None:
    manual.dead(tenant="r1")
    manual.finish(SUCCEEDED, tenant="r1")
    manual.enqueue(queue="q2", tags=["blue"])
    manual.enqueue("other", delay="1h", unique_key="k")
    manual.enqueue()
    database = manual.app.database
    for wanted, count in FILTERS:
        with subtests.test(wanted=wanted):
            assert len(database.run(jobs.list_jobs(wanted)).items) == count
            assert database.run(jobs.count(wanted)).total.value == count
            assert len(database.run(bulk_selection.matching(wanted))) == count


def test_a_filter_on_errors_finds_jobs_that_wait_for_their_retry(manual: ManualWorker) -> None:
    job_id = manual.finish(Settlement("retry", delay=60.0, error=describe(OSError("no route"))))
    (line,) = manual.app.database.run(jobs.list_jobs(JobFilter(error="no route"))).items
    assert (line.id, line.state, line.error_type) == (job_id, "scheduled", "OSError")


def test_show_returns_attempts_steps_and_progress(manual: ManualWorker) -> None:
    session = manual.worker()
    job_id = manual.enqueue(tenant="r1")
    (job,) = manual.claim(session)
    manual.settle(session, job, Settlement("retry", error=describe(OSError("first"))))
    (job,) = manual.claim(session)
    manual.connection.execute("insert into sereno.steps values (%s, 'charged', 2, '{\"sum\": 7}')", [job_id])
    manual.connection.execute("insert into sereno.progress values (%s, 2, 0.5, 'half')", [job_id])
    detail = manual.app.database.run(jobs.show(job_id))
    assert detail.job.args == {"name": "Ada"}
    assert [(attempt.number, attempt.outcome) for attempt in detail.attempts] == [(1, "retry"), (2, "running")]
    assert [(step.name, step.result) for step in detail.steps] == [("charged", {"sum": 7})]
    assert detail.progress is not None
    assert (detail.progress.fraction, detail.progress.note) == (0.5, "half")
    manual.settle(session, job, Settlement("dead", reason="no retries left", error=describe(OSError("second"))))
    detail = manual.app.database.run(jobs.show(job_id))
    assert [(attempt.number, attempt.outcome) for attempt in detail.attempts] == [(1, "retry"), (2, "dead")]
    assert detail.attempts[1].error_message == "second"


def test_show_of_a_job_cancelled_between_two_attempts_does_not_repeat_the_first(manual: ManualWorker) -> None:
    job_id = manual.finish(Settlement("retry", delay=60.0, error=describe(OSError("x"))))
    drive(jobs.cancel(JobFilter(ids=[job_id])), manual.app.database.run)
    detail = manual.app.database.run(jobs.show(job_id))
    assert [(attempt.number, attempt.outcome) for attempt in detail.attempts] == [(1, "retry")]


def test_show_of_an_unknown_job_is_refused(manual: ManualWorker) -> None:
    with pytest.raises(JobNotFound, match="999"):
        manual.app.database.run(jobs.show(999))


def test_enqueue_writes_the_job_and_the_audit_entry(manual: ManualWorker) -> None:
    new = manual.app.new_job("greet", b'{"name": "Bo"}')
    (made,) = manual.app.database.run(jobs.enqueue([new], actor="eve@host"))
    assert manual.state(made.id) == "ready"
    assert manual.audit() == [("eve@host", "job.enqueue", f"job {made.id}")]


def test_retry_makes_a_dead_job_ready_and_is_audited(manual: ManualWorker) -> None:
    job_id = manual.dead()
    changed = drive(jobs.retry(JobFilter(ids=[job_id]), actor="eve@host"), manual.app.database.run)
    assert changed.done == [job_id]
    assert manual.state(job_id) == "ready"
    assert manual.audit() == [("eve@host", "job.retry", f"job {job_id}")]


async def test_retry_works_in_async_code(manual: ManualWorker) -> None:
    job_id = manual.dead()
    changed = await adrive(jobs.retry(JobFilter(states=["dead"]), yes=True), manual.app.database.arun)
    await manual.app.aclose()
    assert changed.done == [job_id]


def test_a_change_by_filter_needs_confirmation(manual: ManualWorker) -> None:
    job_id = manual.dead()
    everything = JobFilter(states=["dead"])
    for operation in (jobs.retry, jobs.cancel, jobs.delete):
        with pytest.raises(Refused, match="--yes"):
            drive(operation(everything), manual.app.database.run)
    assert manual.state(job_id) == "dead"
    assert manual.audit() == []


def test_retry_never_changes_live_jobs(manual: ManualWorker) -> None:
    waiting = manual.enqueue(delay="1h", tenant="r1")
    dead = manual.dead(tenant="r1")
    before = manual.run_at(waiting)
    changed = drive(jobs.retry(JobFilter(tenant="r1"), yes=True), manual.app.database.run)
    assert changed.done == [dead]
    assert manual.run_at(waiting) == before


def test_a_dry_run_counts_and_changes_nothing(manual: ManualWorker) -> None:
    for tenant in ("r1", "r1", "r2"):
        manual.dead(tenant=tenant)
    manual.dead(task="other")
    manual.enqueue()
    tally = manual.app.database.run(jobs.count_retry(JobFilter()))
    assert tally.total.value == 4
    assert tally.by_task == {"greet": 3, "other": 1}
    assert tally.by_queue == {"apart": 4}
    assert tally.by_tenant == {"r1": 2, "r2": 1}
    assert manual.audit() == []


def _many_dead(manual: ManualWorker, count: int) -> None:
    manual.connection.execute(
        """insert into sereno.history (id, finished_at, run_at, created_at, attempt, failures, crashes, snoozes,
                                       releases, priority, state, queue, task, args, reason)
           select n, now(), now(), now(), 1, 1, 0, 0, 0, 5, 'dead', 'default', 'greet', '{"name": "x"}', 'x'
           from generate_series(1, %s) n""",
        [count],
    )


@pytest.mark.slow
def test_a_bulk_retry_runs_in_batches_and_keeps_its_rate_across_them(manual: ManualWorker) -> None:
    _many_dead(manual, 2500)
    changed = drive(jobs.retry(JobFilter(states=["dead"]), rate=100, yes=True), manual.app.database.run)
    assert len(changed.done) == 2500
    row = manual.connection.execute(
        """select count(*), extract(epoch from max(run_at) - min(run_at))::float, count(distinct run_at),
                  count(*) filter (where gap between interval '9.9 ms' and interval '10.1 ms')
           from (select run_at, run_at - lag(run_at) over (order by run_at) as gap from sereno.jobs) as jobs"""
    ).fetchone()
    assert row is not None
    assert row[0] == 2500
    # 2,499 gaps of 10 ms; each of the three batches counts from the start of its own transaction.
    assert row[1] >= 24.99
    assert row[2] == 2500
    assert row[3] >= 2497
    assert len(manual.audit()) == 3
    waiting = manual.connection.execute("select count(*) from sereno.jobs where state = 'scheduled'").fetchone()
    assert waiting is not None
    assert waiting[0] >= 2400


def test_only_one_of_two_dead_jobs_with_the_same_unique_key_is_retried(manual: ManualWorker) -> None:
    first = manual.dead(unique_key="k")
    second = manual.dead(unique_key="k")
    changed = drive(jobs.retry(JobFilter(states=["dead"]), yes=True), manual.app.database.run)
    assert changed.done == [first]
    assert changed.left == [second]
    assert changed.conflicts == [KeyConflict(second, first)]
    assert manual.state(second) == "dead"


def test_a_job_whose_unique_key_is_taken_stays_dead(manual: ManualWorker) -> None:
    dead = manual.dead(unique_key="k")
    live = manual.enqueue(unique_key="k")
    changed = drive(jobs.retry(JobFilter(ids=[dead])), manual.app.database.run)
    assert (changed.done, changed.left) == ([], [dead])
    assert changed.conflicts == [KeyConflict(dead, live)]
    assert manual.audit() == []


def test_cancel_ends_waiting_jobs_and_asks_running_ones_to_stop(manual: ManualWorker) -> None:
    running, ready, later = manual.enqueue(), manual.enqueue(), manual.enqueue(delay="1h")
    manual.claim(manual.worker())
    changed = drive(jobs.cancel(JobFilter(task="greet"), reason="not wanted", yes=True), manual.app.database.run)
    assert (changed.done, changed.stopping) == ([ready, later], [running])
    assert manual.state(ready) == "cancelled"
    detail = manual.app.database.run(jobs.show(running))
    assert detail.job.cancel_requested
    assert manual.app.database.run(jobs.show(later)).job.reason == "not wanted"
    assert [action for _, action, _ in manual.audit()] == ["job.cancel"]


def test_delete_removes_jobs_and_is_audited(manual: ManualWorker) -> None:
    dead, waiting = manual.dead(), manual.enqueue()
    changed = drive(jobs.delete(JobFilter(ids=[dead, waiting])), manual.app.database.run)
    assert changed.done == [dead, waiting]
    assert manual.state(dead) is None
    assert manual.state(waiting) is None
    assert [action for _, action, _ in manual.audit()] == ["job.delete"]


def test_delete_of_a_running_job_is_refused_and_deletes_nothing(manual: ManualWorker) -> None:
    running = manual.enqueue()
    manual.claim(manual.worker())
    waiting = manual.enqueue()
    with pytest.raises(Refused, match=f"{running} is running"):
        drive(jobs.delete(JobFilter(ids=[running, waiting])), manual.app.database.run)
    assert manual.state(waiting) == "ready"
    changed = drive(jobs.delete(JobFilter(task="greet"), yes=True), manual.app.database.run)
    assert changed.done == [waiting]
    assert manual.state(running) == "running"


def test_the_audit_entry_and_the_change_are_one_transaction(manual: ManualWorker) -> None:
    job_id = manual.dead()
    manual.connection.execute("alter table sereno.audit add check (actor <> 'mallory')")
    with pytest.raises(Exception, match="audit"):
        drive(jobs.retry(JobFilter(ids=[job_id]), actor="mallory"), manual.app.database.run)
    assert manual.state(job_id) == "dead"


def test_a_page_is_read_along_the_index_of_each_table(manual: ManualWorker) -> None:
    """Checked by the query plan: one page reads neither all live jobs nor the whole history."""
    _many_dead(manual, 5000)
    manual.connection.execute(
        """insert into sereno.jobs (task, args, state, ready_seq)
           select 'greet', '{}', 'ready', nextval('sereno.ready_seq') from generate_series(1, 5000)"""
    )
    manual.connection.execute("analyze sereno.jobs, sereno.history")
    dead = _plan(manual, JobFilter(states=["dead"]))
    assert "Seq Scan" not in dead
    assert "history_done" not in dead, "a partition that can hold no match is read"
    assert "on jobs" not in dead, "live jobs are read although none can match"
    everything = _plan(manual, JobFilter())
    assert "Merge Append" in everything
    assert "Seq Scan on jobs" not in everything
    assert "Seq Scan on history_dead" not in everything


def _plan(manual: ManualWorker, wanted: JobFilter) -> str:
    statement = next(jobs.list_jobs(wanted, limit=10))
    explain: Any = f"explain {statement.sql}"
    return "\n".join(row[0] for row in manual.connection.execute(explain, statement.params))
