"""The cycle of the job runner: its counts, its line in the log, and the views of the original design."""

import asyncio
from typing import Any

import psycopg
import pytest

from separate_worker.leads import follow_up, push_lead
from separate_worker.metrics import exposition, metrics
from separate_worker.queues import app, connect, settings
from separate_worker.runner import COMPLETE, CYCLE
from separate_worker.stand_ins import Crm
from separate_worker.tests.conftest import new_lead, scalar, until
from separate_worker.tests.processes import Process, Processes
from sereno.testing.kit import Kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

RHYTHM = {"JOB_RUNNER_INTERVAL_MS": "300"}
# Why no cycle could run.
BREAK = "alter table separate_worker.leads rename column followed_by to away"
REPAIR = "alter table separate_worker.leads rename column away to followed_by"


async def execute(statement: str) -> None:
    async with await connect() as connection:
        await connection.execute(statement.encode())


async def rows(statement: str) -> list[Any]:
    async with await connect() as connection:
        # As the original design writes them: without a schema.
        await connection.execute("set search_path = separate_worker")
        return await (await connection.execute(statement.encode())).fetchall()


async def test_the_cycle_enqueues_due_leads_once_and_counts_all_jobs_that_ended(kit: Kit, crm: Crm) -> None:
    await kit.adrain()
    empty = await metrics()
    assert (empty.last_run_at, empty.last_run_job_count, empty.last_run_error) == (None, None, None)
    for number in range(3):
        await new_lead(f"form-{number}")
    await new_lead("form-3", email="ada@example.invalid")
    await kit.adrain()
    await execute("update separate_worker.leads set follow_up_at = now() where id < 3")
    kit.travel(settings.interval)
    assert not (await kit.adrain()).failed
    # Three leads were passed on and one is a dead letter.
    found = await metrics()
    assert (found.last_run_job_count, found.last_run_error) == (4, None)
    assert found.last_run_at is not None
    assert type(found.last_run_duration_ms) is int
    (run,) = kit.jobs(CYCLE)
    assert await (await app.jobs.aget(run.id)).aresult() == {"job_count": 4, "follow_ups": 2}
    # The two follow-ups ended after that run: the next one counts them, and no job is counted twice.
    kit.assert_enqueued(follow_up, times=2)
    assert crm.calls("follow-ups-1") == 1
    for expected in (2, 0):
        kit.travel(settings.interval)
        assert not (await kit.adrain()).failed
        assert (await metrics()).last_run_job_count == expected


async def test_a_failed_cycle_reports_its_error_and_the_next_one_finds_the_same_leads(kit: Kit, crm: Crm) -> None:
    await new_lead("form-1")
    await kit.adrain()
    await execute("update separate_worker.leads set follow_up_at = now()")
    await execute(BREAK)
    try:
        kit.travel(settings.interval)
        assert [job.task for job in (await kit.adrain()).failed] == [CYCLE]
    finally:
        await execute(REPAIR)
    found = await metrics()
    assert "followed_by" in str(found.last_run_error)
    assert (found.dead, found.last_run_job_count) == (1, 0)
    assert b"separate_worker_last_run_failed 1.0" in await exposition()
    kit.travel(settings.interval)
    await kit.adrain()
    # What the failed run had counted was rolled back with it.
    assert ((await metrics()).last_run_job_count, (await metrics()).last_run_error) == (1, None)
    assert crm.calls("follow-ups-1") == 1


async def test_every_cycle_has_a_line_in_the_log_of_the_worker(kit: Kit, crm: Crm, processes: Processes) -> None:
    worker = processes.start(**RHYTHM, WORKER_MODE="1")
    jobs = [await new_lead(f"form-{number}") for number in range(5)]
    await until(lambda: all(kit.job(job).state == "succeeded" for job in jobs))
    await until(lambda: sum(line["jobCount"] for line in worker.events(COMPLETE)) == len(jobs))
    # A cycle that fails.
    await execute(BREAK)
    try:
        await until(lambda: any(line["error"] for line in worker.events(COMPLETE)))
    finally:
        await execute(REPAIR)
    # Cycles that are skipped, because the one before them takes long.
    async with await connect() as connection, connection.transaction():
        await connection.execute("lock table separate_worker.leads in exclusive mode")
        await until(lambda: scalar("select count(*) from separate_worker.skipped_cycles"))
    await until(lambda: any(not line["lockAcquired"] for line in worker.events(COMPLETE)))
    worker.terminate()
    assert await worker.ended() == 0
    lines = worker.events(COMPLETE)
    done, failed, skipped = (
        [line for line in lines if line["lockAcquired"] is locked and bool(line["error"]) is is_error]
        for locked, is_error in ((True, False), (True, True), (False, False))
    )
    assert len(done) + len(failed) + len(skipped) == len(lines)
    assert all(type(line["durationMs"]) is int and type(line["jobCount"]) is int for line in lines)
    assert {line["level"] for line in done} == {"info"}
    # Null is written, as in the original design.
    assert {line["error"] for line in done} == {None}
    assert {(line["level"], line["jobCount"]) for line in failed} == {("error", 0)}
    assert all("followed_by" in line["error"] for line in failed)
    assert {(line["durationMs"], line["jobCount"], line["skipped"]) for line in skipped} == {(0, 0, "overlap")}
    # One line for each run, one for each instant that was skipped, and each job in one of the counts.
    runs = await scalar("select count(*) from separate_worker.cycles")
    assert runs == len(done) + len(failed)
    assert sum(line["jobCount"] for line in lines) == len(jobs)
    stored = await scalar("select sum((result ->> 'job_count')::integer) from separate_worker.cycles")
    assert stored == len(jobs)


