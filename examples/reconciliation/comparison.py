"""Compares the entries of an account's newest file with its sales; the differences are stored."""

from datetime import datetime
from decimal import Decimal

from reconciliation.database import Connection, statement


async def lock_account(connection: Connection, account: str) -> None:
    """Lock the account until the transaction ends: its books and its sales are compared by one job at a time."""
    await connection.execute("select from reconciliation.accounts where id = %s for update", [account])


async def compare(connection: Connection, account: str, competence: str, now: datetime) -> tuple[int, Decimal]:
    """Store the differences of a month; return how many orders differ, and by how much in all."""
    values = {"account": account, "competence": competence, "now": now}
    [found] = await (await connection.execute(statement("compare"), values)).fetchall()
    return found[0], found[1]
