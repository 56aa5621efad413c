"""Reports the carried queues of a worker to PostgreSQL, where every process reads them, and reads pauses there."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from sereno.carriers import reports
from sereno.carriers.contract import CarrierClient, CarrierState
from sereno.database.connect import ServiceConnection
from sereno.errors import CarrierUnavailable
from sereno.jobs.carried import CarriedQueue
from sereno.jobs.queries.jobs import pauses
from sereno.telemetry.carrier_gauges import CarrierGauges
from sereno.telemetry.service import Service
from sereno.worker.carried.pauses import CurrentPauses

# Seconds between two reports, and for the answer of a carrier.
REPORT_EVERY = 5.0
ANSWER_TIMEOUT = 5.0


class CarrierReports(Service):
    """Reports every few seconds. `connect`: returns the client of each queue. `on_pauses`: called after a change."""

    def __init__(
        self,
        connection: ServiceConnection,
        queues: Collection[CarriedQueue],
        connect: Mapping[str, Callable[[], Awaitable[CarrierClient]]],
        current: CurrentPauses,
        on_pauses: Callable[[], None],
    ) -> None:
        super().__init__("carrier reports")
        self._connection = connection
        self._queues = queues
        self._connect = connect
        self._pauses = current
        self._on_pauses = on_pauses
        # By queue, as last seen by this worker.
        self.gauges: dict[str, CarrierGauges] = {}

    async def run_once(self) -> float:
        if self._pauses.replace(await self._connection.run(pauses())):
            self._on_pauses()
        for queue in self._queues:
            await self._report(queue)
        return REPORT_EVERY

    async def _report(self, queue: CarriedQueue) -> None:
        try:
            state = await self._state(queue)
        except CarrierUnavailable as error:
            self.gauges[queue.name] = CarrierGauges(up=False)
            await self._connection.run(reports.not_reached(queue, error))
            return
        self.gauges[queue.name] = CarrierGauges(
            up=True,
            pending=state.pending_messages,
            held=state.held_messages,
            redelivered=state.redelivered_messages,
            jobs=reports.estimated_jobs(state),
            bytes=state.bytes,
            oldest=state.oldest or 0.0,
            replicas=state.replicas,
            current=state.current_replicas,
        )
        await self._connection.run(reports.reached(queue, state))

    async def _state(self, queue: CarriedQueue) -> CarrierState:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                client = await self._connect[queue.name]()
                return await client.state(queue.name)
        except TimeoutError:
            where = f"{queue.carrier.kind} at {queue.carrier.description}"
            raise CarrierUnavailable(f"{where} did not answer within {ANSWER_TIMEOUT:g} s") from None
