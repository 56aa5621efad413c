"""Jobs that send and ask: each is a turn on a channel and account, and belongs to no delivery before it has one.

Where a rate is kept, a turn is one batch, because a rate is counted in jobs. Elsewhere it goes on for a while, and then
leaves to another what is left.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import randrange
from typing import Any, Protocol

from sereno.channels.contract import Channel
from sereno.jobs.job import NewJob
from sereno.jobs.limits.limit import Limit, Rate

# As many batches of one channel and account are on their way at once.
MOST_TOKENS = 50
# Of what is due later, or sent batch after batch, as many begin.
MOST_LATER = 10
# A turn that has no seat, and one that goes on in a seat of its own if there is more.
ONCE, LATER = -2, -1


class JobMaker(Protocol):
    """A task, as far as it is needed here."""

    # Of its many options, those that turns need.
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
    """Makes them."""

    def __init__(
        self, channels: Mapping[str, Channel], deliver: Callable[[], JobMaker], receipts: Callable[[], JobMaker]
    ) -> None:
        self._channels = channels
        self._deliver = deliver
        self._receipts = receipts

    def to_send(self, channel: str, account: str, count: int = 0, due_in: float = 0.0) -> Sequence[NewJob]:
        """For so many batches: one each, or, when they are many or nobody knows, on and on until all is sent."""
        task = self._limited(channel, account)
        if due_in > 0:
            return [task.using(delay=due_in).job(channel, account, LATER)] * min(count, MOST_LATER)
        if not count:
            return [task.job(channel, account, LATER)]
        if self._goes_on(channel):
            return [task.job(channel, account, ONCE)] * min(count, MOST_LATER)
        if count <= MOST_TOKENS:
            return [task.job(channel, account, ONCE)] * count
        return [_in_slot(task, channel, account, 2 * place) for place in range(MOST_TOKENS)]

    def for_deliveries(
        self, channel: str, account: str, count: int, batch: int, due_in: float = 0.0
    ) -> Sequence[NewJob]:
        """For so many deliveries. With a rate, a turn costs a whole batch: small ones share it, in a few seats."""
        full, rest = divmod(count, batch)
        if due_in > 0 or self._goes_on(channel) or not rest or full >= MOST_TOKENS:
            return self.to_send(channel, account, full + bool(rest), due_in)
        task, slot = self._limited(channel, account), 2 * randrange(MOST_TOKENS)  # noqa: S311 - see below
        # Both: one of them may be under way, and have looked already.
        shared = [_in_slot(task, channel, account, place) for place in (slot, slot + 1)]
        return [*(self.to_send(channel, account, full) if full else ()), *shared]

    def after(self, channel: str, account: str, slot: int) -> NewJob | None:
        """Who takes the batch after a full one: each seat is taken once, and is left to the one beside it."""
        task = self._limited(channel, account)
        if slot == ONCE:
            return task.job(channel, account, ONCE) if self._goes_on(channel) else None
        chosen = 2 * randrange(MOST_TOKENS) if slot == LATER else slot ^ 1  # noqa: S311 - a seat, not a secret
        return _in_slot(task, channel, account, chosen)

    def standing(self, channel: str, account: str) -> NewJob:
        """One more, without a seat."""
        return self._limited(channel, account).job(channel, account, ONCE)

    def to_ask(self, channel: str, account: str, due_in: float = 0.0) -> NewJob:
        """For the receipts that can be asked for then."""
        task = self._receipts()
        return (task.using(delay=due_in) if due_in > 0 else task).job(channel, account)

    def _goes_on(self, channel: str) -> bool:
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
