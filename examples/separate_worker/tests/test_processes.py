"""Real processes in each mode: their jobs, their metrics and their shutdown."""

import asyncio
import re

import aiohttp
import pytest
from psycopg import sql

from separate_worker.app import app
from separate_worker.leads import NewLead, add_lead
from separate_worker.metrics import metrics
from separate_worker.queues import connect, settings
from separate_worker.runner import CYCLE
from separate_worker.settings import read
from separate_worker.stand_ins import Crm
from separate_worker.tests.conftest import PATIENCE, until, violated_invariants
from separate_worker.tests.processes import Process, Processes
from sereno import ConfigurationError, Every
from sereno.testing.kit import Kit

# Each test starts several processes, possibly on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WORKER = {"WORKER_MODE": "1"}
MONOLITH = {"JOB_RUNNER_ENABLED": "true"}
# uvicorn re-raises the signal that stopped it.
UVICORN_ENDS = (0, -15)
_HEALTH = re.compile(r'"msg": "[^"]*:(\d+)[^"]*", "event": "health.started"')


async def leads(*references: str, organisation: str = "acme") -> list[int]:
    async with await connect() as connection:
        jobs = [await add_lead(connection, organisation, NewLead(each, f"{each}@example.org")) for each in references]
    return [job.id for job in jobs if job is not None]


def test_the_environment_selects_the_mode(subtests: pytest.Subtests) -> None:
    for given, is_worker, runs_jobs in [
        ({}, False, False),
        ({"WORKER_MODE": "0", "JOB_RUNNER_ENABLED": "false"}, False, False),
        ({"WORKER_MODE": "0", "JOB_RUNNER_ENABLED": "true"}, False, True),
        ({"WORKER_MODE": "1"}, True, True),
        ({"WORKER_MODE": "1", "JOB_RUNNER_ENABLED": "true"}, True, True),
    ]:
        with subtests.test(given=given, is_worker=is_worker, runs_jobs=runs_jobs):
            found = read(given)
            assert (found.is_worker, found.runs_jobs) == (is_worker, runs_jobs)


def test_the_interval_of_the_cycle_is_a_variable() -> None:
    assert [read(given).interval for given in ({}, {"JOB_RUNNER_INTERVAL_MS": "300"})] == [5.0, 0.3]
    declared = app.schedules.declared[CYCLE]
    assert declared.when == Every(settings.interval)


def test_invalid_settings_are_refused(subtests: pytest.Subtests) -> None:
    for given in [
        {"WORKER_MODE": "1", "JOB_RUNNER_ENABLED": "false"},
        {"WORKER_MODE": "maybe"},
        {"JOB_RUNNER_INTERVAL_MS": "0"},
        {"SEPARATE_WORKER_ONE_AT_A_TIME": "2"},
        {"SEPARATE_WORKER_RETRIES": "-1"},
        {"JOB_RUNNER_INTERVAL_MS": "-5\x1b[31m"},
    ]:
        with subtests.test(given=given), pytest.raises(ConfigurationError, match=next(iter(given))):
            read(given)


async def test_a_worker_imports_no_http_server(processes: Processes) -> None:
    loaded = "import sys, separate_worker.app; print(*{'fastapi', 'starlette', 'uvicorn'} & sys.modules.keys())"
    assert await processes.python("-c", loaded) == (0, "\n")


async def test_a_worker_with_jobs_disabled_does_not_start(processes: Processes) -> None:
    process = processes.start(WORKER_MODE="1", JOB_RUNNER_ENABLED="false")
    assert await process.ended() == 1
    assert process.output.startswith("Error: WORKER_MODE=1 and JOB_RUNNER_ENABLED=false")


async def test_an_api_runs_no_jobs_a_worker_does_and_all_interfaces_name_it(
    kit: Kit, crm: Crm, processes: Processes
) -> None:
    api = processes.start()
    await until(lambda: api.url)
    (job,) = await leads("form-1")
    found = await api.metrics()
    assert (found["workers"], found["lockedBy"], found["waiting"]) == ([], None, 1)
    code, text = await processes.run("sereno", "why", str(job))
    assert (code, "no worker is alive" in text.lower()) == (0, True), text
    assert (kit.job(job).state, crm.log) == ("ready", [])
    worker = processes.start(**WORKER, SERENO_HEALTH_PORT="0")
    await until(lambda: kit.job(job).state == "succeeded" and _HEALTH.search(worker.output))
    _, secret = await processes.run("sereno", "token", "create", "me", "--role", "viewer")
    token = next(line for line in secret.splitlines() if line.startswith("srn_"))
    headers, timeout = {"Authorization": f"Bearer {token}"}, aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout, raise_for_status=True) as http:

        async def leader() -> str | None:
            found = (await (await http.get(f"{api.url}/sereno/api/v1/status")).json())["scheduler"]
            return str(found["holder"]) if found["alive"] else None

        holder = await until(leader)
        (session,) = (await (await http.get(f"{api.url}/sereno/api/v1/workers")).json())["items"]

        async def is_counted() -> bool:
            """The job process sends its counters to the health endpoint's process every second."""
            url = f"http://127.0.0.1:{_HEALTH.findall(worker.output)[0]}/metrics"
            text = await (await http.get(url)).text()
            return 'task="separate_worker.push_lead"' in text

        await until(is_counted)
    assert f":{worker.pid}:" in holder
    found = await api.metrics()
    assert found["lockedBy"] == holder
    assert [each["session"] for each in found["workers"]] == [session["id"]]
    status, workers = await asyncio.gather(
        processes.run("sereno", "status", "-o", "json"), processes.run("sereno", "worker", "list", "-o", "jsonl")
    )
    assert holder in status[1]
    assert f'"pid":{session["pid"]}' in workers[1]


