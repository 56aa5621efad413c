"""The carried queues of one worker. They outlive a session: what the carrier has runs while PostgreSQL is away."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Self

from sereno.carriers.contract import Carrier, CarrierClient
from sereno.database.connect import ServiceConnection
from sereno.database.database import Database
from sereno.errors import CarrierUnavailable, LeaseLost
from sereno.jobs.job import ClaimedJob
from sereno.jobs.task import Registry
from sereno.telemetry.metrics import MetricTally
from sereno.telemetry.service import Service
from sereno.worker.carried.consumer import Consumer
from sereno.worker.carried.context import CarriedContext
from sereno.worker.carried.outcomes import CarriedOutcomes, Home
from sereno.worker.carried.relay import Relay
from sereno.worker.claiming.claimer import Claimer
from sereno.worker.claiming.slots import QueueSlots
from sereno.worker.claiming.starter import JobStarter
from sereno.worker.context import Context
from sereno.worker.executor import Executor
from sereno.worker.hooks import HookCaller
from sereno.worker.isolation.pool import IsolationPool
from sereno.worker.isolation.slots import IsolationSlots
from sereno.worker.running_call import RunningCall
from sereno.worker.settler import Settler

# Seconds between two checks of deadlines, while jobs run and while none do.
WATCH_EVERY, WATCH_WHEN_IDLE = 0.25, 1.0
# Seconds that cancelled handlers may take to end.
CANCEL_TIMEOUT = 5.0


class CarriedExecutor(Executor):
    """Runs carried jobs. Their contexts belong to the session that is current when they start."""

    outcomes: CarriedOutcomes

    async def flush_progress(self) -> bool:
        """Write the newest progress and the chunks of running jobs, which are stored in PostgreSQL for that."""
        contexts = [running.context for running in list(self.running.values()) if running.context is not None]
        for context in contexts:
            try:
                await context.flush_progress()
                await context.flush_chunks()
            except LeaseLost:
                # Another worker has settled the job, or its session is over: nothing of it is stored any more.
                continue
        return any(context.emitted is not None for context in contexts)

    def _context(self, running: RunningCall, job: ClaimedJob, batch: Sequence[ClaimedJob] = ()) -> Context:
        home = self.outcomes.home
        return CarriedContext(
            job,
            0 if home is None else home.session,
            self._database,
            self.outcomes,
            keep_history=running.definition.history,
            result_type=running.definition.result,
            began=lambda: running.started - job.seen,
            throttler=self.outcomes.throttle,
            batch=batch,
            is_own_flow=running.is_own_flow,
        )


class CarriedQueues(Service):
    """Consumers, outcomes and the executor of the carried queues of a worker; most workers have none.

    `queues`: their slots. `hurry`: set when running handlers shall not be waited for any more.
    """

    def __init__(
        self,
        database: Database,
        registry: Registry,
        queues: Mapping[str, int],
        tally: MetricTally,
        hurry: asyncio.Event,
    ) -> None:
        super().__init__("carried queues")
        self._grace = database.settings.grace
        self._hurry = hurry
        self._registry = registry
        self._clients: dict[Carrier, CarrierClient] = {}
        self._connecting = asyncio.Lock()
        self.queues = {name: QueueSlots(name, slots) for name, slots in queues.items()}
        self._hooks = HookCaller(registry.hooks) if registry.hooks else None
        self._connection = ServiceConnection(database.url, database.settings, "carrier")
        self._relay_connection = ServiceConnection(database.url, database.settings, "relay")
        self.outcomes = CarriedOutcomes(self._connection, tally, self._hooks)
        self.executor = CarriedExecutor(
            database,
            0,
            self.outcomes,
            tally,
            self._on_end,
            IsolationPool(database, registry, _never),
            threads=max(1, sum(queues.values())),
            registry=registry,
        )
        self.executor.outcomes = self.outcomes
        self._starter = JobStarter(registry, self.executor, IsolationSlots(0), self._fill)
        self._connect = {name: partial(self._client, registry.carried[name].carrier) for name in queues}
        self._consumers = {
            name: Consumer(slots, self._connect[name], registry, self.outcomes, self._connection, self._fill)
            for name, slots in self.queues.items()
        }
        self._is_drained = False
        self._is_consuming = False
        self._claimer: Claimer | None = None
        self._relay: Relay | None = None

    async def __aenter__(self) -> Self:
        if self.queues:
            self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    def start(self) -> None:
        super().start()
        if self._hooks is not None:
            self._hooks.start()
        self.outcomes.start()
        self.outcomes.messages.start()

    async def run_once(self) -> float:
        """Stop handlers that are past their deadline, and store the progress of those that report it."""
        self.executor.watch()
        if self.outcomes.home is not None:
            await self.executor.flush_progress()
        return WATCH_EVERY if self.executor.running else WATCH_WHEN_IDLE

    def begin_session(self, session: int, settler: Settler, claimer: Claimer, queues: Mapping[str, QueueSlots]) -> None:
        """Let jobs come home to this session, and publish jobs that it claims. `queues`: its slots for PostgreSQL."""
        if not self.queues:
            return
        if not self._is_consuming:
            # Not before: jobs that run would delay the registration of the first session.
            self._is_consuming = True
            for consumer in self._consumers.values():
                consumer.start()
        self._claimer = claimer
        for name, slots in self.queues.items():
            slots.beside, queues[name].beside = queues[name], slots
        self.outcomes.home = Home(session, settler, claimer)
        self.outcomes.wake()
        self._relay = Relay(self._relay_connection, session, settler, claimer, queues, self._connect, self._set_pauses)
        claimer.relay = self._relay
        self._relay.start()

    async def end_relay(self) -> None:
        """Publish no more; jobs that were not moved into a message are given back to the claimer."""
        relay, self._relay = self._relay, None
        if relay is not None:
            await relay.stop()
        if self._claimer is not None:
            self._claimer.relay = None

    async def end_session(self) -> None:
        """Keep outcomes that need PostgreSQL until the next session."""
        self.outcomes.home = None
        await self.end_relay()
        self._claimer = None
        for slots in self.queues.values():
            slots.beside = None

    def _set_pauses(self, pauses: set[tuple[str, str]]) -> None:
        for consumer in self._consumers.values():
            consumer.set_pauses(pauses)

    def fill(self, name: str) -> None:
        """Start jobs of a queue after one from PostgreSQL has ended."""
        slots = self.queues.get(name)
        if slots is not None and slots.buffer:
            self._fill(slots)

    def _fill(self, slots: QueueSlots) -> None:
        self._starter.fill(slots)

    def _on_end(self, jobs: Sequence[ClaimedJob]) -> None:
        slots = self.queues[jobs[0].queue]
        slots.ended(len(jobs), limited=False)
        beside = slots.beside
        if beside is not None and (beside.buffer or beside.limited) and self._claimer is not None:
            # Jobs from PostgreSQL go first: they are few, and some have waited since their last attempt.
            self._claimer.fill(beside)
        self._fill(slots)
        self._consumers[slots.name].job_ended()

    async def _client(self, carrier: Carrier) -> CarrierClient:
        async with self._connecting:
            client = self._clients.get(carrier)
            if client is None or client.is_closed:
                client = self._clients[carrier] = await carrier.connect()
        if not client.is_connected:
            raise CarrierUnavailable(f"{carrier.kind} at {carrier.description} is not reachable")
        return client

    async def drain(self) -> None:
        """Fetch no more, let running handlers end within the grace period, and give back the rest."""
        self._is_drained = True
        self._starter.is_stopped = True
        await asyncio.gather(*(consumer.stop() for consumer in self._consumers.values()))
        for slots in self.queues.values():
            slots.buffer.clear()
        self.executor.request_stop()
        end = monotonic() + self._grace
        while self.executor.running and monotonic() < end and not self._hurry.is_set():
            self.executor.watch()
            await asyncio.sleep(WATCH_EVERY / 5)
        self.outcomes.is_draining = True
        self.executor.release_all("the worker stopped")
        await self.executor.ended(CANCEL_TIMEOUT)

    async def _close(self) -> None:
        """Give back what has no outcome, and close the connections."""
        if not self._is_drained:
            await self.drain()
        await self.outcomes.stop()
        await self.outcomes.messages.stop()
        await self.stop()
        await self.outcomes.give_back()
        if self._hooks is not None:
            await self._hooks.stop()
        for client in self._clients.values():
            await client.close()
        await self._connection.close()
        await self._relay_connection.close()
        await self.executor.close()


async def _never(_: Mapping[int, int]) -> bool:
    """Announce nothing: isolated jobs run from PostgreSQL."""
    return False
