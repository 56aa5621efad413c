"""messages ──▶ receipts: requests them from providers, and applies what providers report."""

from collections.abc import Mapping, Sequence

import msgspec

from sereno.channels.contract import Callback, Channel, Exchange
from sereno.channels.outcome import Receipt
from sereno.channels.registry import Channels
from sereno.database.database import Database
from sereno.database.statement import Operation
from sereno.error_text import one_line
from sereno.jobs import transitions
from sereno.notifications.deliveries import receipt_store
from sereno.notifications.deliveries import store as deliveries
from sereno.notifications.deliveries.exchanges import Exchanges
from sereno.notifications.deliveries.outcomes import OutcomeRecorder
from sereno.notifications.deliveries.receipt_store import ReceiptRequest, ReceiptResult
from sereno.notifications.deliveries.send_jobs import SendJobs
from sereno.notifications.jobs import NotificationJobs


class ReceiptCollector:
    """Collects the receipts of sent messages."""

    def __init__(
        self,
        database: Database,
        channels: Channels,
        exchanges: Exchanges,
        recorder: OutcomeRecorder,
        send_jobs: SendJobs,
        jobs: NotificationJobs,
    ) -> None:
        self._database = database
        self._channels = channels
        self._exchanges = exchanges
        self._recorder = recorder
        self._send_jobs = send_jobs
        self._jobs = jobs

    async def request(self, channel: str, account: str) -> int:
        """Request the receipts that are due from the provider. Return the number of deliveries that were requested."""
        known = self._channels.known.get(channel)
        if known is None or known.receipts_after is None:
            # This code cannot request receipts; a worker with other code may, until the receipts expire.
            await self._database.arun(receipt_store.stop_expired(channel, account, self._jobs.queue))
            return 0
        requests, count = await self._database.arun(self._claim_due(known, account))
        requested: dict[str, list[int]] = {}
        for request in requests:
            for delivery, name in request.deliveries:
                requested.setdefault(name, []).append(delivery)
        exchange = await self._exchanges.find(channel, account) if requested else None
        received: Sequence[Receipt] = ()
        if exchange is not None:
            found = await known.receipts(list(requested), exchange)
            received = [each for each in found if each.provider_id in requested]
        if requests and (exchange is not None or not requested):
            await self._record(channel, account, requests, requested, received)
        return count

    def _claim_due(self, known: Channel, account: str) -> Operation[tuple[list[ReceiptRequest], int]]:
        """Claim due receipts and enqueue the next request in one transaction: this worker may die before the reply."""
        after = known.receipts_after or 0.0
        requests, count = yield from receipt_store.claim_due(
            known.name, account, most=known.receipts_batch, again=after, queue=self._jobs.queue
        )
        jobs = [self._jobs.request_receipts(known.name, account)] if count >= known.receipts_batch else []
        if count:
            jobs.append(self._jobs.request_receipts(known.name, account, after))
        if jobs:
            yield from transitions.enqueue(jobs)
        return requests, count

    async def _record(
        self,
        channel: str,
        account: str,
        requests: Sequence[ReceiptRequest],
        requested: Mapping[str, Sequence[int]],
        received: Sequence[Receipt],
    ) -> None:
        """Apply the receipts and reschedule those that are missing, in one transaction."""
        answered = {each.provider_id for each in received if each.outcome in receipt_store.OUTCOMES}
        left_over = {
            request.batch: [delivery for delivery, name in request.deliveries if name not in answered]
            for request in requests
        }
        applied = await self._database.arun(self._apply(channel, account, received, requested, left_over=left_over))
        self._recorder.stats.count_receipts(channel, account, applied.received)
        await self._pause_if_down(channel, account, received)

    async def callback(self, channel: str, callback: Callback, account: str) -> int:
        """Apply the receipts of a provider's webhook call. Return the number of deliveries that changed."""
        settings = self._channels.accounts.get(channel, {})
        if account:
            settings = await self._database.arun(deliveries.account_settings(channel, account))
        async with Exchange(settings, own=bool(account)) as exchange:
            received = await self._channels[channel].read_callback(callback, exchange)
        return await self.apply(channel, account, received)

    async def apply(self, channel: str, account: str, received: Sequence[Receipt]) -> int:
        """Apply receipts that a provider sent unasked. Return the number of deliveries that changed."""
        applied = await self._database.arun(self._apply(channel, account, received))
        self._recorder.stats.count_receipts(channel, account, applied.received)
        await self._pause_if_down(channel, account, received)
        return applied.moved

    async def _pause_if_down(self, channel: str, account: str, received: Sequence[Receipt]) -> None:
        down = next((receipt for receipt in received if receipt.outcome == "down"), None)
        if down is not None:
            await self._recorder.pause(channel, account, one_line(down.code), one_line(down.message))

    async def apply_early(self) -> int:
        """Apply receipts that arrived before their message was stored, one channel and account at a time.

        Return the number of deliveries that changed.
        """
        moved = 0
        while (result := await self._database.arun(self._apply_early())) is not None:
            channel, account, applied = result
            self._recorder.stats.count_receipts(channel, account, applied.received)
            moved += applied.moved
        return moved

    def _apply_early(self) -> Operation[tuple[str, str, ReceiptResult] | None]:
        """Apply the early receipts of one channel and account, and remove them, in one transaction."""
        found = yield from receipt_store.early()
        if not found:
            return None
        received = [msgspec.convert({**early.receipt, "provider_id": early.provider_id}, Receipt) for early in found]
        channel, account = found[0].channel, found[0].account
        return channel, account, (yield from self._apply(channel, account, received, drop_unknown=True))

    def _apply(
        self,
        channel: str,
        account: str,
        received: Sequence[Receipt],
        requested: Mapping[str, Sequence[int]] | None = None,
        *,
        left_over: Mapping[int, Sequence[int]] | None = None,
        drop_unknown: bool = False,
    ) -> Operation[ReceiptResult]:
        delays = self._recorder.policy(channel).delays
        applied = yield from receipt_store.apply(
            channel, account, received, delays, requested, left_over=left_over, drop_unknown=drop_unknown
        )
        jobs = [self._send_jobs.in_queue(queue, channel, account, wait) for queue, wait in applied.again]
        if jobs:
            yield from transitions.enqueue(jobs)
        return applied
