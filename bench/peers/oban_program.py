"""Oban for Python: psycopg, uvloop, a queue limit of 100."""

import asyncio

import harness
from oban import Job, Oban, worker
from oban.schema import install

QUEUE_LIMIT = 100
# Oban creates the instances of a worker class itself, so the handler cannot be passed to the constructor.
handle_payload: harness.Handle = harness.ignore


@worker(queue="bench")
class Bench:
    async def process(self, job: Job) -> None:
        handle_payload(job.args)


class ObanPeer:
    async def open(self, url: str) -> None:
        self.pool = await Oban.create_pool(url)
        self.client = Oban(pool=self.pool)

    async def install(self) -> None:
        await install(self.pool)

    async def enqueue_one(self, payload: harness.Payload) -> None:
        await self.client.enqueue(Bench.new(payload))

    async def enqueue_many(self, payloads: list[harness.Payload]) -> None:
        await self.client.enqueue_many(Bench.new(payload) for payload in payloads)

    async def work(self, handle: harness.Handle) -> None:
        global handle_payload  # noqa: PLW0603 - Oban instantiates the worker class
        handle_payload = handle
        async with Oban(pool=self.pool, queues={"bench": QUEUE_LIMIT}):
            await asyncio.Event().wait()


harness.run(ObanPeer())
