"""Procrastinate: psycopg, uvloop, twenty jobs at a time, finished jobs deleted."""

import harness
from procrastinate import App, PsycopgConnector

CONCURRENCY = 20


class ProcrastinatePeer:
    async def open(self, url: str) -> None:
        self.application = App(connector=PsycopgConnector(conninfo=url))
        self.handle: harness.Handle = harness.ignore

        @self.application.task(name="bench")
        async def bench(**payload: object) -> None:
            self.handle(payload)

        self.task = bench
        await self.application.open_async()

    async def install(self) -> None:
        await self.application.schema_manager.apply_schema_async()

    async def enqueue_one(self, payload: harness.Payload) -> None:
        await self.task.defer_async(**payload)

    async def enqueue_many(self, payloads: list[harness.Payload]) -> None:
        await self.task.batch_defer_async(*payloads)

    async def work(self, handle: harness.Handle) -> None:
        self.handle = handle
        await self.application.run_worker_async(
            concurrency=CONCURRENCY,
            delete_jobs="successful",
            install_signal_handlers=False,
        )


harness.run(ProcrastinatePeer())
