"""The worker and the servers that the page has started before: NATS on loopback, and a worker in this process."""

import asyncio
import os
import tempfile
from pathlib import Path

from sereno.carriers.local_server import LocalNats

directory = tempfile.TemporaryDirectory()
nats = LocalNats(Path(directory.name))
nats.start()
os.environ["SERENO_CARRIERS"] = '{"clicks": "jetstream://%s?direct=true"}' % nats.url.removeprefix("nats://")
# the block of the page
import psycopg

seen: set[str] = set()


async def work() -> None:
    @app.around
    async def note(ctx):
        seen.add(ctx.job_id)
        yield

    async with app.working():
        async with asyncio.timeout(60):
            while len(seen) < 1001:
                await asyncio.sleep(0.01)
    await app.aclose()


asyncio.run(work())
nats.stop()
directory.cleanup()
with psycopg.connect(os.environ["SERENO_DATABASE_URL"]) as connection:
    rows = "select (select count(*) from sereno.jobs) + (select count(*) from sereno.history where queue = 'clicks')"
    assert connection.execute(rows).fetchone() == (0,)
assert min(seen) >= 10**15
