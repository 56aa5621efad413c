"""awa: Rust core, COPY for bulk, 1024 workers, four enqueue shards."""

import asyncio
from dataclasses import dataclass

import awa
import harness

WORKERS = 1024


@dataclass
class Bench:
    sent: int
    message: str


class AwaPeer:
    async def open(self, url: str) -> None:
        self.url = url
        self.client = awa.AsyncClient(url)

    async def install(self) -> None:
        await awa.migrate(self.url)
        # The first worker on an empty database switches it to the queue storage, which bulk enqueueing requires.
        await self._start(harness.ignore)
        await self.client.shutdown()

    async def enqueue_one(self, payload: harness.Payload) -> None:
        await self.client.insert(Bench(**payload), queue="bench")

    async def enqueue_many(self, payloads: list[harness.Payload]) -> None:
        await self.client.enqueue_many_copy([Bench(**payload) for payload in payloads], queue="bench")

    async def work(self, handle: harness.Handle) -> None:
        await self._start(handle)
        await asyncio.Event().wait()

    async def _start(self, handle: harness.Handle) -> None:
        @self.client.task(Bench, queue="bench")
        async def bench(job: awa.Job) -> None:
            handle({"sent": job.args.sent})

        await self.client.start([("bench", WORKERS)])


harness.run(AwaPeer())
