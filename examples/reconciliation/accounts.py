"""Accounts and their schedules, written in one transaction; rows that were written with SQL are followed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from psycopg.rows import class_row

from reconciliation import settings
from reconciliation.database import Connection, in_schema
from reconciliation.job_types import CONTROL, JOB_TYPES, app
from reconciliation.planning import plan
from sereno import Context, Daily, Every
from sereno.errors import SerenoError
from sereno.schedules.schedule import NewSchedule

# Accounts whose schedules are written in one transaction.
BATCH = 1000


@dataclass(frozen=True)
class Account:
    id: str
    merchant: str
    zone: str = field(default_factory=lambda: settings.ZONE)
    hour: str = field(default_factory=lambda: settings.HOUR)
    runs: Collection[str] = ("reconcile",)
    enabled: bool = True


@dataclass
class FollowedAccounts:
    """The result of a pass: accounts whose schedules were written, and those whose rows are invalid."""

    changed: int
    invalid: int


async def save(connection: Connection, accounts: Sequence[Account]) -> None:
    """Write rows and schedules in one transaction."""
    async with connection.transaction():
        rows = [vars(account) | {"runs": [*account.runs]} for account in accounts]
        await connection.cursor().executemany(SAVE, rows)
        await _write(connection, accounts, [schedule for account in accounts for schedule in schedules_of(account)])


SAVE = """
insert into reconciliation.accounts (id, merchant, zone, hour, runs, enabled)
values (%(id)s, %(merchant)s, %(zone)s, %(hour)s, %(runs)s, %(enabled)s)
on conflict (id) do update
set merchant = excluded.merchant, zone = excluded.zone, hour = excluded.hour, runs = excluded.runs,
    enabled = excluded.enabled"""


@app.cycle(Every("1m"), key="reconciliation.follow_accounts")
@app.task(name="reconciliation.follow_accounts", queue=CONTROL)
async def follow_accounts(ctx: Context) -> FollowedAccounts | None:
    """Write the schedules of accounts that were added or changed with SQL."""
    async with ctx.transaction() as connection:
        cursor = connection.cursor(row_factory=class_row(Account))
        await cursor.execute(CHANGED, [BATCH])
        accounts, schedules, invalid = await cursor.fetchall(), list[NewSchedule](), 0
        for account in accounts:
            try:
                schedules += schedules_of(account)
            except SerenoError as error:
                # Of this account alone: a wrong zone must not keep the others from running.
                invalid += 1
                detail = {"event": "reconciliation.invalid_account", "account_id": account.id}
                ctx.log.error("account %s has no schedules: %s", account.id, error, extra=detail)  # noqa: TRY400 - a wrong row
        await _write(connection, accounts, schedules)
        ctx.set_result(FollowedAccounts(len(accounts), invalid))
    return None


CHANGED = """
select id, merchant, zone, hour, runs, enabled from reconciliation.accounts
where synchronised_at is null or synchronised_at < updated_at
order by id limit %s for update"""


def schedules_of(account: Account) -> list[NewSchedule]:
    """Return a nightly schedule for each job type of an account; missed nights run later.

    `plan` decides what a night runs, and that it runs once.
    """
    return [
        app.schedules.new(
            key_of(name, account.id),
            plan.job(account.id, name, "{date}"),
            Daily(account.hour, tz=account.zone),
            tenant=account.id,
            missed="all",
            missed_window="7d",
            overlap="allow",
        )
        for name in account.runs
        if account.enabled and name in JOB_TYPES
    ]


async def _write(connection: Connection, accounts: Sequence[Account], schedules: Sequence[NewSchedule]) -> None:
    """Write schedules, and delete the others of these accounts, and those of accounts that are gone."""
    await app.schedules.aupsert_many(schedules, connection)
    ids, keys = [account.id for account in accounts], [schedule.key for schedule in schedules]
    for (key,) in await (await connection.execute(in_schema(UNWANTED), [keys, ids])).fetchall():
        await app.schedules.adelete(key, connection=connection)
    await connection.execute(SYNCHRONISED, [ids])


UNWANTED = """
select key from sereno.schedules_v1
where task = 'reconciliation.plan' and key <> all(%s)
  and (tenant = any(%s) or not exists (select from reconciliation.accounts where id = tenant))
order by key"""

SYNCHRONISED = """
update reconciliation.accounts set synchronised_at = greatest(clock_timestamp(), updated_at) where id = any(%s)"""


def key_of(name: str, account: str) -> str:
    return f"reconciliation.{name}:{account}"


@dataclass(frozen=True)
class Standing:
    """One job type of an account: its last run, why it failed if it did, and when the next night is."""

    last_run_at: datetime | None
    last_status: str | None
    last_error: str | None
    next_run_at: datetime | None


async def standing(connection: Connection, account: str) -> dict[str, Standing]:
    """Return the status of each job type that an account runs."""
    cursor = await connection.execute(in_schema(STANDING), [account])
    return {name: Standing(*row) for name, *row in await cursor.fetchall()}


STANDING = """
select schedules.args ->> 'job_type', finished_at, status, runs.last_error, next_run_at
from sereno.schedules_v1 as schedules
left join reconciliation.last_runs as runs
       on account_id = tenant
      and job_type = case schedules.args ->> 'job_type' when 'reconcile' then 'conciliation' else 'sales_sync' end
where task = 'reconciliation.plan' and tenant = %s"""
