"""An empty application, its CRM, and real processes of it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from separate_worker import leads
from separate_worker.api import api
from separate_worker.app import app
from separate_worker.leads import NewLead, add_lead, add_organisation
from separate_worker.queues import connect, create_tables, settings
from separate_worker.stand_ins import Crm
from separate_worker.tests.processes import Processes
from separate_worker.tests.serving import served
from sereno.monitoring.verify import verify
from sereno.testing.kit import Kit

ORGANISATIONS = ("acme", "globex")
# Seconds; long enough for a busy machine.
PATIENCE = 60.0
# Seconds between polls: polling must not use most of the machine.
POLL_EVERY = 0.1


@pytest.fixture
async def kit(sereno_kit: Callable[[Any], Kit]) -> Kit:
    made = sereno_kit(app)
    await create_tables()
    async with await connect() as connection:
        await connection.execute("truncate separate_worker.organisations, separate_worker.uncounted_jobs cascade")
        await connection.execute("truncate separate_worker.leads restart identity")
        for organisation in ORGANISATIONS:
            await add_organisation(connection, organisation, f"key-of-{organisation}")
    return made


@pytest.fixture
async def crm(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crm]:
    async with Crm() as running:
        monkeypatch.setattr(leads, "settings", replace(settings, crm_url=running.url))
        monkeypatch.setenv("SEPARATE_WORKER_CRM_URL", running.url)
        yield running


@pytest.fixture
def processes(kit: Kit, crm: Crm, tmp_path: Path) -> Iterator[Processes]:
    with Processes(kit.app, tmp_path) as started:
        yield started


@pytest.fixture
async def http(kit: Kit) -> AsyncIterator[aiohttp.ClientSession]:
    async with served(api) as session:
        yield session


async def scalar(statement: str, *values: object) -> Any:
    """Return the first column of the first row, or None."""
    async with await connect() as connection:
        row = await (await connection.execute(statement.encode(), values)).fetchone()
    return row[0] if row else None


async def violated_invariants() -> list[str]:
    """Return what `sereno verify --all` finds."""
    results = await app.database.arun(verify(lease=app.settings.lease, window=None))
    assert results
    return [str(result) for result in results if not result.holds]


async def until(fact: Callable[[], Any | Awaitable[Any]]) -> Any:
    """Poll until the result is true and return it; the CRM keeps serving meanwhile."""
    end = time.monotonic() + PATIENCE
    while True:
        result = fact()
        if isinstance(result, Awaitable):
            result = await result
        if result:
            return result
        assert time.monotonic() < end, f"did not become true within {PATIENCE:g} s"
        await asyncio.sleep(POLL_EVERY)


async def new_lead(reference: str, organisation: str = "acme", email: str = "ada@example.org") -> int:
    """Add a lead and return the id of its job."""
    async with await connect() as connection:
        job = await add_lead(connection, organisation, NewLead(reference, email))
    assert job is not None
    return job.id
