"""Records delivery outcomes durably: a delivery whose outcome is not recorded would be sent again."""

import asyncio
import logging
import math
import random
from collections.abc import Mapping, Sequence
from time import monotonic

import psycopg

from sereno.channels.contract import IN_APP, Channel
from sereno.channels.outcome import Down, Outcome
from sereno.database.database import Database
from sereno.database.statement import Operation
from sereno.error_text import one_line
from sereno.errors import DatabaseUnavailable
from sereno.jobs import transitions as job_store
from sereno.notifications.deliveries import store as deliveries
from sereno.notifications.deliveries.send_jobs import SendJobs
from sereno.notifications.deliveries.stats_writer import DeliveryStatsWriter, Kinds
from sereno.notifications.deliveries.store import Batch, ClaimedDelivery, RecordedOutcome
from sereno.notifications.deliveries.transition import DeliveryPolicy, Transition, judge
from sereno.notifications.jobs import NotificationJobs
from sereno.telemetry.log_events import emit

# Unknown outcomes per delivery after which an operator has to decide.
MOST_UNKNOWN = 3
# Shortest and longest delay in seconds before a delivery that this code does not know is offered to another worker;
# the delay is a share of the delivery's age.
ELSEWHERE_SECONDS = (1.0, 30.0)
ELSEWHERE_SHARE = 0.25
# Delays up to this many seconds are rounded to whole seconds, longer ones to multiples of it.
FINE_SECONDS = 10
# Receipts of messages sent within this many seconds are requested by one job, delayed by the same time; less where
# receipts come sooner.
REQUEST_TOGETHER = 5.0
# Seconds by which the database's clock may differ from what is expected of it.
CLOCK_SLACK = 1.0
# Pauses in seconds between attempts to record outcomes before the batch is given up.
WRITE_AGAIN = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 10.0)


class DeliveryMovedOn:
    """The code of this worker does not know the channel or the event; another worker's code may."""


