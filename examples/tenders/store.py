"""The statements on our own tables. Whoever calls them commits."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date, timedelta
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from tenders.tender import Tender

Connection = psycopg.AsyncConnection[Any]

# After an outage, the API's lists of so many days are read.
MOST_DAYS = 7

# A code is claimed once, for ever. Its tender is written by whoever claimed it, in the same statement.
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

# Those of whom a receipt says that Apple or Google took the push. It stays true, whatever comes later.
CONFIRM = """
update tenders.tenders set notified = true
where not notified and exists (
    select from {sereno}.events as event join {sereno}.deliveries as delivery on delivery.event_id = event.id
    where event.type = %(event)s and event.tenant = %(tenant)s and event.subject = tenders.code
      and delivery.state in ('delivered', 'read'))
"""


async def claim(connection: Connection, found: Sequence[Tender]) -> list[str]:
    """Write down those that nobody has found before; their codes."""
    rows = [asdict(tender) | {"closes_at": tender.closes_at and tender.closes_at.isoformat()} for tender in found]
    cursor = await connection.execute(CLAIM, [Jsonb(rows)])
    return sorted(code for (code,) in await cursor.fetchall())


async def tender(connection: Connection, code: str) -> Tender | None:
    """As it is known; nobody else changes it before we commit."""
    wanted = "select code, title, region, buyer, amount, closes_at from tenders.tenders where code = %s for update"
    row = await (await connection.execute(wanted, [code])).fetchone()
    return None if row is None else Tender(*row)


async def fill_in(connection: Connection, known: Tender) -> None:
    await connection.execute(FILL_IN, asdict(known))


async def days_to_read(connection: Connection, today: date) -> list[date]:
    """From the day up to which the lists were read, to today; whoever never read any begins with yesterday's."""
    row = await (await connection.execute("select read_until from tenders.progress")).fetchone()
    days = 1 if row is None else min(max(0, (today - row[0]).days), MOST_DAYS)
    return [today - timedelta(days=ago) for ago in range(days, -1, -1)]


async def lists_were_read(connection: Connection, today: date) -> None:
    await connection.execute(LISTS_READ, [today])


async def confirm(connection: Connection, sereno: str, event: str, tenant: str) -> int:
    """Tenders that somebody was told of; how many are so since the last look. `sereno`: its schema."""
    statement = sql.SQL(CONFIRM).format(sereno=sql.Identifier(sereno))
    return (await connection.execute(statement, {"event": event, "tenant": tenant})).rowcount
