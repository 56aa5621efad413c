"""The statements on tenders. The caller commits."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import date, datetime, timedelta
from typing import Any

import msgspec
import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from tenders.tender import Tender

Connection = psycopg.AsyncConnection[Any]

# The most days whose lists are read after an outage.
MOST_DAYS = 7
COLUMNS = ", ".join(each.name for each in fields(Tender))

# A code is claimed once, for ever. The statement that claims it also inserts the tender.
CLAIM = f"""
with found as (
    select * from jsonb_to_recordset(%s)
        as (code text, title text, kind text, region text, buyer text, amount bigint, amount_text text,
            categories text[], published_at timestamptz, closes_at timestamptz)),
claimed as (
    insert into tenders.registry (code) select code from found order by code
    on conflict do nothing returning code)
insert into tenders.tenders ({COLUMNS})
select {COLUMNS} from found join claimed using (code)
returning code
"""  # noqa: S608 - names of columns

FILL_IN = """
update tenders.tenders
set (title, kind, region, buyer, amount, amount_text, categories, published_at, closes_at)
    = (%(title)s, %(kind)s, %(region)s, %(buyer)s, %(amount)s, %(amount_text)s, %(categories)s, %(published_at)s,
       %(closes_at)s)
where code = %(code)s
"""

LISTS_READ = """
insert into tenders.progress (read_until) values (%s)
on conflict (one_row) do update set read_until = greatest(progress.read_until, excluded.read_until)
"""

# Sets the flag where a receipt says that Apple or Google accepted the push. It is never cleared. Receipts come within a
# day of the push, and a push is tried for hours: older tenders, which no phone may have wanted, are not read again.
CONFIRM = """
update tenders.tenders set notified = true
where not notified and found_at > {sereno}.now() - interval '7 days' and exists (
    select from {sereno}.events_v1 as event join {sereno}.deliveries_v1 as delivery on delivery.event_id = event.id
    where event.type = %(event)s and event.tenant = %(tenant)s and event.subject = tenders.code
      and delivery.state in ('delivered', 'read'))
"""

# The pushes up to this minute are counted; returns the minute before.
COUNTED = """
with before as (select until from tenders.pushes_counted),
after as (
    insert into tenders.pushes_counted (until) values (%(minute)s)
    on conflict (one_row) do update set until = greatest(pushes_counted.until, excluded.until))
select until from before
"""


async def claim(connection: Connection, found: Sequence[Tender]) -> list[str]:
    """Insert the tenders that are new; return their codes."""
    rows = msgspec.to_builtins([asdict(tender) for tender in found])
    cursor = await connection.execute(CLAIM, [Jsonb(rows)])
    return sorted(code for (code,) in await cursor.fetchall())


async def tender(connection: Connection, code: str) -> Tender | None:
    """Return the stored tender, with its row locked until commit."""
    query = f"select {COLUMNS} from tenders.tenders where code = %s for update"  # noqa: S608 - names of columns
    row = await (await connection.execute(query, [code])).fetchone()
    if row is None:
        return None
    known = dict(zip((each.name for each in fields(Tender)), row, strict=True))
    return Tender(**known | {"categories": known["categories"] and tuple(known["categories"])})


async def fill_in(connection: Connection, known: Tender) -> None:
    await connection.execute(FILL_IN, asdict(known) | {"categories": known.categories and list(known.categories)})


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


async def pushes_counted(connection: Connection, minute: datetime) -> datetime | None:
    """Note that pushes are counted up to this minute; return up to which they were before, None at first."""
    row = await (await connection.execute(COUNTED, {"minute": minute})).fetchone()
    return row[0] if row else None
