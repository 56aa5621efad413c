"""The tasks with which workers send notifications."""

from collections.abc import Callable
from typing import Any

from sereno.jobs.retry import Backoff
from sereno.jobs.task import Registry, define
from sereno.notifications.deliveries.receipts import ReceiptCollector
from sereno.notifications.deliveries.send_jobs import LATER
from sereno.notifications.deliveries.sender import DeliverySender
from sereno.notifications.fan_out import FanOut
from sereno.notifications.jobs import CANCEL, DELIVER, ESCALATE, FAN_OUT, RECEIPTS, SWEEP
from sereno.notifications.sweeper import SweepCounts, Sweeper
from sereno.worker.context import Context

RETRY = Backoff(8)


class NotificationTasks:
    """Fan-out, escalation, cancellation, sending, receipts and the sweep, as functions that workers call."""

    def __init__(self, fanout: FanOut, sender: DeliverySender, receipts: ReceiptCollector, sweeper: Sweeper) -> None:
        self._fanout = fanout
        self._sender = sender
        self._receipts = receipts
        self._sweeper = sweeper

    def register(self, registry: Registry, queue: str) -> bool:
        """Register the tasks in this queue, unless they are registered already. Return whether they are new."""
        if registry.get(FAN_OUT) is not None:
            return False
        tasks: tuple[tuple[str, Callable[..., Any], str, bool], ...] = (
            (FAN_OUT, self.fan_out, "2h", True),
            (ESCALATE, self.escalate, "2h", False),
            (CANCEL, self.cancel_event, "2h", True),
            (DELIVER, self.deliver, "10m", False),
            (RECEIPTS, self.request_receipts, "10m", False),
            (SWEEP, self.sweep, "10m", True),
        )
        for name, function, timeout, history in tasks:
            registry.add(
                define(function, context=Context, name=name, queue=queue, retry=RETRY, timeout=timeout, history=history)
            )
        return True

    async def fan_out(self, event: int) -> None:
        await self._fanout.fan_out(event)

    async def escalate(self, event: int) -> None:
        await self._fanout.escalate(event)

    async def cancel_event(self, event: int) -> None:
        await self._fanout.skip_cancelled(event)

    async def deliver(self, ctx: Context, channel: str, account: str, slot: int = LATER) -> None:
        await self._sender.deliver(ctx.job_id, channel, account, slot)

    async def request_receipts(self, channel: str, account: str) -> None:
        await self._receipts.request(channel, account)

    async def sweep(self) -> SweepCounts:
        return await self._sweeper.sweep()
