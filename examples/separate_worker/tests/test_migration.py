"""From a monolith to separate processes, phase by phase, while leads keep coming."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from psycopg import sql

from separate_worker.app import app
from separate_worker.leads import NewLead, add_lead, follow_up, push_lead
from separate_worker.queues import connect
from separate_worker.stand_ins import Crm
from separate_worker.tests.conftest import ORGANISATIONS, until, violated_invariants
from separate_worker.tests.processes import Process, Processes
from sereno.testing.kit import Kit

# See test_processes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PAUSE = 0.05
RHYTHM = {"JOB_RUNNER_INTERVAL_MS": "300"}


class Traffic:
    """Sends leads to the current API, one after the other, and counts the accepted ones."""

    def __init__(self, api: Process) -> None:
        self.api = api
        self.accepted = 0
        self.running = True
        self._between_leads = asyncio.Lock()

    async def switch_to(self, api: Process) -> None:
        """Switch like a load balancer: on return the previous API has responded and gets no more requests."""
        async with self._between_leads:
            self.api = api

    async def run(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30), raise_for_status=True) as http:
            while self.running:
                async with self._between_leads:
                    await self._send_one(http)
                await asyncio.sleep(PAUSE)

    async def _send_one(self, http: aiohttp.ClientSession) -> None:
        whose = ORGANISATIONS[self.accepted % len(ORGANISATIONS)]
        body = {"reference": f"form-{self.accepted}", "email": f"lead-{self.accepted}@example.org"}
        key = {"Authorization": f"Bearer key-of-{whose}"}
        (await http.post(f"{self.api.url}/api/leads", json=body, headers=key)).release()
        self.accepted += 1


@asynccontextmanager
async def traffic(api: Process) -> AsyncIterator[Traffic]:
    """Send leads in the background; stop between two of them."""
    made = Traffic(api)
    sending = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        made.running = False
        await sending


async def ran_by(session: int) -> int:
    """Return how many leads this worker session passed on."""
    async with await connect() as connection:
        found = await connection.execute(
            sql.SQL("select count(*) from {}.history where task = %s and session_id = %s").format(
                sql.Identifier(app.settings.schema)
            ),
            [push_lead.name, session],
        )
        row = await found.fetchone()
    return int(row[0]) if row else 0


async def sessions(api: Process, number: int) -> list[int] | None:
    """Return the sessions of all workers, oldest first, once there are `number` of them."""
    found = [worker["session"] for worker in (await api.metrics())["workers"]]
    return sorted(found) if len(found) == number else None


async def make_follow_ups_due() -> None:
    async with await connect() as connection:
        await connection.execute("update separate_worker.leads set follow_up_at = now() where pushed_at is not null")


async def leads_followed_up() -> set[int] | None:
    """Return the due leads once all are followed up; from then on no cycle finds another."""
    async with await connect() as connection:
        query = "select id, followed_at from separate_worker.leads where follow_up_at <= now()"
        due = await (await connection.execute(query)).fetchall()
    return {lead for lead, _ in due} if all(followed_at for _, followed_at in due) else None


async def everything_happened_once(kit: Kit, crm: Crm, leads: int) -> None:
    """Check that each lead was passed on and each due one followed up, with one request each."""
    await until(lambda: len(kit.jobs(push_lead, state="succeeded")) >= leads)
    followed = await until(leads_followed_up)
    assert {(job.args["lead"], job.state) for job in kit.jobs(follow_up)} == {(lead, "succeeded") for lead in followed}
    wanted = {f"leads-{number}" for number in range(1, leads + 1)} | {f"follow-ups-{number}" for number in followed}
    assert sorted(request.headers["idempotency-key"] for request in crm.log) == sorted(wanted)
    assert await violated_invariants() == []


async def test_from_a_monolith_to_a_separate_worker_without_a_gap(kit: Kit, crm: Crm, processes: Processes) -> None:
    # Phase 0: one process does it all.
    monolith = processes.start(**RHYTHM, JOB_RUNNER_ENABLED="true")
    await until(lambda: monolith.url)
    async with traffic(monolith) as sending:
        (alone,) = await until(lambda: sessions(monolith, 1))
        await until(lambda: ran_by(alone))
        # Phase 1: a worker beside it. Both run jobs; no lock keeps one of them idle.
        worker = processes.start(**RHYTHM, WORKER_MODE="1")
        _, beside = await until(lambda: sessions(monolith, 2))
        await until(lambda: ran_by(beside))
        await make_follow_ups_due()
        # Phase 2: an API that runs no jobs takes over; the monolith gets TERM while it runs jobs.
        api = processes.start(**RHYTHM)
        await until(lambda: api.url)
        await sending.switch_to(api)
        monolith.terminate()
        await monolith.ended()
        # Phase 3: jobs are done by the worker alone, which is also the leading scheduler.
        assert await sessions(api, 1) == [beside]
        before = await ran_by(beside)
        await until(lambda: _moved(beside, before))
        await make_follow_ups_due()
        await until(lambda: _leads(api, worker))
    await everything_happened_once(kit, crm, sending.accepted)
    worker.terminate()
    assert await worker.ended() == 0


async def test_in_the_order_of_the_original_design_jobs_wait_and_none_is_lost(
    kit: Kit, crm: Crm, processes: Processes
) -> None:
    monolith = processes.start(**RHYTHM, JOB_RUNNER_ENABLED="true")
    async with await connect() as connection:
        for number in range(20):
            await add_lead(connection, "acme", NewLead(f"form-{number}", "ada@example.org"))
        await until(lambda: crm.log)
        # The original design's phase 1: no process runs jobs any more.
        monolith.terminate()
        await monolith.ended()
        for number in range(20, 40):
            await add_lead(connection, "acme", NewLead(f"form-{number}", "ada@example.org"))
    done = len(kit.jobs(push_lead, state="succeeded"))
    assert [job for job in kit.jobs(push_lead) if job.state == "running"] == []
    assert 0 < done <= 20
    await make_follow_ups_due()
    # The original design's phase 2: a worker; here two.
    for _ in range(2):
        processes.start(**RHYTHM, WORKER_MODE="1")
    await until(lambda: kit.jobs(follow_up))
    await everything_happened_once(kit, crm, 40)


async def _moved(session: int, before: int) -> bool:
    return await ran_by(session) > before


async def _leads(api: Process, worker: Process) -> bool:
    return f":{worker.pid}:" in str((await api.metrics())["lockedBy"])
