"""Jobs that send messages and request receipts: tokens for a channel and account, not bound to a delivery.

On a channel with a rate, a job sends one batch, because the rate counts jobs. On other channels a job sends batches
for a few seconds and then enqueues a successor.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import randrange
from typing import Any, Protocol

from sereno.channels.contract import Channel
from sereno.jobs.job import NewJob
from sereno.jobs.limits.limit import Limit, Rate

# Most batches of one channel and account that are sent at once.
MOST_TOKENS = 50
# Most jobs for deliveries that are due later or sent batch after batch.
MOST_LATER = 10
# Special slots: a job without a slot, and a job whose successor gets a slot of its own if there is more to send.
ONCE, LATER = -2, -1


class JobMaker(Protocol):
    """The part of a task that this module uses."""

    # The options that send jobs use.
    def using(
        self,
        *,
        delay: float | None = None,
        unique_key: str | None = None,
        concurrency: Limit | None = None,
        rate: Rate | None = None,
    ) -> "JobMaker": ...

    def job(self, *arguments: Any) -> NewJob: ...


class SendJobs:
    """Creates send jobs and receipt jobs."""

    def __init__(
        self, channels: Mapping[str, Channel], deliver: Callable[[], JobMaker], receipts: Callable[[], JobMaker]
    ) -> None:
        self._channels = channels
        self._deliver = deliver
        self._receipts = receipts

    def to_send(self, channel: str, account: str, count: int = 0, due_in: float = 0.0) -> Sequence[NewJob]:
        """Jobs for `count` batches, one each; for many or an unknown number (0), jobs that enqueue successors."""
        task = self._limited(channel, account)
        if due_in > 0:
            return [task.using(delay=due_in).job(channel, account, LATER)] * min(count, MOST_LATER)
        if not count:
            return [task.job(channel, account, LATER)]
        if self._sends_repeatedly(channel):
            return [task.job(channel, account, ONCE)] * min(count, MOST_LATER)
        if count <= MOST_TOKENS:
            return [task.job(channel, account, ONCE)] * count
        return [_in_slot(task, channel, account, 2 * place) for place in range(MOST_TOKENS)]

    def for_deliveries(
        self, channel: str, account: str, count: int, batch: int, due_in: float = 0.0
    ) -> Sequence[NewJob]:
        """Jobs for `count` deliveries. With a rate, a job costs a whole batch: small ones share it, in a few slots."""
        full, rest = divmod(count, batch)
        if due_in > 0 or self._sends_repeatedly(channel) or not rest or full >= MOST_TOKENS:
            return self.to_send(channel, account, full + bool(rest), due_in)
        task, slot = self._limited(channel, account), 2 * randrange(MOST_TOKENS)  # noqa: S311 - see below
        # Two jobs: one of them may be running and have read its batch already.
        shared = [_in_slot(task, channel, account, place) for place in (slot, slot + 1)]
        return [*(self.to_send(channel, account, full) if full else ()), *shared]

    def after(self, channel: str, account: str, slot: int) -> NewJob | None:
        """The job for the batch after a full one: a slot is used once and then passes to its neighbour."""
        task = self._limited(channel, account)
        if slot == ONCE:
            return task.job(channel, account, ONCE) if self._sends_repeatedly(channel) else None
        chosen = 2 * randrange(MOST_TOKENS) if slot == LATER else slot ^ 1  # noqa: S311 - a slot, not a secret
        return _in_slot(task, channel, account, chosen)

    def standing(self, channel: str, account: str) -> NewJob:
        """One more job, without a slot."""
        return self._limited(channel, account).job(channel, account, ONCE)

    def to_ask(self, channel: str, account: str, due_in: float = 0.0) -> NewJob:
        """The job that requests the receipts that are due then."""
        task = self._receipts()
        return (task.using(delay=due_in) if due_in > 0 else task).job(channel, account)

    def _sends_repeatedly(self, channel: str) -> bool:
        known = self._channels.get(channel)
        return known is not None and known.rate is None

    def _limited(self, channel: str, account: str) -> JobMaker:
        """The task that sends, under the limits of the channel."""
        task = self._deliver()
        if (known := self._channels.get(channel)) is not None:
            name = f"channel.{channel}"
            if known.rate is not None:
                task = task.using(rate=replace(known.rate, name=f"{name}.rate", key=account, units=known.batch))
            if known.at_once is not None:
                task = task.using(concurrency=Limit(known.at_once, name=name, key=account))
        return task


def _in_slot(task: JobMaker, channel: str, account: str, slot: int) -> NewJob:
    return task.using(unique_key=f"{channel}/{account}/{slot}").job(channel, account, slot)
