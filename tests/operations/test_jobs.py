"""What a person sees of jobs and may do to them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from sereno.access import audit
from sereno.database.plan import acarry_out, carry_out
from sereno.error_text import describe
from sereno.errors import JobNotFound, Refused
from sereno.jobs import operations as jobs
from sereno.jobs.attempt import SUCCEEDED, Settlement
from sereno.jobs.job_filter import JobFilter
from sereno.jobs.transitions import KeyConflict
from tests.operations.conftest import House

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def test_live_and_finished_jobs_are_one_list_newest_first(house: House) -> None:
    done = house.finish(SUCCEEDED)
    dead = house.dead()
    waiting = house.enqueue()
    page = house.app.database.run(jobs.list_jobs())
    assert [(line.id, line.state) for line in page.items] == [(waiting, "ready"), (dead, "dead"), (done, "succeeded")]
    assert page.next is None


def test_pages_follow_each_other_without_a_gap_or_a_double(house: House) -> None:
    made = [house.enqueue() for _ in range(5)] + [house.dead(), house.dead()]
    seen: list[int] = []
    before = None
    while True:
        page = house.app.database.run(jobs.list_jobs(limit=3, before=before))
        seen += [line.id for line in page.items]
        before = page.next
        if before is None:
            break
    assert seen == sorted(made, reverse=True)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
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
    ],
    ids=str,
)
def test_a_filter_means_the_same_for_lists_counts_and_changes(house: House, wanted: JobFilter, count: int) -> None:
    house.dead(tenant="r1")
    house.finish(SUCCEEDED, tenant="r1")
    house.enqueue(queue="q2", tags=["blue"])
    house.enqueue("other", delay="1h", unique_key="k")
    house.enqueue()
    database = house.app.database
    assert len(database.run(jobs.list_jobs(wanted)).items) == count
    assert database.run(jobs.count(wanted)).total.value == count
    assert len(database.run(audit.matching(wanted))) == count


def test_a_filter_on_errors_finds_jobs_that_wait_for_their_retry(house: House) -> None:
    job_id = house.finish(Settlement("retry", delay=60.0, error=describe(OSError("no route"))))
    (line,) = house.app.database.run(jobs.list_jobs(JobFilter(error="no route"))).items
    assert (line.id, line.state, line.error_type) == (job_id, "scheduled", "OSError")


def test_show_tells_the_whole_story(house: House) -> None:
    session = house.worker()
    job_id = house.enqueue(tenant="r1")
    (job,) = house.claim(session)
    house.settle(session, job, Settlement("retry", error=describe(OSError("first"))))
    (job,) = house.claim(session)
    house.connection.execute("insert into sereno.steps values (%s, 'charged', 2, '{\"sum\": 7}')", [job_id])
    house.connection.execute("insert into sereno.progress values (%s, 2, 0.5, 'half')", [job_id])
    detail = house.app.database.run(jobs.show(job_id))
    assert detail.job.args == {"name": "Ada"}
    assert [(attempt.number, attempt.outcome) for attempt in detail.attempts] == [(1, "retry"), (2, "running")]
    assert [(step.name, step.result) for step in detail.steps] == [("charged", {"sum": 7})]
    assert detail.progress is not None
    assert (detail.progress.fraction, detail.progress.note) == (0.5, "half")
    house.settle(session, job, Settlement("dead", reason="enough", error=describe(OSError("second"))))
    detail = house.app.database.run(jobs.show(job_id))
    assert [(attempt.number, attempt.outcome) for attempt in detail.attempts] == [(1, "retry"), (2, "dead")]
    assert detail.attempts[1].error_message == "second"


def test_show_of_a_job_cancelled_between_two_attempts_does_not_repeat_the_first(house: House) -> None:
    job_id = house.finish(Settlement("retry", delay=60.0, error=describe(OSError("x"))))
    carry_out(house.app.database, jobs.cancel(JobFilter(ids=[job_id])))
    detail = house.app.database.run(jobs.show(job_id))
    assert [(attempt.number, attempt.outcome) for attempt in detail.attempts] == [(1, "retry")]


def test_show_of_an_unknown_job(house: House) -> None:
    with pytest.raises(JobNotFound, match="999"):
        house.app.database.run(jobs.show(999))


def test_enqueue_writes_the_job_and_who_asked(house: House) -> None:
    new = house.app.new_job("greet", b'{"name": "Bo"}')
    (made,) = house.app.database.run(jobs.enqueue([new], actor="eve@desk"))
    assert house.state(made.id) == "ready"
    assert house.audit() == [("eve@desk", "job.enqueue", f"job {made.id}")]


def test_retry_sends_a_dead_job_back_and_is_audited(house: House) -> None:
    job_id = house.dead()
    changed = carry_out(house.app.database, jobs.retry(JobFilter(ids=[job_id]), actor="eve@desk"))
    assert changed.done == [job_id]
    assert house.state(job_id) == "ready"
    assert house.audit() == [("eve@desk", "job.retry", f"job {job_id}")]


async def test_retry_works_for_async_code_too(house: House) -> None:
    job_id = house.dead()
    changed = await acarry_out(house.app.database, jobs.retry(JobFilter(states=["dead"]), yes=True))
    await house.app.aclose()
    assert changed.done == [job_id]


def test_a_filter_needs_a_yes(house: House) -> None:
    job_id = house.dead()
    everything = JobFilter(states=["dead"])
    for operation in (jobs.retry, jobs.cancel, jobs.delete):
        with pytest.raises(Refused, match="--yes"):
            carry_out(house.app.database, operation(everything))
    assert house.state(job_id) == "dead"
    assert house.audit() == []


def test_retry_never_touches_live_jobs(house: House) -> None:
    waiting = house.enqueue(delay="1h", tenant="r1")
    dead = house.dead(tenant="r1")
    before = house.run_at(waiting)
    changed = carry_out(house.app.database, jobs.retry(JobFilter(tenant="r1"), yes=True))
    assert changed.done == [dead]
    assert house.run_at(waiting) == before


def test_a_dry_run_counts_and_does_nothing(house: House) -> None:
    for tenant in ("r1", "r1", "r2"):
        house.dead(tenant=tenant)
    house.dead(task="other")
    house.enqueue()
    tally = house.app.database.run(jobs.count_retry(JobFilter()))
    assert tally.total.value == 4
    assert tally.by_task == {"greet": 3, "other": 1}
    assert tally.by_queue == {"apart": 4}
    assert tally.by_tenant == {"r1": 2, "r2": 1}
    assert house.audit() == []


def _many_dead(house: House, count: int) -> None:
    house.connection.execute(
        """insert into sereno.history (id, finished_at, run_at, created_at, attempt, failures, crashes, snoozes,
                                       releases, priority, state, queue, task, args, reason)
           select n, now(), now(), now(), 1, 1, 0, 0, 0, 5, 'dead', 'default', 'greet', '{"name": "x"}', 'x'
           from generate_series(1, %s) n""",
        [count],
    )


def test_a_bulk_retry_goes_in_batches_and_keeps_its_rate_across_them(house: House) -> None:
    _many_dead(house, 2500)
    changed = carry_out(house.app.database, jobs.retry(JobFilter(states=["dead"]), rate=100, yes=True))
    assert len(changed.done) == 2500
    row = house.connection.execute(
        "select count(*), extract(epoch from max(run_at) - min(run_at))::float, count(distinct run_at) from sereno.jobs"
    ).fetchone()
    assert row is not None
    assert row[0] == 2500
    # 2,499 gaps of 10 ms; each batch counts from its own transaction's clock.
    assert 24.99 <= row[1] < 26
    assert row[2] == 2500
    assert len(house.audit()) == 3
    waiting = house.connection.execute("select count(*) from sereno.jobs where state = 'scheduled'").fetchone()
    assert waiting is not None
    assert waiting[0] >= 2400


def test_of_two_dead_jobs_with_one_unique_key_only_one_comes_back(house: House) -> None:
    first = house.dead(unique_key="k")
    second = house.dead(unique_key="k")
    changed = carry_out(house.app.database, jobs.retry(JobFilter(states=["dead"]), yes=True))
    assert changed.done == [first]
    assert changed.left == [second]
    assert changed.conflicts == [KeyConflict(second, first)]
    assert house.state(second) == "dead"


def test_a_job_whose_unique_key_is_taken_stays_dead(house: House) -> None:
    dead = house.dead(unique_key="k")
    live = house.enqueue(unique_key="k")
    changed = carry_out(house.app.database, jobs.retry(JobFilter(ids=[dead])))
    assert (changed.done, changed.left) == ([], [dead])
    assert changed.conflicts == [KeyConflict(dead, live)]
    assert house.audit() == []


def test_cancel_ends_what_waits_and_asks_what_runs(house: House) -> None:
    running, ready, later = house.enqueue(), house.enqueue(), house.enqueue(delay="1h")
    house.claim(house.worker())
    changed = carry_out(house.app.database, jobs.cancel(JobFilter(task="greet"), reason="not wanted", yes=True))
    assert (changed.done, changed.asked) == ([ready, later], [running])
    assert house.state(ready) == "cancelled"
    detail = house.app.database.run(jobs.show(running))
    assert detail.job.cancel_requested
    assert house.app.database.run(jobs.show(later)).job.reason == "not wanted"
    assert [action for _, action, _ in house.audit()] == ["job.cancel"]


def test_delete_removes_and_is_audited(house: House) -> None:
    dead, waiting = house.dead(), house.enqueue()
    changed = carry_out(house.app.database, jobs.delete(JobFilter(ids=[dead, waiting])))
    assert changed.done == [dead, waiting]
    assert house.state(dead) is None
    assert house.state(waiting) is None
    assert [action for _, action, _ in house.audit()] == ["job.delete"]


def test_delete_refuses_a_running_job_and_then_deletes_nothing(house: House) -> None:
    running = house.enqueue()
    house.claim(house.worker())
    waiting = house.enqueue()
    with pytest.raises(Refused, match=f"{running} is running"):
        carry_out(house.app.database, jobs.delete(JobFilter(ids=[running, waiting])))
    assert house.state(waiting) == "ready"
    changed = carry_out(house.app.database, jobs.delete(JobFilter(task="greet"), yes=True))
    assert changed.done == [waiting]
    assert house.state(running) == "running"


def test_the_audit_fails_with_the_change_or_not_at_all(house: House) -> None:
    job_id = house.dead()
    house.connection.execute("alter table sereno.audit add check (actor <> 'mallory')")
    with pytest.raises(Exception, match="audit"):
        carry_out(house.app.database, jobs.retry(JobFilter(ids=[job_id]), actor="mallory"))
    assert house.state(job_id) == "dead"


def test_a_page_is_read_along_the_index_of_either_side(house: House) -> None:
    """The plan, not the clock: neither a million live jobs nor a long history is read for one page."""
    _many_dead(house, 20_000)
    house.connection.execute(
        """insert into sereno.jobs (task, args, state, ready_seq)
           select 'greet', '{}', 'ready', nextval('sereno.ready_seq') from generate_series(1, 20000)"""
    )
    house.connection.execute("analyze sereno.jobs, sereno.history")
    dead = _plan(house, JobFilter(states=["dead"]))
    assert "Seq Scan" not in dead
    assert "history_done" not in dead, "a partition that can hold no match is read"
    assert "on jobs" not in dead, "live jobs are read although none can match"
    everything = _plan(house, JobFilter())
    assert "Merge Append" in everything
    assert "Seq Scan on jobs" not in everything
    assert "Seq Scan on history_dead" not in everything


def _plan(house: House, wanted: JobFilter) -> str:
    statement = next(jobs.list_jobs(wanted, limit=10))
    explain: Any = f"explain {statement.sql}"
    return "\n".join(row[0] for row in house.connection.execute(explain, statement.params))
