import asyncio
import os

import psycopg

# Only its form is checked: nothing is late here, so it is never called.
os.environ["OPS_HOOK"] = "https://discord.com/api/webhooks/7/abc"
# the block of the page


async def start_a_worker() -> None:
    async with app.working():
        pass
    await app.aclose()


asyncio.run(start_a_worker())
with psycopg.connect(os.environ["SERENO_DATABASE_URL"]) as connection:
    written = "select name, for_seconds, log->>'event' from sereno.alert_rules order by name"
    rules = connection.execute(written).fetchall()
assert rules == [("failing", 0, "job.dead"), ("late", 300, None)], rules
