"""event ──▶ deliveries ──▶ messages ──▶ receipts.

Four tasks of ours, in the hands of ordinary workers. A job for a channel is a token: whoever has it takes the next
batch of what is due there, so no delivery belongs to a job before it is being sent, and a job that dies takes none
along.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

import msgspec

from sereno.channels.contract import Channel, Exchange, Message
from sereno.domain.delivery import Down, Failed, Outcome, Receipt, Unknown
from sereno.domain.event import IN_APP, Content, Step
from sereno.domain.job import NewJob
from sereno.domain.verdict import Policy, Verdict, judge
from sereno.store import deliveries, events, jobs
from sereno.store.database import Database
from sereno.store.deliveries import Batch, Taken
from sereno.store.statement import Operation
from sereno.telemetry.logs import emit

# Recipients of one step of a fan-out: long enough to be quick, short enough that a crash repeats little.
STEP = 5000
# Those who wait for another channel are not looked at more often than this many seconds.
MOST_OFTEN = 5.0
# Messages of the inbox in one statement.
INBOX_BATCH = 500
# Nobody knows whether it was sent: after so many times, a person has to decide.
MOST_UNKNOWN = 3
# What a provider says of a message that it took and could not pass on: not at once again.
RETRY_AFTER_RECEIPT = 120.0

# Jobs that send what is due on a channel and account: how many, and in how many seconds.
Tokens = Callable[[str, str, int, float], Sequence[NewJob]]
Render = Callable[[str, Taken], Content]
# The job that looks at an event again, in so many seconds.
LookAgain = Callable[[int, float], Sequence[NewJob]]

# Credentials that were changed are used within so many seconds.
ACCOUNT_SECONDS = 30.0


class Courier:
    """Carries events to people."""

    def __init__(
        self,
        database: Database,
        channels: Mapping[str, Channel],
        accounts: Mapping[str, Mapping[str, Any]],
        render: Render,
        send_tokens: Tokens,
        receipt_tokens: Tokens,
        escalation: LookAgain,
    ) -> None:
        self._database = database
        self._channels = channels
        self._accounts = accounts
        self._render = render
        self._send_tokens = send_tokens
        self._receipt_tokens = receipt_tokens
        self._escalation = escalation
        self._exchanges: dict[tuple[asyncio.AbstractEventLoop, str, str], tuple[float, Exchange]] = {}
        self._chance = random.Random()  # noqa: S311 - jitter, not secrets

    # event ──▶ deliveries

    async def fan_out(self, event: int) -> int:
        """All deliveries of an event, step by step; a step that was made is not made again. Answers how many."""
        await self._database.arun(events.name_recipients(event))
        total, more = 0, True
        while more:
            walked = await self._database.arun(self._walk(event))
            total, more = total + walked.made, walked.more
        steps = await self._database.arun_one(events.steps(event))
        if steps:
            first_look = min(step.after for step in steps)
            await self._database.arun(jobs.enqueue(self._escalation(event, first_look)))
        return total

    def _walk(self, event: int) -> Operation[events.Walked]:
        walked = yield from events.fan_out(event, STEP)
        tokens: list[NewJob] = []
        for channel, account, count, due_in in walked.waiting:
            tokens += self._send_tokens(channel, account, -(-count // self._batch_of(channel)), due_in)
        if tokens:
            yield from jobs.enqueue(tokens)
        return walked

    def _batch_of(self, channel: str) -> int:
        known = self._channels.get(channel)
        return INBOX_BATCH if channel == IN_APP or known is None else known.batch

    async def escalate(self, event: int) -> None:
        """Those whom a channel did not reach in time are told by the next; looks again until all is decided."""
        steps = await self._database.arun_one(events.steps(event))
        waiting = made = 0
        for step in steps:
            more = True
            while more:
                found = await self._database.arun(self._escalate(event, step))
                made += found.ripe
                more = found.ripe >= STEP
            waiting += found.waiting
        # Whoever has just been given to the next channel may need the one behind it.
        if waiting or (made and len(steps) > 1):
            again = max(MOST_OFTEN, min(step.after for step in steps) / 2)
            await self._database.arun(jobs.enqueue(self._escalation(event, again)))

    def _escalate(self, event: int, step: Step) -> Operation[events.Escalated]:
        found = yield from events.escalate(event, step, STEP)
        for account, count in found.made:
            tokens = self._send_tokens(step.second, account, -(-count // self._batch_of(step.second)), 0.0)
            yield from jobs.enqueue(tokens)
        return found

    # deliveries ──▶ messages

    async def deliver(self, job: int, channel: str, account: str) -> int:
        """The next batch of a channel; answers how many deliveries were looked at."""
        await self._settle_stranded(job, channel, account)
        batch = await self._database.arun(deliveries.take(channel, account, job, self._batch_of(channel)))
        if batch.deliveries:
            if channel == IN_APP:
                await self._put_into_inbox(job, batch)
            else:
                await self._send(job, channel, account, batch)
        await self._go_on(channel, account, batch)
        return batch.looked_at

    async def _settle_stranded(self, job: int, channel: str, account: str) -> None:
        """Somebody died while sending: what became of those, nobody knows. The channel's policy decides."""
        if not await self._database.arun_one(deliveries.stranded(channel, account, job)):
            return
        count = await self._database.arun(self._settle(job, channel, account))
        if count:
            emit(
                logging.WARNING,
                "delivery.unknown",
                f"{count} deliveries by {channel}: whoever was sending them died, so nobody knows what became of them",
                channel=channel,
            )

    def _settle(self, job: int, channel: str, account: str) -> Operation[int]:
        """Found and settled under one lock: somebody else who found them too may be sending them again by now."""
        policy = self._policy(channel)
        verdicts = []
        for delivery, unknowns in (yield from deliveries.stranded(channel, account, job)):
            is_parked = channel != IN_APP and (policy.on_unknown == "park" or unknowns >= MOST_UNKNOWN)
            verdicts.append(
                Verdict(
                    id=delivery,
                    state="unknown" if is_parked else "pending",
                    reason="the worker died while it was sending",
                    code="no_answer",
                    due_in=None if is_parked else 0.0,
                    is_unknown=channel != IN_APP,
                )
            )
        yield from deliveries.record(job, verdicts, of_others=True)
        return len(verdicts)

    async def _send(self, job: int, channel: str, account: str, batch: Batch) -> None:
        known = self._channels.get(channel)
        messages: list[Message] = []
        outcomes: dict[int, Outcome] = {}
        for taken in batch.deliveries:
            made = self._message(channel, taken)
            if isinstance(made, Message):
                messages.append(made)
            else:
                outcomes[taken.id] = made
        if known is None:
            outcomes = {
                taken.id: Down("unknown_channel", f"no worker knows the channel {channel}")
                for taken in batch.deliveries
            }
        elif messages:
            exchange = await self._exchange(channel, account)
            outcomes |= zip([m.delivery for m in messages], await _said(known, messages, exchange), strict=True)
        await self._record(job, channel, account, batch, outcomes)

    async def _record(
        self, job: int, channel: str, account: str, batch: Batch, outcomes: Mapping[int, Outcome]
    ) -> None:
        policy = self._policy(channel)
        verdicts = [
            judge(taken.id, taken.attempt, outcomes[taken.id], policy, self._chance) for taken in batch.deliveries
        ]
        await self._database.arun(self._write(job, channel, account, verdicts))
        down = next((outcome for outcome in outcomes.values() if isinstance(outcome, Down)), None)
        if down is not None:
            await self._pause(channel, account, down.code, down.message)

    def _write(self, job: int, channel: str, account: str, verdicts: Sequence[Verdict]) -> Operation[None]:
        """What became of them, and whoever comes back for them later, together."""
        yield from deliveries.record(job, verdicts)
        later = [verdict.due_in for verdict in verdicts if verdict.state == "pending" and verdict.due_in is not None]
        asked = [verdict.receipt_in for verdict in verdicts if verdict.receipt_in is not None]
        tokens = [
            *(self._send_tokens(channel, account, 1, min(later)) if later else ()),
            *(self._send_tokens(channel, account, 1, max(later)) if later and max(later) > min(later) + 1 else ()),
            *(self._receipt_tokens(channel, account, 1, min(asked)) if asked else ()),
        ]
        if tokens:
            yield from jobs.enqueue(tokens)

    async def _pause(self, channel: str, account: str, code: str, message: str) -> None:
        if await self._database.arun(deliveries.pause_channel(channel, account, f"{code}: {message}")):
            emit(
                logging.ERROR,
                "channel.paused",
                f"the channel {channel} is paused: {code} {message}; mend it, then: sereno channel resume {channel}",
                channel=channel,
            )

    async def _go_on(self, channel: str, account: str, batch: Batch) -> None:
        """A full batch means that there is more; what falls into quiet hours is looked for when they end."""
        tokens = list(self._send_tokens(channel, account, 1, 0.0)) if batch.looked_at >= self._batch_of(channel) else []
        if batch.due_in is not None:
            tokens += self._send_tokens(channel, account, 1, batch.due_in)
        if tokens:
            await self._database.arun(jobs.enqueue(tokens))

    async def _put_into_inbox(self, job: int, batch: Batch) -> None:
        messages, outcomes = [], {}
        for taken in batch.deliveries:
            made = self._content(IN_APP, taken)
            if isinstance(made, Content):
                messages.append(
                    {
                        "id": taken.id,
                        "recipient": taken.recipient_id,
                        "event": taken.event,
                        "title": made.title,
                        "body": made.body,
                        "data": taken.payload,
                    }
                )
            else:
                outcomes[taken.id] = made
        if messages:
            await self._database.arun(deliveries.put_into_inbox(job, messages))
        if outcomes:
            failed = batch._replace(deliveries=[taken for taken in batch.deliveries if taken.id in outcomes])
            await self._record(job, IN_APP, "", failed, outcomes)

    def _message(self, channel: str, taken: Taken) -> Message | Failed:
        made = self._content(channel, taken)
        if isinstance(made, Failed):
            return made
        return Message(
            delivery=taken.id,
            key=f"sereno-{taken.id}",
            address=taken.address or "",
            keys=taken.keys or {},
            title=made.title,
            body=made.body,
            html=made.html,
            data=_decoded(taken),
            options=made.options,
            event=taken.event,
            recipient=taken.recipient,
            tenant=taken.tenant,
            locale=taken.locale,
            attempt=taken.attempt,
        )

    def _content(self, channel: str, taken: Taken) -> Content | Failed:
        """A template is the user's code: what it raises concerns this delivery alone."""
        try:
            return self._render(channel, taken)
        except Exception as error:  # noqa: BLE001 - whatever a template raises is an outcome
            return Failed("template", f"{type(error).__name__}: {error}"[:300])

    def _policy(self, channel: str) -> Policy:
        known = self._channels.get(channel)
        if known is None:
            return Policy(delays=Channel.delays)
        return Policy(delays=known.delays, on_unknown=known.on_unknown, receipts_after=known.receipts_after)

    async def _exchange(self, channel: str, account: str) -> Exchange:
        """Connections are kept from batch to batch, and the credentials for a moment."""
        place = (asyncio.get_running_loop(), channel, account)
        until, exchange = self._exchanges.get(place, (0.0, None))
        if exchange is None or until < monotonic():
            own = await self._database.arun_one(deliveries.account_settings(channel, account)) if account else {}
            settings = {**self._accounts.get(channel, {}), **own}
            # Asked for by somebody else meanwhile: theirs is as new.
            exchange = self._exchanges[place][1] if place in self._exchanges else Exchange()
            exchange.account, exchange.private = settings, bool(settings.get("private"))
            self._exchanges[place] = (monotonic() + ACCOUNT_SECONDS, exchange)
        return exchange

    async def close(self) -> None:
        """Give back the connections of this loop."""
        loop = asyncio.get_running_loop()
        for place in [place for place in self._exchanges if place[0] is loop or place[0].is_closed()]:
            _, exchange = self._exchanges.pop(place)
            if place[0] is loop:
                await exchange.close()

    # messages ──▶ receipts

    async def receipts(self, channel: str, account: str) -> int:
        """Ask what became of those whose provider can be asked now; answers how many were asked for."""
        known = self._channels.get(channel)
        if known is None or known.receipts_after is None:
            return 0
        ids, count = await self._database.arun(self._ask(known, account))
        if ids:
            exchange = await self._exchange(channel, account)
            await self.received(channel, account, await known.receipts(ids, exchange))
        return count

    def _ask(self, known: Channel, account: str) -> Operation[tuple[list[str], int]]:
        """Whom to ask for, and the job that asks again, together: nobody may live to hear the answer."""
        after = known.receipts_after or 0.0
        ids, count = yield from deliveries.awaiting_receipts(
            known.name, account, batch=known.receipts_batch, again=after, longest=known.receipts_for
        )
        tokens = list(self._receipt_tokens(known.name, account, 1, 0.0)) if count >= known.receipts_batch else []
        if count:
            tokens += self._receipt_tokens(known.name, account, 1, after)
        if tokens:
            yield from jobs.enqueue(tokens)
        return ids, count

    async def received(self, channel: str, account: str, receipts: Sequence[Receipt]) -> int:
        """What a provider says, asked or by itself; answers how many deliveries it moved."""
        applied = await self._database.arun(self._apply(channel, receipts))
        down = next((receipt for receipt in receipts if receipt.outcome == "down"), None)
        if down is not None:
            await self._pause(channel, account, down.code, down.message)
        return applied.moved

    def _apply(self, channel: str, receipts: Sequence[Receipt]) -> Operation[deliveries.Applied]:
        applied = yield from deliveries.apply_receipts(channel, receipts, RETRY_AFTER_RECEIPT)
        for again in applied.again:
            yield from jobs.enqueue(self._send_tokens(channel, again, 1, RETRY_AFTER_RECEIPT))
        return applied


async def _said(channel: Channel, messages: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
    """What the channel answers; a channel that breaks its contract may have sent everything."""
    try:
        outcomes = list(await channel.send(messages, exchange))
    except Exception as error:  # noqa: BLE001 - a channel may be anybody's code
        return [Unknown("channel_error", type(error).__name__)] * len(messages)
    if len(outcomes) != len(messages):
        wrong = f"{len(outcomes)} outcomes for {len(messages)} messages"
        return [Unknown("channel_error", wrong)] * len(messages)
    return outcomes


def _decoded(taken: Taken) -> dict[str, Any]:
    return msgspec.json.decode(taken.payload, type=dict[str, Any])