async def test_the_selects_of_the_original_design_show_the_lock_and_the_state(
    kit: Kit, crm: Crm, processes: Processes
) -> None:
    assert await rows("SELECT * FROM job_runner_lock;") == []
    assert await rows("SELECT * FROM job_runner_state;") == []
    api = processes.start()
    worker = processes.start(**RHYTHM, WORKER_MODE="1")
    job = await new_lead("form-1")
    await until(lambda: kit.job(job).state == "succeeded")
    await until(lambda: rows("SELECT * FROM job_runner_state WHERE last_run_job_count = 0;"))
    ((key, locked_by, locked_at, expires_at, created_at, updated_at),) = await rows("SELECT * FROM job_runner_lock;")
    assert key == "singleton"
    assert f":{worker.pid}:" in locked_by
    assert created_at == locked_at <= updated_at < expires_at
    await until(lambda: api.url)
    found = await api.metrics()
    assert found["lockedBy"] == locked_by
    assert found["lastRunError"] is None
    assert type(found["lastRunDurationMs"]) is int
    ((key, at, duration, count, error, _, ended),) = await rows("SELECT * FROM job_runner_state;")
    assert (key, type(duration), type(count), error) == ("singleton", int, int, None)
    assert at <= ended
    await a_lock_cannot_be_changed()
    # A stop releases the lock; after a kill it expires.
    worker.terminate()
    assert await worker.ended() == 0
    assert await rows("SELECT * FROM job_runner_lock;") == []
    await until_next_holder(kit, processes)


async def a_lock_cannot_be_changed() -> None:
    """The remedy of the original design would let a second worker run what the first one is running."""
    for statement in ("DELETE FROM job_runner_lock", "UPDATE job_runner_lock SET expires_at = now()"):
        with pytest.raises(psycopg.errors.RaiseException, match="expires by itself"):
            await rows(statement)
    assert len(await rows("SELECT * FROM job_runner_lock;")) == 1


async def until_next_holder(kit: Kit, processes: Processes) -> None:
    killed = processes.start(**RHYTHM, WORKER_MODE="1")
    await until(lambda: _holds(killed))
    killed.kill()
    kit.lose_leases()
    assert await rows("SELECT * FROM job_runner_lock;") == []
    second = processes.start(**RHYTHM, WORKER_MODE="1")
    await until(lambda: _holds(second))


async def _holds(worker: Process) -> bool:
    return f":{worker.pid}:" in str(await scalar("select locked_by from separate_worker.job_runner_lock"))


async def test_the_state_is_read_by_index_however_long_the_history_is(kit: Kit) -> None:
    async with await connect() as connection:
        await app.adeclare()
        plan = await (
            await connection.execute("explain (costs off) select * from separate_worker.job_runner_state")
        ).fetchall()
    text = "\n".join(line for (line,) in plan)
    assert "Seq Scan on history" not in text
    assert "Seq Scan on jobs" not in text


async def test_one_at_a_time_is_a_switch(kit: Kit, crm: Crm, processes: Processes) -> None:
    jobs = [await new_lead(f"form-{number}") for number in range(8)]
    crm.open.clear()
    switch = {"WORKER_MODE": "1", "SEPARATE_WORKER_ONE_AT_A_TIME": "true"}
    workers = [processes.start(**switch) for _ in range(2)]
    await until(lambda: crm.log)
    await until(lambda: _alive(len(workers)))
    states = [kit.job(job).state for job in jobs]
    assert (states.count("running"), states.count("ready")) == (1, 7)
    _, why = await processes.run("sereno", "why", str(jobs[states.index("ready")]))
    assert "separate_worker.one_at_a_time" in why
    crm.open.set()
    await until(lambda: all(kit.job(job).state == "succeeded" for job in jobs))
    assert (len(crm.log), crm.most_at_once) == (8, 1)


async def _alive(number: int) -> bool:
    return len((await metrics()).workers) == number


async def test_a_job_that_is_in_progress_is_counted_by_the_cycle_that_sees_it_ended(kit: Kit, crm: Crm) -> None:
    """Its commit may come after the count of a cycle that started before."""
    job = await new_lead("form-1")
    crm.open.clear()
    draining = asyncio.create_task(kit.adrain())
    await until(lambda: crm.log)
    kit.travel(settings.interval)
    await app.schedules.atick()
    await until(lambda: kit.jobs(CYCLE, state="succeeded"))
    assert (await metrics()).last_run_job_count == 0
    crm.open.set()
    await draining
    assert kit.job(job).state == "succeeded"
    kit.travel(settings.interval)
    await kit.adrain()
    assert (await metrics()).last_run_job_count == 1
    kit.assert_enqueued(push_lead, times=1)
