"""An empty application, its CRM, and real processes of it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from separate_worker import app as module
from separate_worker.app import add_organisation, app, connect, create_tables
from separate_worker.stand_ins import Crm
from separate_worker.tests.processes import Processes
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
        await connection.execute("truncate separate_worker.leads, separate_worker.organisations restart identity")
        for organisation in ORGANISATIONS:
            await add_organisation(connection, organisation, f"key-of-{organisation}")
    return made


@pytest.fixture
async def crm(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crm]:
    async with Crm() as running:
        monkeypatch.setattr(module, "settings", replace(module.settings, crm_url=running.url))
        monkeypatch.setenv("SEPARATE_WORKER_CRM_URL", running.url)
        yield running


@pytest.fixture
def processes(kit: Kit, crm: Crm, tmp_path: Path) -> Iterator[Processes]:
    with Processes(kit.app, tmp_path) as started:
        yield started


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
