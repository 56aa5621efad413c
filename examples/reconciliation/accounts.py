"""Accounts and their schedules, written in one transaction, and the status of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import Any

import psycopg

from reconciliation.app import app
from reconciliation.job_types import JOB_TYPES
from sereno import Daily
from sereno.schedules.schedule import NewSchedule

Connection = psycopg.AsyncConnection[Any]


@dataclass(frozen=True)
class Account:
    id: str
    merchant: str
    zone: str = "America/Sao_Paulo"
    hour: str = "03:00"
    runs: tuple[str, ...] = ("reconcile",)
    enabled: bool = True


@dataclass(frozen=True)
class Standing:
    """One job type of an account: its last run, why it failed if it did, and when the next one is."""

    last_run_at: datetime | None
    last_state: str | None
    last_error: str | None
    next_run_at: datetime | None


async def prepare(connection: Connection) -> None:
    """Create the tables that do not exist yet."""
    await connection.execute(files("reconciliation").joinpath("schema.sql").read_bytes())


async def save(connection: Connection, accounts: Sequence[Account]) -> None:
    """Write rows and schedules in one transaction; schedules of removed job types are deleted."""
    async with connection.transaction():
        cursor = await connection.execute(
            "select id, runs from reconciliation.accounts where id = any(%s) order by id for update",
            [[account.id for account in accounts]],
        )
        before = {key_of(name, account) for account, runs in await cursor.fetchall() for name in runs}
        await connection.cursor().executemany(SAVE, [vars(account) | {"runs": [*account.runs]} for account in accounts])
        wanted = [(account, name) for account in accounts if account.enabled for name in account.runs]
        await app.schedules.aupsert_many([_schedule(account, name) for account, name in wanted], connection)
        for key in sorted(before - {key_of(name, account.id) for account, name in wanted}):
            await app.schedules.adelete(key, connection=connection)


SAVE = """
insert into reconciliation.accounts (id, merchant, zone, hour, runs, enabled)
values (%(id)s, %(merchant)s, %(zone)s, %(hour)s, %(runs)s, %(enabled)s)
on conflict (id) do update
set merchant = excluded.merchant, zone = excluded.zone, hour = excluded.hour, runs = excluded.runs,
    enabled = excluded.enabled"""


def _schedule(account: Account, name: str) -> NewSchedule:
    """Return a nightly schedule for the period that has ended: missed nights run later, and no period runs twice."""
    task, period = JOB_TYPES[name]
    once = task.using(unique_key="{key}:" + period.name, unique_for=period.remembered, trace=f"{name}-{account.id}")
    return app.schedules.new(
        key_of(name, account.id),
        once.job(account.id, account.merchant, period.name),
        Daily(account.hour, tz=account.zone),
        tenant=account.id,
        missed="all",
        missed_window="7d",
        overlap="allow",
    )


def key_of(name: str, account: str) -> str:
    return f"reconciliation.{name}:{account}"


async def standing(account: str) -> dict[str, Standing]:
    """Return the status of each job type of an account, which sereno stores with the schedule."""
    found = {}
    for row in await app.schedules.alist("reconciliation.*", tenant=account):
        error = row.last_error if row.last_state == "dead" else None
        name = row.task.removeprefix("reconciliation.")
        found[name] = Standing(row.last_finished_at, row.last_state, error, row.next_run_at)
    return found
