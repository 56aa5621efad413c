"""Steps that tests share."""

import asyncio
import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import reconciliation
from reconciliation.app import app
from reconciliation.database import Connection, in_schema
from reconciliation.job_types import CONTROL, JOB_TYPES
from reconciliation.planning import SCHEDULER, account_of, plan, start

from sereno.monitoring.verify import verify
from sereno.testing.kit import Kit


async def rows(connection: Connection, query: str, *values: Any) -> list[Any]:
    return await (await connection.execute(in_schema(query), values or None)).fetchall()


async def run_now(
    kit: Kit, connection: Connection, *accounts: str, name: str = "reconcile", night: date | None = None
) -> list[int]:
    """Start the runs of a night, as their schedules do; without `night`, those of tonight."""
    period, ids = JOB_TYPES[name].period(night or kit.now().date()), []
    async with connection.transaction():
        for account in accounts:
            found = await account_of(connection, account)
            assert found is not None
            ids.append((await start(connection, found, name, period, SCHEDULER)).id)
    return ids


async def command(*words: str) -> str:
    """Run a command of this program, and return what it prints."""
    environment = os.environ | {"PYTHONPATH": str(Path(reconciliation.__file__).parents[1])}
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "reconciliation", *words],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


async def run_plans(kit: Kit) -> None:
    """Fire what is due, and run the plans; the jobs that they enqueue wait."""
    await app.schedules.atick()
    async with app.working({CONTROL: 20}):
        await asyncio.to_thread(kit.until, lambda: all(job.state == "succeeded" for job in kit.jobs(plan)))


async def pause_schedules() -> None:
    """Let nothing but the test start runs."""
    await app.schedules.apause(task="reconciliation.plan")


async def assert_invariants_hold(kit: Kit) -> None:
    results = await kit.app.database.arun(verify(lease=kit.app.settings.lease))
    assert [result for result in results if not result.holds] == []
