"""The jobs, with a movable clock and a CRM with faults."""

import aiohttp
import pytest

from separate_worker import demo, leads
from separate_worker.app import app
from separate_worker.leads import NewLead, add_lead, push_lead
from separate_worker.queues import connect
from separate_worker.settings import read
from separate_worker.stand_ins import Crm
from separate_worker.tests.conftest import new_lead, scalar, until
from sereno.testing.kit import Kit

pytestmark = pytest.mark.slow

ACME, GLOBEX = ({"Authorization": f"Bearer key-of-{name}"} for name in ("acme", "globex"))


async def test_the_api_takes_a_lead_once_and_a_worker_passes_it_on(
    kit: Kit, crm: Crm, http: aiohttp.ClientSession
) -> None:
    body = {"reference": "form-1", "email": "ada@example.org"}
    calls = [
        (body, {"Authorization": "Bearer nonsense"}),
        (body, ACME),
        (body, ACME),
        (body, GLOBEX),
        ({"reference": "a/../b", "email": "x"}, ACME),
    ]
    answers = []
    for lead, headers in calls:
        async with http.post("/api/leads", json=lead, headers=headers) as response:
            answers.append((response.status, await response.json()))
    assert [status for status, _ in answers] == [401, 202, 202, 202, 422]
    assert answers[2][1] == {"job": None}
    kit.assert_enqueued(push_lead, times=1, tenant="acme")
    assert not (await kit.adrain()).failed
    assert sorted(request.path for request in crm.log) == ["/acme/leads", "/globex/leads"]
    assert await scalar("select count(*) from separate_worker.leads where pushed_at is not null") == 2


async def test_a_lead_and_its_job_are_written_together_or_not_at_all(kit: Kit) -> None:
    async def fail_after_it() -> None:
        async with await connect() as connection, connection.transaction():
            await add_lead(connection, "acme", NewLead("form-1", "ada@example.org"))
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await fail_after_it()
    assert kit.jobs() == []
    assert await scalar("select count(*) from separate_worker.leads") == 0
    assert await scalar("select count(*) from separate_worker.uncounted_jobs") == 0


@pytest.mark.slow
@pytest.mark.quick
async def test_a_busy_or_broken_crm_is_retried_and_a_refusal_is_a_dead_letter(kit: Kit, crm: Crm) -> None:
    busy = await new_lead("form-1")
    crm.fault = "busy"
    await kit.adrain()
    assert kit.job(busy).state == "scheduled"
    crm.fault = "broken"
    kit.travel_to_next()
    await kit.adrain()
    crm.fault = None
    refused = await new_lead("form-2", email="ada@example.invalid")
    kit.travel_to_next()
    await kit.adrain()
    assert (kit.job(busy).state, kit.job(refused).state) == ("succeeded", "dead")
    assert kit.job(refused).reason == "the CRM refuses it: 422"
    assert crm.calls("leads-1") == 3


async def test_prometheus_metrics_show_waiting_jobs(kit: Kit, http: aiohttp.ClientSession) -> None:
    await new_lead("form-1")
    async with http.get("/metrics") as response:
        text = await response.text()
    assert 'separate_worker_jobs{queue="separate_worker",state="ready"} 1.0' in text
    assert "separate_worker_workers 0.0" in text
    assert "separate_worker_has_leader 0.0" in text


async def test_remote_clients_without_a_token_see_no_metrics(kit: Kit, http: aiohttp.ClientSession) -> None:
    async def status_of(path: str, headers: dict[str, str]) -> int:
        async with http.get(path, headers=headers) as response:
            return response.status

    # The server believes the proxy in front of it, which is on loopback, about the address of the client.
    far = {"X-Forwarded-For": "192.0.2.7"}
    for path in ("/metrics", "/api/integrations/jobs/metrics"):
        assert [await status_of(path, headers) for headers in ({}, far)] == [200, 401]
    # No token exists: the dashboard and its API refuse every request.
    assert await status_of("/sereno/api/v1/status", {}) == 401


async def test_the_demo_sends_leads(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    async with demo.stage(app) as environment:
        monkeypatch.setattr(leads, "settings", read(environment))
        await until(lambda: kit.jobs(push_lead))
        await kit.adrain()
        assert kit.jobs(push_lead, state="succeeded")
    assert demo.FAST.keys() <= app.schedules.declared.keys()
    sent = len(kit.jobs(push_lead))
    assert await scalar("select count(*) from separate_worker.leads") == sent
