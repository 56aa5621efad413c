"""event ──▶ deliveries ──▶ messages ──▶ receipts.

Tasks of ours, in the hands of ordinary workers. A job for a channel is a token: whoever has it takes the next batch of
what is due there, so no delivery belongs to a job before it is being sent, and a job that dies takes none along.
Sending has a room of its own: `dispatch`.
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

# Recipients of one step of a fan-out: long enough to be quick, short enough that a crash repeats little.
STEP = 5000
# Those who wait for another channel are not looked at more often than this many seconds.
MOST_OFTEN = 5.0

# The job that looks at an event again, in so many seconds.
LookAgain = Callable[[int, float], Sequence[NewJob]]


class FanOut:
    """Carries events to people."""

    def __init__(
        self,
        database: Database,
        channels: Mapping[str, Channel],
        dispatch: DeliverySender,
        recorder: OutcomeRecorder,
        turns: SendJobs,
        escalation: LookAgain,
        fan_out_again: Callable[[int, str | None], Sequence[NewJob]],
    ) -> None:
        self._database = database
        self._channels = channels
        self._dispatch = dispatch
        self._recorder = recorder
        self._send_jobs = turns
        self._escalation = escalation
        self._fan_out_again = fan_out_again

    # event ──▶ deliveries

    async def fan_out(self, event: int) -> int:
        """All deliveries of an event, step by step; a step that was made is not made again. Answers how many."""
        await self._database.arun(events.name_recipients(event))
        total, more = 0, True
        while more:
            walked = await self._database.arun(self._walk(event))
            self._recorder.figures.made(walked.changes)
            total, more = total + walked.made, walked.more
        steps = await self._database.arun_one(events.steps(event))
        if steps:
            first_look = min(step.after for step in steps)
            await self._database.arun(transitions.enqueue(self._escalation(event, first_look)))
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
        """Those whom a channel did not reach in time are told by the next; looks again until all is decided."""
        steps = await self._database.arun_one(events.steps(event))
        waiting = made = 0
        for step in steps:
            walked: int | None = 0
            while walked is not None:
                found = await self._database.arun(self._escalate(event, step, walked))
                self._recorder.figures.made(found.changes)
                made, waiting, walked = made + found.ripe, waiting + found.waiting, found.walked
        # Whoever has just been given to the next channel may need the one behind it.
        if waiting or (made and len(steps) > 1):
            again = max(MOST_OFTEN, min(step.after for step in steps) / 2)
            await self._database.arun(transitions.enqueue(self._escalation(event, again)))

    def _escalate(self, event: int, step: EscalationStep, walked: int) -> Operation[events.EscalatedDelivery]:
        found = yield from events.escalate(event, step, walked, STEP)
        tokens: list[NewJob] = []
        for account, count in found.made:
            tokens += self._send_jobs.for_deliveries(step.second, account, count, self._dispatch.batch_of(step.second))
        # All of them in one call, which meets their unique keys in one order.
        if tokens:
            yield from transitions.enqueue(tokens)
        return found

    # messages ──▶ receipts

    async def receipts(self, channel: str, account: str) -> int:
        """Ask what became of those whose provider can be asked now; answers how many were asked for."""
        known = self._channels.get(channel)
        if known is None or known.receipts_after is None:
            # Nobody here can ask; a worker with other code may, until their time is over.
            await self._database.arun(receipts.end_asking(channel, account))
            return 0
        questions, count = await self._database.arun(self._ask(known, account))
        asked_for: dict[str, list[int]] = {}
        for question in questions:
            for delivery, name in question.deliveries:
                asked_for.setdefault(name, []).append(delivery)
        exchange = await self._dispatch.exchange(channel, account) if asked_for else None
        said: Sequence[Receipt] = ()
        if exchange is not None:
            said = [each for each in await known.receipts(list(asked_for), exchange) if each.provider_id in asked_for]
        if questions and (exchange is not None or not asked_for):
            await self._heard(channel, account, questions, asked_for, said)
        return count

    def _ask(self, known: Channel, account: str) -> Operation[tuple[list[ReceiptQuestion], int]]:
        """Whom to ask for, and the job that asks again, together: nobody may live to hear the answer."""
        after = known.receipts_after or 0.0
        questions, count = yield from receipts.ask(known.name, account, most=known.receipts_batch, again=after)
        tokens = [self._send_jobs.to_ask(known.name, account)] if count >= known.receipts_batch else []
        if count:
            tokens.append(self._send_jobs.to_ask(known.name, account, after))
        if tokens:
            yield from transitions.enqueue(tokens)
        return questions, count

    async def _heard(
        self,
        channel: str,
        account: str,
        questions: Sequence[ReceiptQuestion],
        asked_for: Mapping[str, Sequence[int]],
        said: Sequence[Receipt],
    ) -> None:
        """What was answered, and what is to be asked for again, together."""
        answered = {each.provider_id for each in said if each.outcome in receipts.OUTCOMES}
        left_over = {
            question.batch: [delivery for delivery, name in question.deliveries if name not in answered]
            for question in questions
        }
        applied = await self._database.arun(self._apply(channel, account, said, asked_for, left_over=left_over))
        self._recorder.figures.heard(channel, account, applied.told)
        await self._pause_if_down(channel, account, said)

    async def received(self, channel: str, account: str, said: Sequence[Receipt]) -> int:
        """What a provider tells by itself; answers how many deliveries it moved."""
        applied = await self._database.arun(self._apply(channel, account, said))
        self._recorder.figures.heard(channel, account, applied.told)
        await self._pause_if_down(channel, account, said)
        return applied.moved

    async def _pause_if_down(self, channel: str, account: str, said: Sequence[Receipt]) -> None:
        down = next((receipt for receipt in said if receipt.outcome == "down"), None)
        if down is not None:
            await self._recorder.pause(channel, account, one_line(down.code), one_line(down.message))

    def _apply(
        self,
        channel: str,
        account: str,
        said: Sequence[Receipt],
        asked_for: Mapping[str, Sequence[int]] | None = None,
        *,
        left_over: Mapping[int, Sequence[int]] | None = None,
        told_before: bool = False,
    ) -> Operation[ReceiptResult]:
        delays = self._recorder.policy(channel).delays
        applied = yield from receipts.apply(
            channel, account, said, delays, asked_for, left_over=left_over, told_before=told_before
        )
        tokens = [token for wait in applied.again for token in self._send_jobs.to_send(channel, account, 1, wait)]
        if tokens:
            yield from transitions.enqueue(tokens)
        return applied

    # whatever was left behind

    async def sweep(self) -> None:
        """What is due and nobody carries, because a job was cancelled, deleted or died: somebody takes its turn."""
        await self._database.arun(self._sweep())
        while (heard := await self._database.arun(self._apply_early())) is not None:
            channel, account, applied = heard
            self._recorder.figures.heard(channel, account, applied.told)

    def _apply_early(self) -> Operation[tuple[str, str, ReceiptResult] | None]:
        """The early receipts of one channel and account: taken and counted together, or not at all."""
        found = yield from receipts.early()
        if not found:
            return None
        said = [msgspec.convert({**early.receipt, "provider_id": early.provider_id}, Receipt) for early in found]
        channel, account = found[0].channel, found[0].account
        return channel, account, (yield from self._apply(channel, account, said, told_before=True))

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
