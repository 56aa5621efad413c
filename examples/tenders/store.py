"""The statements on this program's tables. The caller commits."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date, timedelta
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from tenders.tender import Tender

Connection = psycopg.AsyncConnection[Any]

# The most days whose lists are read after an outage.
MOST_DAYS = 7

# A code is claimed once, for ever. The statement that claims it also inserts the tender.
CLAIM = """
with found as (
    select * from jsonb_to_recordset(%s)
        as (code text, title text, region text, buyer text, amount bigint, closes_at timestamptz)),
claimed as (
    insert into tenders.registry (code) select code from found order by code
    on conflict do nothing returning code)
insert into tenders.tenders (code, title, region, buyer, amount, closes_at)
select code, title, region, buyer, amount, closes_at from found join claimed using (code)
returning code
"""

FILL_IN = """
update tenders.tenders set (title, region, buyer, amount, closes_at)
    = (%(title)s, %(region)s, %(buyer)s, %(amount)s, %(closes_at)s)
where code = %(code)s
"""

LISTS_READ = """
insert into tenders.progress (read_until) values (%s)
on conflict (one_row) do update set read_until = greatest(progress.read_until, excluded.read_until)
"""

# Sets the flag where a receipt says that Apple or Google accepted the push. It is never cleared.
CONFIRM = """
update tenders.tenders set notified = true
where not notified and exists (
    select from {sereno}.events as event join {sereno}.deliveries as delivery on delivery.event_id = event.id
    where event.type = %(event)s and event.tenant = %(tenant)s and event.subject = tenders.code
      and delivery.state in ('delivered', 'read'))
"""


async def claim(connection: Connection, found: Sequence[Tender]) -> list[str]:
    """Insert the tenders that are new; return their codes."""
    rows = [asdict(tender) | {"closes_at": tender.closes_at and tender.closes_at.isoformat()} for tender in found]
    cursor = await connection.execute(CLAIM, [Jsonb(rows)])
    return sorted(code for (code,) in await cursor.fetchall())


async def tender(connection: Connection, code: str) -> Tender | None:
    """Return the stored tender, with its row locked until commit."""
    query = "select code, title, region, buyer, amount, closes_at from tenders.tenders where code = %s for update"
    row = await (await connection.execute(query, [code])).fetchone()
    return None if row is None else Tender(*row)


async def fill_in(connection: Connection, known: Tender) -> None:
    await connection.execute(FILL_IN, asdict(known))


async def days_to_read(connection: Connection, today: date) -> list[date]:
    """Return the days from the last list that was read to today; before the first run, yesterday and today."""
    row = await (await connection.execute("select read_until from tenders.progress")).fetchone()
    days = 1 if row is None else min(max(0, (today - row[0]).days), MOST_DAYS)
    return [today - timedelta(days=ago) for ago in range(days, -1, -1)]


async def lists_were_read(connection: Connection, today: date) -> None:
    await connection.execute(LISTS_READ, [today])


async def confirm(connection: Connection, sereno: str, event: str, tenant: str) -> int:
    """Mark tenders that reached a phone; return how many are newly marked. `sereno`: its schema."""
    statement = sql.SQL(CONFIRM).format(sereno=sql.Identifier(sereno))
    return (await connection.execute(statement, {"event": event, "tenant": tenant})).rowcount
