"""event ──▶ deliveries ──▶ messages ──▶ receipts.

Runs as tasks of sereno in ordinary workers. A job for a channel is a token: it claims the next batch of due deliveries
of that channel. A delivery belongs to a job only while it is being sent, so a job that dies loses none.
The module `deliveries.sender` does the sending.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from sereno.channels.contract import IN_APP, Channel, EscalationStep
from sereno.channels.outcome import Receipt
from sereno.database.database import Database
from sereno.database.statement import Operation
from sereno.error_text import one_line
from sereno.jobs import transitions
from sereno.jobs.job import NewJob
from sereno.notifications import events
from sereno.notifications.deliveries import receipts
from sereno.notifications.deliveries import store as deliveries
from sereno.notifications.deliveries.outcomes import OutcomeRecorder
from sereno.notifications.deliveries.receipts import ReceiptQuestion, ReceiptResult
from sereno.notifications.deliveries.send_jobs import SendJobs
from sereno.notifications.deliveries.sender import DeliverySender

# Recipients per fan-out step: large enough to be fast, small enough that a crash repeats little work.
STEP = 5000
# Shortest interval in seconds between two escalation checks of an event.
MOST_OFTEN = 5.0

# Returns the job that checks an event for escalation after a delay in seconds.
EscalationJob = Callable[[int, float], Sequence[NewJob]]


class FanOut:
    """Creates the deliveries of events, escalates them, and applies receipts."""

    def __init__(
        self,
        database: Database,
        channels: Mapping[str, Channel],
        dispatch: DeliverySender,
        recorder: OutcomeRecorder,
        send_jobs: SendJobs,
        escalation: EscalationJob,
        fan_out_again: Callable[[int, str | None], Sequence[NewJob]],
    ) -> None:
        self._database = database
        self._channels = channels
        self._dispatch = dispatch
        self._recorder = recorder
        self._send_jobs = send_jobs
        self._escalation = escalation
        self._fan_out_again = fan_out_again

    # event ──▶ deliveries

    async def fan_out(self, event: int) -> int:
        """Create all deliveries of an event, step by step; a committed step is not repeated. Return their number."""
        await self._database.arun(events.name_recipients(event))
        total, more = 0, True
        while more:
            walked = await self._database.arun(self._walk(event))
            self._recorder.figures.made(walked.changes)
            total, more = total + walked.made, walked.more
        steps = await self._database.arun_one(events.steps(event))
        if steps:
            first_check = min(step.after for step in steps)
            await self._database.arun(transitions.enqueue(self._escalation(event, first_check)))
        return total

    def _walk(self, event: int) -> Operation[events.FanOutStep]:
        sizes = {name: self._dispatch.batch_of(name) for name in (*self._channels, IN_APP)}
        walked = yield from events.fan_out(event, STEP, sizes)
        tokens: list[NewJob] = []
        for channel, account, count, due_in in walked.waiting:
            tokens += self._send_jobs.for_deliveries(channel, account, count, self._dispatch.batch_of(channel), due_in)
        if tokens:
            yield from transitions.enqueue(tokens)
        return walked

    async def escalate(self, event: int) -> None:
        """Create deliveries on the next channel for recipients not reached in time; repeat until all are decided."""
        steps = await self._database.arun_one(events.steps(event))
        waiting = made = 0
        for step in steps:
            walked: int | None = 0
            while walked is not None:
                found = await self._database.arun(self._escalate(event, step, walked))
                self._recorder.figures.made(found.changes)
                made, waiting, walked = made + found.ripe, waiting + found.waiting, found.walked
        # A recipient who was just passed to the next channel may need the channel after that.
        if waiting or (made and len(steps) > 1):
            again = max(MOST_OFTEN, min(step.after for step in steps) / 2)
            await self._database.arun(transitions.enqueue(self._escalation(event, again)))

    def _escalate(self, event: int, step: EscalationStep, walked: int) -> Operation[events.EscalatedDelivery]:
        found = yield from events.escalate(event, step, walked, STEP)
        tokens: list[NewJob] = []
        for account, count in found.made:
            tokens += self._send_jobs.for_deliveries(step.second, account, count, self._dispatch.batch_of(step.second))
        # One call for all tokens, so that their unique keys are locked in one order.
        if tokens:
            yield from transitions.enqueue(tokens)
        return found

    # messages ──▶ receipts

    async def receipts(self, channel: str, account: str) -> int:
        """Request the receipts that are due from the provider. Return the number of deliveries that were requested."""
        known = self._channels.get(channel)
        if known is None or known.receipts_after is None:
            # This code cannot request receipts; a worker with other code may, until the receipts expire.
            await self._database.arun(receipts.end_asking(channel, account))
            return 0
        questions, count = await self._database.arun(self._request_receipts(known, account))
        requested: dict[str, list[int]] = {}
        for question in questions:
            for delivery, name in question.deliveries:
                requested.setdefault(name, []).append(delivery)
        exchange = await self._dispatch.exchange(channel, account) if requested else None
        received: Sequence[Receipt] = ()
        if exchange is not None:
            found = await known.receipts(list(requested), exchange)
            received = [each for each in found if each.provider_id in requested]
        if questions and (exchange is not None or not requested):
            await self._record_receipts(channel, account, questions, requested, received)
        return count

    def _request_receipts(self, known: Channel, account: str) -> Operation[tuple[list[ReceiptQuestion], int]]:
        """Claim due receipts and enqueue the next request in one transaction: this worker may die before the reply."""
        after = known.receipts_after or 0.0
        questions, count = yield from receipts.ask(known.name, account, most=known.receipts_batch, again=after)
        tokens = [self._send_jobs.to_ask(known.name, account)] if count >= known.receipts_batch else []
        if count:
            tokens.append(self._send_jobs.to_ask(known.name, account, after))
        if tokens:
            yield from transitions.enqueue(tokens)
        return questions, count

    async def _record_receipts(
        self,
        channel: str,
        account: str,
        questions: Sequence[ReceiptQuestion],
        requested: Mapping[str, Sequence[int]],
        received: Sequence[Receipt],
    ) -> None:
        """Apply the receipts and reschedule those that are missing, in one transaction."""
        answered = {each.provider_id for each in received if each.outcome in receipts.OUTCOMES}
        left_over = {
            question.batch: [delivery for delivery, name in question.deliveries if name not in answered]
            for question in questions
        }
        applied = await self._database.arun(self._apply(channel, account, received, requested, left_over=left_over))
        self._recorder.figures.heard(channel, account, applied.told)
        await self._pause_if_down(channel, account, received)

    async def received(self, channel: str, account: str, received: Sequence[Receipt]) -> int:
        """Apply receipts that a provider sent to the webhook. Return the number of deliveries that changed."""
        applied = await self._database.arun(self._apply(channel, account, received))
        self._recorder.figures.heard(channel, account, applied.told)
        await self._pause_if_down(channel, account, received)
        return applied.moved

    async def _pause_if_down(self, channel: str, account: str, received: Sequence[Receipt]) -> None:
        down = next((receipt for receipt in received if receipt.outcome == "down"), None)
        if down is not None:
            await self._recorder.pause(channel, account, one_line(down.code), one_line(down.message))

    def _apply(
        self,
        channel: str,
        account: str,
        received: Sequence[Receipt],
        requested: Mapping[str, Sequence[int]] | None = None,
        *,
        left_over: Mapping[int, Sequence[int]] | None = None,
        told_before: bool = False,
    ) -> Operation[ReceiptResult]:
        delays = self._recorder.policy(channel).delays
        applied = yield from receipts.apply(
            channel, account, received, delays, requested, left_over=left_over, told_before=told_before
        )
        tokens = [token for wait in applied.again for token in self._send_jobs.to_send(channel, account, 1, wait)]
        if tokens:
            yield from transitions.enqueue(tokens)
        return applied

    # Recovery

    async def sweep(self) -> None:
        """Enqueue jobs for due work whose job was cancelled, deleted or died, and apply receipts that came early."""
        await self._database.arun(self._sweep())
        while (result := await self._database.arun(self._apply_early())) is not None:
            channel, account, applied = result
            self._recorder.figures.heard(channel, account, applied.told)

    def _apply_early(self) -> Operation[tuple[str, str, ReceiptResult] | None]:
        """Apply the early receipts of one channel and account, and remove them, in one transaction."""
        found = yield from receipts.early()
        if not found:
            return None
        received = [msgspec.convert({**early.receipt, "provider_id": early.provider_id}, Receipt) for early in found]
        channel, account = found[0].channel, found[0].account
        return channel, account, (yield from self._apply(channel, account, received, told_before=True))

    def _sweep(self) -> Operation[None]:
        tokens: list[NewJob] = []
        for channel, account in (yield from deliveries.neglected()):
            tokens += self._send_jobs.to_send(channel, account)
        for channel, account in (yield from receipts.unasked()):
            tokens.append(self._send_jobs.to_ask(channel, account))
        for event, tenant in (yield from events.unwalked()):
            tokens += self._fan_out_again(event, tenant)
        if tokens:
            yield from transitions.enqueue(tokens)
