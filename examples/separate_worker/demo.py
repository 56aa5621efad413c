"""The demo of this example: three organisations, a CRM that fails now and then, and a stream of leads."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import count, cycle

from separate_worker.leads import NewLead, add_lead, add_organisation
from separate_worker.queues import PER_ORGANISATION, connect, create_tables
from separate_worker.runner import CYCLE
from separate_worker.stand_ins import Crm
from sereno import Every, Sereno
from sereno.schedules.rules.when import When

APP = "separate_worker.app:app"
FAST: dict[str, When] = {CYCLE: Every("3s")}
LINKS = [
    (
        "The leading scheduler, its last tick, and every live worker.",
        "system",
    ),
    (
        "Acme sends half of all leads and waits at its own rate limit; the other organisations do not wait.",
        f"queues?limit={PER_ORGANISATION.name}",
    ),
    ("The cycle that enqueues follow-ups: each run, its duration and its errors.", f"schedule?key={CYCLE}"),
]
# Of six leads three are acme's. The fifth of thirty has an address that the CRM refuses: a dead letter.
WHOSE = ("acme", "globex", "acme", "initech", "acme", "globex")
REFUSED, OF = 5, 30
PAUSE = 0.5
TROUBLE = 0.08


@contextlib.asynccontextmanager
async def stage(app: Sereno) -> AsyncIterator[dict[str, str]]:
    """Create tables and organisations, start the CRM, and send leads."""
    await create_tables()
    async with await connect() as connection:
        for organisation in dict.fromkeys(WHOSE):
            await add_organisation(connection, organisation, f"demo-key-of-{organisation}")
    async with Crm(TROUBLE) as crm:
        sender = asyncio.create_task(_send())
        try:
            yield {"SEPARATE_WORKER_CRM_URL": crm.url, "SEPARATE_WORKER_RATE": "2", "WORKER_MODE": "1"}
        finally:
            sender.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sender


async def _send() -> None:
    """Send leads; follow-ups are due at once instead of after a day."""
    async with await connect() as connection:
        began = await (await connection.execute("select coalesce(max(id), 0) from separate_worker.leads")).fetchone()
        for number, whose in zip(count(began[0] + 1 if began else 1), cycle(WHOSE), strict=False):
            ending = "invalid" if number % OF == REFUSED else "example.org"
            await add_lead(connection, whose, NewLead(f"demo-{number}", f"lead-{number}@{ending}"))
            await connection.execute(
                "update separate_worker.leads set follow_up_at = now() "
                "where pushed_at is not null and followed_by is null and follow_up_at > now()"
            )
            await asyncio.sleep(PAUSE)
