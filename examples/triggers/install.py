"""One-time setup: tables and procedures, a login that can call them, the allow-list, the first triggers.

python -m triggers.install FILE writes the address of the login to FILE, which only its owner can read.
"""

import asyncio
import os
import secrets
import sys
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import psycopg
from msgspec.structs import replace
from psycopg import sql
from psycopg.conninfo import make_conninfo

from sereno import Cron, Every, Once, Sereno
from sereno.procedures import operations as procedures
from triggers.app import app, call

HERE = Path(__file__).parent
MADRID = ZoneInfo("Europe/Madrid")
# First rows of the allow-list: the parameters that the worker fills in and no trigger can set, and the longest call.
ALLOWED: dict[str, tuple[dict[str, str], str]] = {
    "triggers.refresh_stock": ({"planned_at": "planned_at"}, "1m"),
    "triggers.close_day": ({"job": "job"}, "10m"),
    "triggers.recount_tanks": ({"job": "job", "attempt": "attempt"}, "6h"),
    "triggers.settle_month": ({"job": "job"}, "10m"),
}
# No right to change a procedure, and none on any table of sereno: the worker checks, and refuses a login with more.
RIGHTS = """
    grant usage on schema triggers to {role};
    grant select on triggers.tanks, triggers.readings, triggers.prices to {role};
    grant select, insert, update
        on triggers.stock, triggers.closed_days, triggers.counts, triggers.settlements to {role};
    grant execute on procedure triggers.refresh_stock, triggers.close_day, triggers.recount_tanks, triggers.settle_month
        to {role};
"""


async def install(to: Sereno) -> str:
    """Install everything but the triggers; return the URL with which procedures are called."""
    role, password = os.environ.get("TRIGGERS_LOGIN", "triggers_caller"), secrets.token_urlsafe(24)
    with psycopg.connect(to.url, autocommit=True) as connection:
        for name in ("schema.sql", "views.sql", "claiming.sql"):
            connection.execute((HERE / name).read_text().replace("sereno.", f"{to.settings.schema}.").encode())
        create_login(connection, role, password)
    address = make_conninfo(to.url, user=role, password=password)
    catalogue = procedures.ProcedureOperations(replace(to.settings, procedure_url=address), lambda: to.url)
    for name, (given, timeout) in ALLOWED.items():
        signature = await catalogue.resolve("here", name)
        await to.database.arun(procedures.allow("here", signature, given=given, timeout=timeout))
    # The limit must exist before the first trigger fires.
    await to.adeclare()
    return address


def create_login(connection: psycopg.Connection, role: str, password: str) -> None:
    """Create a login that may call the allowed procedures and has the rights they need."""
    if connection.execute("select 1 from pg_roles where rolname = %s", [role]).fetchone() is None:
        connection.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
    # Only the hash is sent: neither the server's log nor an error message contains the password.
    hashed = connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    connection.execute(sql.SQL("alter role {} login password {}").format(sql.Identifier(role), sql.Literal(hashed)))
    connection.execute(sql.SQL(RIGHTS).format(role=sql.Identifier(role)))


async def add_first_triggers(to: Sereno) -> None:
    """Add one trigger of each kind. Existing ones are not changed."""
    new = to.schedules.new
    this_month = datetime.now(MADRID).replace(day=1, hour=6, minute=0, second=0, microsecond=0)
    next_month = (this_month + timedelta(days=31)).replace(day=1)
    first = [
        # A snapshot: one run replaces all that were missed, and a failed one is soon followed by the next.
        new(
            "triggers.stock:norte",
            call.job("triggers", "refresh_stock", "norte", {"plant": "norte"}, max_retries=2),
            Every("300s", count_from="clock"),
        ),
        # Every day has to be closed: after an outage, each missed one runs.
        new(
            "triggers.close:norte",
            call.job("triggers", "close_day", "norte", {"plant": "norte", "night": "{fire:%Y-%m-%d}"}),
            Cron("30 2 * * *", tz="Europe/Madrid"),
            missed="all",
            missed_window="30d",
            overlap="allow",
            disable_after=1,
        ),
        # Six hours after the last count has ended, however long it took; a count that takes four hangs.
        new(
            "triggers.recount:norte",
            call.job("triggers", "recount_tanks", "norte", {"plant": "norte"}, timeout_seconds=4 * 3600),
            Every("6h", count_from="end"),
        ),
        # No ConcurrencyKey: it only waits for itself. Until the price has been entered, it is tried for a day.
        new(
            f"triggers.settle:{this_month:%Y-%m}",
            call.job("triggers", "settle_month", "{key}", {"month": f"{this_month:%Y-%m-01}"}, max_retries=28),
            Once(next_month),
            disable_after=1,
        ),
    ]
    there = {row.key for row in await to.schedules.alist("triggers.*")}
    await to.schedules.aupsert_many([each for each in first if each.key not in there])


def main(file: Path) -> None:
    """Install everything and write the URL to `file`. Repeatable; each run sets a new password."""
    address = asyncio.run(everything())
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as written:  # noqa: PTH123 - with a mode
        written.write(address)
    print(f"The address of the login for procedures is in {file}: SERENO_PROCEDURE_URL_FILE={file}")


async def everything() -> str:
    """Install tables, login, allow-list and triggers; return the URL of the login."""
    address = await install(app)
    await add_first_triggers(app)
    await app.aclose()
    return address


if __name__ == "__main__":
    main(Path(sys.argv[1]))