async def test_each_organisation_has_its_own_rate(kit: Kit, crm: Crm, processes: Processes) -> None:
    processes.start(**WORKER, SERENO_POLL="0.2")
    (first,) = await leads("form-0")
    await until(lambda: kit.job(first).state == "succeeded")
    app.limits.set("separate_worker.organisation", rate=1, per="1h")
    kit.travel("1h")
    waiting = await leads("form-1", "form-2", "form-3")
    (other,) = await leads("form-1", organisation="globex")
    await until(lambda: kit.job(other).state == "succeeded" and kit.job(waiting[0]).state == "succeeded")
    assert [kit.job(job).state for job in waiting] == ["succeeded", "ready", "ready"]
    _, text = await processes.run("sereno", "why", str(waiting[1]))
    assert "separate_worker.organisation" in text
    assert "acme" in text
    kit.travel("1h")
    await until(lambda: kit.job(waiting[1]).state == "succeeded")
    assert kit.job(waiting[2]).state == "ready"
    # An operator resets the limit, and the last job runs.
    assert (await processes.run("sereno", "limit", "reset", "separate_worker.organisation"))[0] == 0
    await until(lambda: kit.job(waiting[2]).state == "succeeded")


@pytest.mark.parametrize("mode", [WORKER, MONOLITH], ids=["worker", "monolith"])
async def test_running_jobs_finish_after_term(kit: Kit, crm: Crm, processes: Processes, mode: dict[str, str]) -> None:
    process = processes.start(**mode)
    crm.open.clear()
    (job,) = await leads("form-1")
    await until(lambda: crm.log)
    process.terminate()
    await until(lambda: ("no new jobs" if mode is WORKER else "Waiting for application shutdown") in process.output)
    (later,) = await leads("form-2")
    crm.open.set()
    assert await process.ended() in ((0,) if mode is WORKER else UVICORN_ENDS)
    assert (kit.job(job).state, kit.job(job).attempt) == ("succeeded", 1)
    assert crm.calls("leads-1") == 1
    # It was enqueued during the shutdown: it may have run or not, but it is neither lost nor run twice.
    assert kit.job(later).state in ("ready", "succeeded")
    await kit.adrain()
    assert crm.calls("leads-2") == 1
    assert await violated_invariants() == []


async def test_jobs_that_do_not_finish_in_time_are_released_without_a_failure(
    kit: Kit, crm: Crm, processes: Processes
) -> None:
    process = processes.start(**MONOLITH, SERENO_GRACE="0.2")
    crm.open.clear()
    (job,) = await leads("form-1")
    await until(lambda: crm.log)
    process.terminate()
    assert await process.ended() in UVICORN_ENDS
    async with await connect() as connection:
        found = await connection.execute(
            sql.SQL("select state, failures, crashes, releases from {}.jobs where id = %s").format(
                sql.Identifier(app.settings.schema)
            ),
            [job],
        )
        assert await found.fetchone() == ("ready", 0, 0, 1)
    crm.open.set()
    await kit.adrain()
    assert kit.job(job).state == "succeeded"
    # Two requests, because the outcome of the first was unknown; one entry.
    assert (crm.calls("leads-1"), len(crm.entries)) == (2, 1)
    assert await violated_invariants() == []


async def test_a_worker_that_is_killed_loses_nothing_and_no_lock_is_stuck(
    kit: Kit, crm: Crm, processes: Processes
) -> None:
    worker = processes.start(**WORKER)
    crm.open.clear()
    (job,) = await leads("form-1")
    await until(lambda: crm.log)
    worker.kill()
    crm.open.set()
    kit.lose_leases()
    second = processes.start(**WORKER)
    await until(lambda: kit.job(job).state == "succeeded")
    assert (crm.calls("leads-1"), len(crm.entries)) == (2, 1)
    await until(lambda: _leads(second))
    assert await violated_invariants() == []


async def _leads(worker: Process) -> bool:
    return f":{worker.pid}:" in str((await metrics()).locked_by)
