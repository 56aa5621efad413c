"""Commands of this program, beside those of sereno: `python -m reconciliation --help`."""

import argparse
import asyncio
import csv
from pathlib import Path

import psycopg

from reconciliation import settings
from reconciliation.accounts import Account, save
from reconciliation.app import app
from reconciliation.database import Connection, prepare
from reconciliation.periods import Period
from reconciliation.planning import MANUAL, account_of, start

# Characters of a month, 2026-10; a day is longer.
MONTH = 7


async def run(connection: Connection, account: str, name: str) -> None:
    """Start a run by hand, also of a period that has been run."""
    found = await account_of(connection, account)
    if found is None:
        raise SystemExit(f"there is no account {account}")
    job_type = "reconcile" if len(name) == MONTH else "sales_sync"
    job = await start(connection, found, job_type, Period(name, name, "live"), MANUAL)
    print(f"run {job.id}{'' if job.created else ' is under way'}: sereno job show {job.id}")


async def show_differences(connection: Connection, account: str, month: str) -> None:
    cursor = await connection.execute(DIFFERENCES, [account, month])
    print("account\tmonth\torder\tdifference\tin the file\tby the sales\tsince")
    for row in await cursor.fetchall():
        print(*("" if value is None else value for value in row), sep="\t")


DIFFERENCES = """
select account, competence, order_id, kind, in_file, in_sales, since::date
from reconciliation.differences where account like %s and competence like %s
order by account, competence, since, order_id"""


def read_accounts(path: Path) -> list[Account]:
    """Return the accounts of a CSV file with semicolons; columns that are left out have their defaults."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    return [
        Account(
            row["id"],
            row["merchant"],
            row.get("zone") or settings.ZONE,
            row.get("hour") or settings.HOUR,
            tuple((row.get("runs") or "reconcile").split()),
            (row.get("enabled") or "yes") == "yes",
        )
        for row in rows
    ]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m reconciliation")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("prepare", help="create the schemas; write the accounts of a CSV file")
    one.add_argument("accounts", nargs="?", type=Path, help="its columns: id;merchant;zone;hour;runs;enabled")
    one = commands.add_parser("run", help="run a month (2026-10) or the sales of a day (2026-10-15) of an account")
    one.add_argument("account")
    one.add_argument("period")
    one = commands.add_parser("differences", help="list the differences between files and sales")
    one.add_argument("account", nargs="?", default="%")
    one.add_argument("month", nargs="?", default="%")
    return parser.parse_args()


async def main() -> None:
    given = arguments()
    if given.command == "prepare":
        await app.amigrate()
    async with await psycopg.AsyncConnection.connect(app.url, autocommit=True) as connection:
        match given.command:
            case "prepare":
                await prepare(connection)
                if given.accounts:
                    await save(connection, read_accounts(given.accounts))
            case "run":
                await run(connection, given.account, given.period)
            case _:
                await show_differences(connection, given.account, given.month)
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