class OutcomeRecorder:
    """Records outcomes of deliveries, and enqueues the jobs that retry them or request their receipts."""

    def __init__(
        self,
        database: Database,
        channels: Mapping[str, Channel],
        stats: DeliveryStatsWriter,
        send_jobs: SendJobs,
        jobs: NotificationJobs,
    ) -> None:
        self._database = database
        self._channels = channels
        self.stats = stats
        self._send_jobs = send_jobs
        self._jobs = jobs
        self._chance = random.Random()  # noqa: S311 - jitter, not secrets
        # By channel and account: time until which an enqueued receipt job covers new messages.
        self._requested_until: dict[tuple[str, str], float] = {}
        # The database's clock minus this process's, at the last record.
        self._clock_offset = math.inf

    def policy(self, channel: str) -> DeliveryPolicy:
        known = self._channels.get(channel)
        if known is None:
            return DeliveryPolicy(delays=Channel.delays)
        has_webhook = known.receipts_after is None or type(known).webhook is not Channel.webhook
        return DeliveryPolicy(
            delays=known.delays,
            on_unknown=known.on_unknown,
            receipts_after=known.receipts_after,
            receipts_for=known.receipts_for,
            has_webhook=has_webhook,
        )

    async def record(
        self,
        job: int,
        channel: str,
        account: str,
        batch: Batch,
        taken: Sequence[ClaimedDelivery],
        outcomes: Mapping[int, Outcome | DeliveryMovedOn],
        *,
        last: bool = True,
    ) -> None:
        """Record the outcomes of deliveries of the batch. `last`: of all that remain."""
        policy = self.policy(channel)
        transitions = [
            _for_other_worker(each)
            if isinstance(outcome := outcomes[each.id], DeliveryMovedOn)
            else judge(each.id, each.attempt, outcome, policy, self._chance)
            for each in taken
        ]
        kinds = {each.id: (batch.events[each.event_id].type, each.tenant or "") for each in taken}
        await _OutcomeWriter(self, job, channel, account, batch.batches, kinds).write(transitions, last=last)
        down = next((outcome for outcome in outcomes.values() if isinstance(outcome, Down)), None)
        if down is not None:
            await self.pause(channel, account, one_line(down.code), one_line(down.message))

    async def settle_stranded(self, job: int, channel: str, account: str) -> None:
        """Settle deliveries whose worker died while sending: the outcome is unknown, the channel's policy decides."""
        if not await self._database.arun_one(deliveries.stranded(channel, account, job, self._jobs.queue)):
            return
        transitions, kinds = await self._database.arun(self._settle(job, channel, account))
        if transitions:
            self.stats.count_outcomes(channel, account, transitions, kinds)
            emit(
                logging.WARNING,
                "delivery.unknown",
                f"{len(transitions)} deliveries by {channel}: the worker died while sending them, "
                "so their outcome is unknown",
                channel=channel,
            )

    def _settle(self, job: int, channel: str, account: str) -> Operation[tuple[list[Transition], Kinds]]:
        """Find and settle them under one lock: another worker that found them may already be sending them again."""
        parks = channel != IN_APP and self.policy(channel).on_unknown == "park"
        found = yield from deliveries.stranded(channel, account, job, self._jobs.queue)
        transitions = [
            _lost(delivery, is_parked=parks or unknowns >= MOST_UNKNOWN)
            for batch in found
            for delivery, unknowns in batch.deliveries
        ]
        yield from deliveries.record(job, [batch.batch for batch in found], transitions)
        if len(found) >= deliveries.MOST_STRANDED or any(transition.state == "pending" for transition in transitions):
            # Also sends what the batch of this job does not hold.
            yield from job_store.enqueue(self._send_jobs.to_send(channel, account))
        kinds = {
            delivery: kind for batch in found for (delivery, _), kind in zip(batch.deliveries, batch.kinds, strict=True)
        }
        return transitions, kinds

    def write(
        self,
        job: int,
        channel: str,
        account: str,
        batches: Sequence[int],
        transitions: Sequence[Transition],
        *,
        last: bool,
    ) -> Operation[RecordedOutcome]:
        """Record the outcomes and enqueue follow-up jobs in one transaction. Return the recorded ids and the time."""
        policy = self.policy(channel)
        for transition in transitions:
            if transition.due_in is not None:
                transition.due_in = _rounded(transition.due_in)
        recorded = yield from deliveries.record(
            job, batches, transitions, last=last, named=policy.has_webhook, receipts_for=policy.receipts_for
        )
        waits = [
            transition.due_in
            for transition in transitions
            if transition.state == "pending" and transition.due_in is not None
        ]
        delays = [transition.receipt_in for transition in transitions if transition.receipt_in is not None]
        tokens = [token for wait in sorted(set(waits)) for token in self._send_jobs.to_send(channel, account, 1, wait)]
        if delays and not self._is_covered(channel, account, recorded.now):
            tokens.append(self._jobs.request_receipts(channel, account, min(delays) + _together(min(delays))))
        if tokens:
            yield from job_store.enqueue(tokens)
        return recorded

    def has_follow_up(self, channel: str, account: str, transitions: Sequence[Transition]) -> bool:
        """Return whether `write` will enqueue jobs, as far as the last reading of the database's clock tells."""
        expected = monotonic() + self._clock_offset + CLOCK_SLACK
        return any(each.state == "pending" for each in transitions) or (
            any(each.receipt_in is not None for each in transitions)
            and not self._is_covered(channel, account, expected)
        )

    def _is_covered(self, channel: str, account: str, now: float) -> bool:
        """Return whether an enqueued receipt job also covers messages sent now."""
        return self._requested_until.get((channel, account), -math.inf) > now

    def remember_request(self, channel: str, account: str, transitions: Sequence[Transition], now: float) -> None:
        """After the commit: remember that the enqueued receipt job covers new messages for a while."""
        self._clock_offset = now - monotonic()
        delays = [transition.receipt_in for transition in transitions if transition.receipt_in is not None]
        if delays and not self._is_covered(channel, account, now):
            self._requested_until[channel, account] = now + _together(min(delays))

    async def run(self, operation: Operation[RecordedOutcome], *, has_follow_up: bool) -> RecordedOutcome:
        """Run `write`. Without follow-up jobs it is one statement, and needs no transaction around it.

        If the clock jumped, a job is enqueued after all, by a second statement; the sweep replaces it if it is lost.
        """
        return await (self._database.arun if has_follow_up else self._database.arun_one)(operation)

    async def pause(self, channel: str, account: str, code: str, message: str) -> None:
        if await self._database.arun(deliveries.pause_channel(channel, account, f"{code}: {message}")):
            emit(
                logging.ERROR,
                "channel.paused",
                f"the channel {channel} is paused: {code} {message}; fix it, then run: sereno channel resume {channel}",
                channel=channel,
            )


