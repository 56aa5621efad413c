"""PgQueuer: asyncpg, uvloop, batches of 1000."""

import json

import asyncpg
import harness
from pgqueuer import AsyncpgDriver, PgQueuer, Queries
from pgqueuer.models import Job

BATCH_SIZE = 1000


class PgQueuerPeer:
    async def open(self, url: str) -> None:
        self.driver = AsyncpgDriver(await asyncpg.connect(url))
        self.queries = Queries(self.driver)

    async def install(self) -> None:
        await self.queries.install()

    async def enqueue_one(self, payload: harness.Payload) -> None:
        await self.queries.enqueue("bench", json.dumps(payload).encode())

    async def enqueue_many(self, payloads: list[harness.Payload]) -> None:
        await self.queries.enqueue(
            ["bench"] * len(payloads),
            [json.dumps(payload).encode() for payload in payloads],
            [0] * len(payloads),
        )

    async def work(self, handle: harness.Handle) -> None:
        application = PgQueuer(self.driver)

        @application.entrypoint("bench")
        async def bench(job: Job) -> None:
            handle(json.loads(job.payload))

        await application.run(batch_size=BATCH_SIZE)


harness.run(PgQueuerPeer())
