"""Jobs that send messages: tokens for a channel and account, not bound to a delivery.

On a channel with a rate, a job sends one batch, because the rate counts jobs. On other channels a job sends batches
for a few seconds and then enqueues a successor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import randrange

from sereno.channels.contract import IN_APP, Channel
from sereno.jobs.job import JobOptions, NewJob
from sereno.jobs.limits.limit import NO_RULE, KeyRule, Limit, rule
from sereno.notifications.jobs import DELIVER, NO_OPTIONS, NotificationJobs

# Inbox messages per statement.
INBOX_BATCH = 500
# Most batches of one channel and account that are sent at once.
MOST_TOKENS = 50
# Most jobs for deliveries that are due later or sent batch after batch.
MOST_LATER = 10
# Special slots: a job without a slot, and a job whose successor gets a slot of its own if there is more to send.
ONCE, LATER = -2, -1


class SendJobs:
    """Creates send jobs."""

    def __init__(self, channels: Mapping[str, Channel], jobs: NotificationJobs) -> None:
        self._channels = channels
        self._jobs = jobs

    @property
    def queue(self) -> str:
        return self._jobs.queue

    def to_send(self, channel: str, account: str, count: int = 0, due_in: float = 0.0) -> Sequence[NewJob]:
        """Jobs for `count` batches, one each; for many or an unknown number (0), jobs that enqueue successors."""
        if due_in > 0:
            return [self._job(channel, account, LATER, JobOptions(delay=due_in))] * min(count, MOST_LATER)
        if not count:
            return [self._job(channel, account, LATER)]
        if self._sends_repeatedly(channel):
            return [self._job(channel, account, ONCE)] * min(count, MOST_LATER)
        if count <= MOST_TOKENS:
            return [self._job(channel, account, ONCE)] * count
        return [self._in_slot(channel, account, 2 * place) for place in range(MOST_TOKENS)]

    def in_queue(self, queue: str, channel: str, account: str, due_in: float = 0.0) -> NewJob:
        """A job for deliveries in the queue of any service, which enqueues successors."""
        options = JobOptions(delay=due_in) if due_in > 0 else NO_OPTIONS
        return self._job(channel, account, LATER, options, queue)

    def for_deliveries(self, channel: str, account: str, count: int, due_in: float = 0.0) -> Sequence[NewJob]:
        """Jobs for `count` deliveries. With a rate, a job costs a whole batch: small ones share it, in a few slots."""
        full, rest = divmod(count, self.batch_size(channel))
        if due_in > 0 or self._sends_repeatedly(channel) or not rest or full >= MOST_TOKENS:
            return self.to_send(channel, account, full + bool(rest), due_in)
        slot = 2 * randrange(MOST_TOKENS)  # noqa: S311 - a slot, not a secret
        # Two jobs: one of them may be running and have read its batch already.
        shared = [self._in_slot(channel, account, place) for place in (slot, slot + 1)]
        return [*(self.to_send(channel, account, full) if full else ()), *shared]

    def after(self, channel: str, account: str, slot: int) -> NewJob | None:
        """The job for the batch after a full one: a slot is used once and then passes to its neighbour."""
        if slot == ONCE:
            return self._job(channel, account, ONCE) if self._sends_repeatedly(channel) else None
        chosen = 2 * randrange(MOST_TOKENS) if slot == LATER else slot ^ 1  # noqa: S311 - a slot, not a secret
        return self._in_slot(channel, account, chosen)

    def without_slot(self, channel: str, account: str) -> NewJob:
        """One more job, without a slot."""
        return self._job(channel, account, ONCE)

    def batch_size(self, channel: str) -> int:
        """Return the most deliveries that one call of the channel takes."""
        known = self._channels.get(channel)
        return INBOX_BATCH if channel == IN_APP or known is None else known.batch

    def batch_sizes(self) -> Mapping[str, int]:
        return {name: self.batch_size(name) for name in (*self._channels, IN_APP)}

    def _sends_repeatedly(self, channel: str) -> bool:
        known = self._channels.get(channel)
        return known is not None and known.rate is None

    def _in_slot(self, channel: str, account: str, slot: int) -> NewJob:
        return self._job(channel, account, slot, JobOptions(unique_key=f"{self.queue}/{channel}/{account}/{slot}"))

    def _job(
        self, channel: str, account: str, slot: int, options: JobOptions = NO_OPTIONS, queue: str | None = None
    ) -> NewJob:
        arguments = {"channel": channel, "account": account, "slot": slot}
        return self._jobs.new(DELIVER, arguments, options, self._limits(channel, account), queue)

    def _limits(self, channel: str, account: str) -> KeyRule:
        """Return the limits of the channel, counted for each account."""
        known = self._channels.get(channel)
        if known is None or (known.rate is None and known.at_once is None):
            return NO_RULE
        name, rate = f"channel.{channel}", known.rate
        return rule(
            "",
            None if known.at_once is None else Limit(known.at_once, name=name, key=account),
            None if rate is None else replace(rate, name=f"{name}.rate", key=account, units=known.batch),
        )
