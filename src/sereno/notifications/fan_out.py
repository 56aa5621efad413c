"""event ──▶ deliveries: creates them, and escalates to the next channel.

Runs as tasks of sereno in ordinary workers. A job for a channel is a token: it claims the next batch of due deliveries
of that channel. A delivery belongs to a job only while it is being sent, so a job that dies loses none.
The module `deliveries.sender` does the sending, `deliveries.receipts` the receipts.
"""

from collections.abc import Mapping

from sereno.channels.contract import EscalationStep
from sereno.database.database import Database
from sereno.database.statement import Operation
from sereno.jobs import transitions
from sereno.jobs.attempt import Snooze
from sereno.jobs.job import NewJob
from sereno.notifications import broadcasts, events
from sereno.notifications.deliveries.send_jobs import SendJobs
from sereno.notifications.deliveries.stats_writer import DeliveryStatsWriter
from sereno.notifications.event import EventDefinition
from sereno.notifications.jobs import NotificationJobs
from sereno.notifications.payload_check import is_payload_valid

# Large enough to be fast, small enough that a crash repeats little work.
RECIPIENTS_PER_STEP = 5000
# Seconds of deliveries that wait for their time, at the rate of their event.
LONGEST_AHEAD = 10.0
# Shortest interval in seconds between two escalation checks of an event.
SHORTEST_CHECK_INTERVAL = 5.0


class FanOut:
    """Creates the deliveries of events, escalates them, and skips those of cancelled events."""

    def __init__(
        self,
        database: Database,
        definitions: Mapping[str, EventDefinition],
        stats: DeliveryStatsWriter,
        send_jobs: SendJobs,
        jobs: NotificationJobs,
    ) -> None:
        self._database = database
        self._definitions = definitions
        self._stats = stats
        self._send_jobs = send_jobs
        self._jobs = jobs

    async def fan_out(self, event: int) -> int:
        """Create all deliveries of an event, step by step; a committed step is not repeated. Return their number.

        Of an event with a rate, only those of the next seconds: Snooze then says when to continue.
        """
        if not await is_payload_valid(self._database, self._definitions, event):
            return 0
        await self._database.arun(events.name_recipients(event))
        total, more = 0, True
        while more:
            step = await self._database.arun(self.create_deliveries(event))
            self._stats.count_created(step.changes)
            total, more = total + step.created, step.more
            if more and step.ahead > LONGEST_AHEAD:
                raise Snooze(step.ahead - LONGEST_AHEAD, reason="the deliveries so far last until then, at the rate")
        escalation = await self._database.arun_one(events.steps(event))
        if escalation:
            first_check = min(step.after for step in escalation)
            await self._database.arun(transitions.enqueue([self._jobs.escalate(event, first_check)]))
        return total

    def create_deliveries(self, event: int) -> Operation[events.FanOutStep]:
        """Create the deliveries of the next recipients and the jobs that send them, in one transaction."""
        step = yield from events.fan_out(event, RECIPIENTS_PER_STEP, self._send_jobs.batch_sizes(), self._jobs.queue)
        tokens: list[NewJob] = []
        for channel, account, count, due_in in step.waiting:
            tokens += self._send_jobs.for_deliveries(channel, account, count, due_in)
        if tokens:
            yield from transitions.enqueue(tokens)
        return step

    async def skip_cancelled(self, event: int) -> int:
        """Skip the deliveries of a cancelled event that wait, step by step. Return their number."""
        total, last_batch = 0, 0
        while True:
            batch, changes = await self._database.arun(broadcasts.skip_cancelled(event, last_batch))
            self._stats.count_unsent(changes)
            total += sum(change.count for change in changes)
            if batch is None:
                return total
            last_batch = batch

    async def escalate(self, event: int) -> None:
        """Create deliveries on the next channel for recipients not reached in time; repeat until all are decided."""
        steps = await self._database.arun_one(events.steps(event))
        waiting = escalated = 0
        for step in steps:
            last_recipient: int | None = 0
            while last_recipient is not None:
                found = await self._database.arun(self._escalate(event, step, last_recipient))
                self._stats.count_created(found.changes)
                escalated, waiting = escalated + found.ripe, waiting + found.waiting
                last_recipient = found.last_recipient
        # A recipient who was just passed to the next channel may need the channel after that.
        if waiting or (escalated and len(steps) > 1):
            again = max(SHORTEST_CHECK_INTERVAL, min(step.after for step in steps) / 2)
            await self._database.arun(transitions.enqueue([self._jobs.escalate(event, again)]))

    def _escalate(self, event: int, step: EscalationStep, last_recipient: int) -> Operation[events.EscalatedDelivery]:
        found = yield from events.escalate(event, step, last_recipient, RECIPIENTS_PER_STEP, self._jobs.queue)
        tokens: list[NewJob] = []
        for account, count in found.created:
            tokens += self._send_jobs.for_deliveries(step.second, account, count)
        # One call for all tokens, so that their unique keys are locked in one order.
        if tokens:
            yield from transitions.enqueue(tokens)
        return found