class _OutcomeWriter:
    """Writes the outcomes of one batch. Retries during an outage; isolates a row that cannot be written."""

    def __init__(
        self, recorder: OutcomeRecorder, job: int, channel: str, account: str, batches: Sequence[int], kinds: Kinds
    ) -> None:
        self._recorder = recorder
        self._of = (job, channel, account, batches)
        self._kinds = kinds

    async def write(self, transitions: Sequence[Transition], *, last: bool = True) -> None:
        for pause in WRITE_AGAIN:
            try:
                await self._write(transitions, last=last)
            except (DatabaseUnavailable, psycopg.OperationalError):
                await asyncio.sleep(pause)
            except psycopg.Error as error:
                await self._write_apart(transitions, error, last=last)
                return
            else:
                return
        await self._write(transitions, last=last)

    async def _write_apart(self, transitions: Sequence[Transition], error: psycopg.Error, *, last: bool) -> None:
        if len(transitions) > 1:
            middle = len(transitions) // 2
            await self.write(transitions[:middle], last=False)
            await self.write(transitions[middle:], last=last)
            return
        reason = f"the outcome could not be stored: {type(error).__name__}"
        lost = Transition(
            id=transitions[0].id, state="unknown", reason=reason, is_unknown=True, attempt=transitions[0].attempt
        )
        await self._write([lost], last=last)

    async def _write(self, transitions: Sequence[Transition], *, last: bool) -> None:
        _, channel, account, _ = self._of
        has_follow_up = self._recorder.has_follow_up(channel, account, transitions)
        operation = self._recorder.write(*self._of, transitions, last=last)
        recorded = await self._recorder.run(operation, has_follow_up=has_follow_up)
        self._recorder.remember_request(channel, account, transitions, recorded.now)
        ours = [transition for transition in transitions if transition.id in recorded.ids]
        self._recorder.stats.count_outcomes(channel, account, ours, self._kinds)


def _rounded(wait: float) -> float:
    """Round up, so that deliveries due at about the same time share a job; never to twice the delay or more."""
    return float(math.ceil(wait) if wait <= FINE_SECONDS else math.ceil(wait / FINE_SECONDS) * FINE_SECONDS)


def _together(after: float) -> float:
    return min(REQUEST_TOGETHER, after / 10)


def _for_other_worker(taken: ClaimedDelivery) -> Transition:
    """Return the delivery to pending for a worker whose code knows it, without counting the attempt."""
    reason = "the worker's code does not know its event or channel"
    soon, late = ELSEWHERE_SECONDS
    wait = min(late, max(soon, ELSEWHERE_SHARE * taken.age))
    return Transition(id=taken.id, state="pending", reason=reason, due_in=wait, refund=True, attempt=taken.attempt)


def _lost(delivery: int, *, is_parked: bool) -> Transition:
    return Transition(
        id=delivery,
        state="unknown" if is_parked else "pending",
        reason="the worker died while it was sending",
        code="no_response",
        due_in=None if is_parked else 0.0,
        is_unknown=True,
    )
