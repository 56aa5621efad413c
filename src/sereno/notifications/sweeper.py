"""Recovery: replaces lost jobs and applies receipts that arrived before their message was stored."""

from typing import TypedDict

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


class SweepCounts(TypedDict):
    """Jobs that a sweep made, by what they do, and deliveries that it changed because a receipt had come early."""

    sends: int
    receipts: int
    fan_outs: int
    early_receipts: int


class Sweeper:
    """Finds due work that has no job."""

    def __init__(
        self, database: Database, receipts: ReceiptCollector, send_jobs: SendJobs, jobs: NotificationJobs
    ) -> None:
        self._database = database
        self._receipts = receipts
        self._send_jobs = send_jobs
        self._jobs = jobs

    async def sweep(self) -> SweepCounts:
        """Enqueue jobs for due work of this service that has none any more, and apply receipts that came early."""
        sends, receipts, fan_outs = await self._database.arun(self._replace_jobs())
        early = await self._receipts.apply_early()
        return {"sends": sends, "receipts": receipts, "fan_outs": fan_outs, "early_receipts": early}

    def _replace_jobs(self) -> Operation[tuple[int, int, int]]:
        """Return the number of jobs that send, request receipts and fan out."""
        sends: list[NewJob] = []
        for channel, account in (yield from deliveries.without_job(self._jobs.queue)):
            sends += self._send_jobs.to_send(channel, account)
        unrequested = yield from receipt_store.unrequested(self._jobs.queue)
        receipts = [self._jobs.request_receipts(channel, account) for channel, account in unrequested]
        unmatched = yield from events.without_job(self._jobs.queue)
        fan_outs = [self._jobs.fan_out_again(*event) for event in unmatched]
        if jobs := [*sends, *receipts, *fan_outs]:
            yield from transitions.enqueue(jobs)
        return len(sends), len(receipts), len(fan_outs)
