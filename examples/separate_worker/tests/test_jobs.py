"""The jobs, with a movable clock and a CRM with faults."""

import httpx
import pytest

from separate_worker import app as module
from separate_worker import demo
from separate_worker.api import api
from separate_worker.app import CYCLE, add_lead, app, connect, follow_up, push_lead, settings
from separate_worker.metrics import exposition, metrics
from separate_worker.settings import read
from separate_worker.stand_ins import Crm
from separate_worker.tests.conftest import until
from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow


async def lead(reference: str, organisation: str = "acme", email: str = "ada@example.org") -> int:
    async with await connect() as connection:
        job = await add_lead(connection, organisation, reference, email)
    assert job is not None
    return job.id


async def scalar(statement: bytes) -> object:
    async with await connect() as connection:
        row = await (await connection.execute(statement)).fetchone()
    return row[0] if row else None


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://test")


async def test_the_api_takes_a_lead_once_and_a_worker_passes_it_on(kit: Kit, crm: Crm) -> None:
    body = {"reference": "form-1", "email": "ada@example.org"}
    async with client() as http:
        refused = await http.post("/api/leads", json=body, headers={"Authorization": "Bearer nonsense"})
        first = await http.post("/api/leads", json=body, headers={"Authorization": "Bearer key-of-acme"})
        again = await http.post("/api/leads", json=body, headers={"Authorization": "Bearer key-of-acme"})
        other = await http.post("/api/leads", json=body, headers={"Authorization": "Bearer key-of-globex"})
        hostile = await http.post(
            "/api/leads", json={"reference": "a/../b", "email": "x"}, headers={"Authorization": "Bearer key-of-acme"}
        )
    assert [answer.status_code for answer in (refused, first, again, other, hostile)] == [401, 202, 202, 202, 422]
    assert again.json() == {"job": None}
    kit.assert_enqueued(push_lead, times=1, tenant="acme")
    assert not (await kit.adrain()).failed
    assert sorted(request.path for request in crm.log) == ["/acme/leads", "/globex/leads"]
    assert await scalar(b"select count(*) from separate_worker.leads where pushed_at is not null") == 2


async def test_a_lead_and_its_job_are_written_together_or_not_at_all(kit: Kit) -> None:
    async def fail_after_it() -> None:
        async with await connect() as connection, connection.transaction():
            await add_lead(connection, "acme", "form-1", "ada@example.org")
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await fail_after_it()
    assert kit.jobs() == []
    assert await scalar(b"select count(*) from separate_worker.leads") == 0


@pytest.mark.slow
@pytest.mark.quick
async def test_a_busy_or_broken_crm_is_retried_and_a_refusal_is_a_dead_letter(kit: Kit, crm: Crm) -> None:
    busy = await lead("form-1")
    crm.fault = "busy"
    await kit.adrain()
    assert kit.job(busy).state == "scheduled"
    crm.fault = "broken"
    kit.travel_to_next()
    await kit.adrain()
    crm.fault = None
    refused = await lead("form-2", email="ada@example.invalid")
    kit.travel_to_next()
    await kit.adrain()
    assert (kit.job(busy).state, kit.job(refused).state) == ("succeeded", "dead")
    assert kit.job(refused).reason == "the CRM refuses it: 422"
    assert crm.calls("leads-1") == 3


async def test_the_cycle_enqueues_due_leads_once_and_reports_its_run(kit: Kit, crm: Crm) -> None:
    await kit.adrain()
    empty = await metrics()
    assert (empty.last_run_at, empty.last_run_job_count, empty.last_run_error) == (None, None, None)
    for number in range(3):
        await lead(f"form-{number}")
    async with await connect() as connection:
        await connection.execute("update separate_worker.leads set follow_up_at = now() where id < 3")
    kit.travel(settings.interval)
    assert not (await kit.adrain()).failed
    found = await metrics()
    assert (found.last_run_job_count, found.last_run_error) == (2, None)
    assert found.last_run_at is not None
    assert found.last_run_duration_ms is not None
    assert found.last_run_duration_ms >= 0
    kit.travel(settings.interval)
    assert not (await kit.adrain()).failed
    assert (await metrics()).last_run_job_count == 0
    kit.assert_enqueued(follow_up, times=2)
    assert crm.calls("follow-ups-1") == 1


@pytest.mark.slow
async def test_a_failed_cycle_reports_its_error_and_the_next_one_finds_the_same_leads(kit: Kit, crm: Crm) -> None:
    await lead("form-1")
    await kit.adrain()
    async with await connect() as connection:
        await connection.execute("update separate_worker.leads set follow_up_at = now()")
        await connection.execute("alter table separate_worker.leads rename column followed_by to away")
    try:
        kit.travel(settings.interval)
        assert [job.task for job in (await kit.adrain()).failed] == [CYCLE]
    finally:
        async with await connect() as connection:
            await connection.execute("alter table separate_worker.leads rename column away to followed_by")
    found = await metrics()
    assert "followed_by" in str(found.last_run_error)
    assert found.dead == 1
    assert b"separate_worker_last_run_failed 1.0" in await exposition()
    kit.travel(settings.interval)
    await kit.adrain()
    assert ((await metrics()).last_run_job_count, (await metrics()).last_run_error) == (1, None)
    assert crm.calls("follow-ups-1") == 1


async def test_prometheus_metrics_show_waiting_jobs(kit: Kit) -> None:
    await lead("form-1")
    async with client() as http:
        text = (await http.get("/metrics")).text
    assert 'separate_worker_jobs{queue="separate_worker",state="ready"} 1.0' in text
    assert "separate_worker_workers 0.0" in text
    assert "separate_worker_has_leader 0.0" in text


async def test_remote_clients_without_a_token_see_no_metrics(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    far = httpx.ASGITransport(api, client=("192.0.2.7", 4711))
    async with httpx.AsyncClient(transport=far, base_url="http://test") as http:
        assert [(await http.get(path)).status_code for path in ("/metrics", "/api/integrations/jobs/metrics")] == [
            401
        ] * 2
        # No token exists: the dashboard and its API refuse every request.
        assert (await http.get("/sereno/api/v1/status")).status_code == 401


async def test_the_demo_sends_leads(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    async with demo.stage(app) as environment:
        monkeypatch.setattr(module, "settings", read(environment))
        await until(lambda: kit.jobs(push_lead))
        await kit.adrain()
        assert kit.jobs(push_lead, state="succeeded")
    assert demo.FAST.keys() <= app.schedules.declared.keys()
    sent = len(kit.jobs(push_lead))
    assert await scalar(b"select count(*) from separate_worker.leads") == sent
