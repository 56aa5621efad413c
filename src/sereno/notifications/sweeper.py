"""Recovery: replaces lost jobs and applies receipts that arrived before their message was stored."""

from sereno.database.database import Database
from sereno.database.statement import Operation
from sereno.jobs import transitions
from sereno.jobs.job import NewJob
from sereno.notifications import events
from sereno.notifications.deliveries import receipt_store
from sereno.notifications.deliveries import store as deliveries
from sereno.notifications.deliveries.receipts import ReceiptCollector
from sereno.notifications.deliveries.send_jobs import SendJobs
from sereno.notifications.jobs import NotificationJobs


class Sweeper:
    """Finds due work that has no job."""

    def __init__(
        self, database: Database, receipts: ReceiptCollector, send_jobs: SendJobs, jobs: NotificationJobs
    ) -> None:
        self._database = database
        self._receipts = receipts
        self._send_jobs = send_jobs
        self._jobs = jobs

    async def sweep(self) -> None:
        """Enqueue jobs for due work of this service that has none any more, and apply receipts that came early."""
        await self._database.arun(self._replace_jobs())
        await self._receipts.apply_early()

    def _replace_jobs(self) -> Operation[None]:
        jobs: list[NewJob] = []
        for channel, account in (yield from deliveries.without_job(self._jobs.queue)):
            jobs += self._send_jobs.to_send(channel, account)
        for channel, account in (yield from receipt_store.unrequested(self._jobs.queue)):
            jobs.append(self._jobs.request_receipts(channel, account))
        for event, tenant in (yield from events.without_job(self._jobs.queue)):
            jobs.append(self._jobs.fan_out_again(event, tenant))
        if jobs:
            yield from transitions.enqueue(jobs)
