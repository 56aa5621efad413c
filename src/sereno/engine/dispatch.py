"""deliveries ──▶ messages: a batch is taken, committed as `sending`, handed to its channel, and each outcome written.

What was sent and cannot be written down would be sent again, so nothing here is allowed to fail for more than one
delivery.
"""

import asyncio
import logging
import math
import random
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

import msgspec
import psycopg

from sereno.channels.contract import Channel, Exchange, Message
from sereno.domain.delivery import Down, Failed, Outcome, Unknown, kept
from sereno.domain.event import IN_APP, Content
from sereno.domain.job import NewJob
from sereno.domain.verdict import Policy, Verdict, judge
from sereno.errors import DatabaseUnavailable, UnknownEvent
from sereno.store import deliveries, jobs
from sereno.store.database import Database
from sereno.store.deliveries import Batch, Taken
from sereno.store.statement import Operation
from sereno.telemetry.logs import emit

# Messages of the inbox in one statement.
INBOX_BATCH = 500
# Nobody knows whether it was sent: after so many times, a person has to decide.
MOST_UNKNOWN = 3
# Nobody here knows what to do with it: so many seconds later, somebody else may have it.
ELSEWHERE_SECONDS = 30.0
# What was sent is to be written down: so often, and so many seconds apart, before it is given up.
WRITE_AGAIN = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 10.0)
# Credentials that were changed are used within so many seconds.
ACCOUNT_SECONDS = 30.0

# Jobs that send what is due on a channel and account: how many batches (0: until none is left), in how many seconds.
Tokens = Callable[[str, str, int, float], Sequence[NewJob]]
Render = Callable[[str, Taken], Content]


class Dispatch:
    """Sends what is due."""

    def __init__(
        self,
        database: Database,
        channels: Mapping[str, Channel],
        accounts: Mapping[str, Mapping[str, Any]],
        render: Render,
        send_tokens: Tokens,
        receipt_tokens: Tokens,
        next_token: Callable[[str, str, int], NewJob | None],
    ) -> None:
        self._database = database
        self._channels = channels
        self._accounts = accounts
        self._render = render
        self._send_tokens = send_tokens
        self._receipt_tokens = receipt_tokens
        self._next_token = next_token
        self._exchanges: dict[tuple[asyncio.AbstractEventLoop, str, str], tuple[float, Exchange]] = {}
        self._chance = random.Random()  # noqa: S311 - jitter, not secrets

    def batch_of(self, channel: str) -> int:
        known = self._channels.get(channel)
        return INBOX_BATCH if channel == IN_APP or known is None else known.batch

    async def deliver(self, job: int, channel: str, account: str, seat: int) -> int:
        """The next batch of a channel; answers how many were looked at. `seat`: who goes on, if it was full."""
        await self._settle_stranded(job, channel, account)
        batch = await self._database.arun(self._take(job, channel, account, seat))
        if batch.deliveries:
            if channel == IN_APP:
                await self._put_into_inbox(job, batch)
            else:
                await self._send(job, channel, account, batch)
        return batch.looked_at

    def _take(self, job: int, channel: str, account: str, seat: int) -> Operation[Batch]:
        """A batch, and whoever takes the next one, together: nobody may live to ask for it.

        A full batch means that there is more; what falls into quiet hours is looked for when they end.
        """
        size = self.batch_of(channel)
        batch = yield from deliveries.take(channel, account, job, size)
        following = self._next_token(channel, account, seat) if batch.looked_at >= size else None
        tokens = [] if following is None else [following]
        if batch.due_in is not None:
            tokens += self._send_tokens(channel, account, 1, batch.due_in)
        if tokens:
            yield from jobs.enqueue(tokens)
        return batch

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
        policy = self.policy(channel)
        verdicts = []
        for delivery, unknowns in (yield from deliveries.stranded(channel, account, job)):
            is_parked = unknowns >= MOST_UNKNOWN or (channel != IN_APP and policy.on_unknown == "park")
            verdicts.append(
                Verdict(
                    id=delivery,
                    state="unknown" if is_parked else "pending",
                    reason="the worker died while it was sending",
                    code="no_answer",
                    due_in=None if is_parked else 0.0,
                    is_unknown=True,
                )
            )
        yield from deliveries.record(job, verdicts, of_others=True)
        return len(verdicts)

    async def _send(self, job: int, channel: str, account: str, batch: Batch) -> None:
        known = self._channels.get(channel)
        messages: list[Message] = []
        outcomes: dict[int, Outcome | Elsewhere] = {}
        for taken in batch.deliveries:
            made = self._message(channel, taken) if known is not None else Elsewhere()
            if isinstance(made, Message):
                messages.append(made)
            else:
                outcomes[taken.id] = made
        if known is not None and messages:
            exchange = await self.exchange(channel, account)
            said: Sequence[Outcome] = [Down("no_account", "the account has no settings")] * len(messages)
            if exchange is not None:
                said = await _said(known, messages, exchange)
            outcomes |= zip([message.delivery for message in messages], said, strict=True)
        await self._record(job, channel, account, batch.deliveries, outcomes)

    async def _record(
        self,
        job: int,
        channel: str,
        account: str,
        taken: Sequence[Taken],
        outcomes: Mapping[int, "Outcome | Elsewhere"],
    ) -> None:
        policy = self.policy(channel)
        verdicts = [
            elsewhere(each.id, each.attempt)
            if isinstance(outcome := outcomes[each.id], Elsewhere)
            else judge(each.id, each.attempt, outcome, policy, self._chance)
            for each in taken
        ]
        await self._write_surely(job, channel, account, verdicts)
        down = next((outcome for outcome in outcomes.values() if isinstance(outcome, Down)), None)
        if down is not None:
            await self.pause(channel, account, kept(down.code), kept(down.message))

    async def _write_surely(self, job: int, channel: str, account: str, verdicts: Sequence[Verdict]) -> None:
        """What is not written now is sent again: an outage is waited out, and one bad row takes no other along."""
        for pause in WRITE_AGAIN:
            try:
                await self._database.arun(self._write(job, channel, account, verdicts))
            except (DatabaseUnavailable, psycopg.OperationalError):
                await asyncio.sleep(pause)
            except psycopg.Error as error:
                await self._write_apart(job, channel, account, verdicts, error)
                return
            else:
                return
        await self._database.arun(self._write(job, channel, account, verdicts))

    async def _write_apart(
        self, job: int, channel: str, account: str, verdicts: Sequence[Verdict], error: psycopg.Error
    ) -> None:
        if len(verdicts) > 1:
            middle = len(verdicts) // 2
            await self._write_surely(job, channel, account, verdicts[:middle])
            await self._write_surely(job, channel, account, verdicts[middle:])
            return
        reason = f"its outcome could not be written: {type(error).__name__}"
        lost = Verdict(id=verdicts[0].id, state="unknown", reason=reason, is_unknown=True, attempt=verdicts[0].attempt)
        await self._database.arun(self._write(job, channel, account, [lost]))

    def _write(self, job: int, channel: str, account: str, verdicts: Sequence[Verdict]) -> Operation[None]:
        """What became of them, and whoever comes back for them later, together."""
        yield from deliveries.record(job, verdicts)
        waits = [verdict.due_in for verdict in verdicts if verdict.state == "pending" and verdict.due_in is not None]
        asked = [verdict.receipt_in for verdict in verdicts if verdict.receipt_in is not None]
        # One for every ten seconds in which somebody is due.
        later = {math.ceil(wait / 10) * 10.0 for wait in waits}
        tokens = [token for wait in sorted(later) for token in self._send_tokens(channel, account, 1, wait)]
        if asked:
            tokens += self._receipt_tokens(channel, account, 1, min(asked))
        if tokens:
            yield from jobs.enqueue(tokens)

    async def pause(self, channel: str, account: str, code: str, message: str) -> None:
        if await self._database.arun(deliveries.pause_channel(channel, account, f"{code}: {message}")):
            emit(
                logging.ERROR,
                "channel.paused",
                f"the channel {channel} is paused: {code} {message}; mend it, then: sereno channel resume {channel}",
                channel=channel,
            )

    async def _put_into_inbox(self, job: int, batch: Batch) -> None:
        made = {taken.id: self._content(IN_APP, taken) for taken in batch.deliveries}
        good = [taken for taken in batch.deliveries if isinstance(made[taken.id], Content)]
        outcomes = {number: outcome for number, outcome in made.items() if not isinstance(outcome, Content)}
        if good:
            messages = [_inbox_row(taken, made[taken.id]) for taken in good]
            try:
                await self._database.arun(deliveries.put_into_inbox(job, messages))
            except psycopg.DataError as error:
                # One of them cannot be stored: each by itself.
                await self._put_apart(job, good, messages, error)
        bad = [taken for taken in batch.deliveries if taken.id in outcomes]
        if bad:
            await self._record(job, IN_APP, "", bad, outcomes)

    async def _put_apart(
        self, job: int, taken: Sequence[Taken], messages: Sequence[Mapping[str, Any]], error: psycopg.Error
    ) -> None:
        if len(taken) == 1:
            refused = {taken[0].id: Failed("unstorable", type(error).__name__)}
            await self._record(job, IN_APP, "", taken, refused)
            return
        for each, message in zip(taken, messages, strict=True):
            try:
                await self._database.arun(deliveries.put_into_inbox(job, [message]))
            except psycopg.DataError as own:
                await self._put_apart(job, [each], [message], own)

    def _message(self, channel: str, taken: Taken) -> "Message | Failed | Elsewhere":
        made = self._content(channel, taken)
        if not isinstance(made, Content):
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

    def _content(self, channel: str, taken: Taken) -> "Content | Failed | Elsewhere":
        """A template is the user's code: what it raises, or gives instead of words, concerns this delivery alone."""
        try:
            made = self._render(channel, taken)
        except UnknownEvent:
            return Elsewhere()
        except Exception as error:  # noqa: BLE001 - whatever a template raises is an outcome
            return Failed("template", f"{type(error).__name__}: {error}"[:300])
        if not (isinstance(made, Content) and isinstance(made.title, str) and isinstance(made.body, str)):
            return Failed("template", f"it gave {type(made).__name__}, not Content with a title and a body")
        return Content(storable(made.title), storable(made.body), made.html and storable(made.html), made.options)

    def policy(self, channel: str) -> Policy:
        known = self._channels.get(channel)
        if known is None:
            return Policy(delays=Channel.delays)
        return Policy(delays=known.delays, on_unknown=known.on_unknown, receipts_after=known.receipts_after)

    async def exchange(self, channel: str, account: str) -> Exchange | None:
        """Connections are kept from batch to batch, and the credentials for a moment; None for an account without any.

        A tenant's own settings stand alone: the house's secrets never go to an address that a tenant chose.
        """
        place = (asyncio.get_running_loop(), channel, account)
        until, exchange = self._exchanges.get(place, (0.0, None))
        if exchange is not None and until > monotonic():
            return exchange
        house = self._accounts.get(channel, {})
        settings = await self._database.arun_one(deliveries.account_settings(channel, account)) if account else house
        if account and not settings:
            return None
        # Asked for by somebody else meanwhile: theirs is as new.
        exchange = self._exchanges[place][1] if place in self._exchanges else Exchange()
        exchange.account, exchange.private = settings, bool(house.get("private"))
        self._exchanges[place] = (monotonic() + ACCOUNT_SECONDS, exchange)
        return exchange

    async def close(self) -> None:
        """Give back the connections of this loop."""
        loop = asyncio.get_running_loop()
        for place in [place for place in self._exchanges if place[0] is loop or place[0].is_closed()]:
            _, exchange = self._exchanges.pop(place)
            if place[0] is loop:
                await exchange.close()


class Elsewhere(msgspec.Struct, frozen=True):
    """Nobody here knows the channel or the event: a worker with other code does, or will."""


def elsewhere(delivery: int, attempt: int) -> Verdict:
    """It waits a moment for a worker that knows what to do with it, and no try is used up."""
    reason = "the worker that had it does not know its event or channel"
    return Verdict(id=delivery, state="pending", reason=reason, due_in=ELSEWHERE_SECONDS, refund=True, attempt=attempt)


def storable(text: str) -> str:
    """As PostgreSQL takes it."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "")


def _inbox_row(taken: Taken, content: Any) -> dict[str, Any]:
    return {
        "id": taken.id,
        "attempt": taken.attempt,
        "recipient": taken.recipient_id,
        "event": taken.event,
        "title": content.title,
        "body": content.body,
        "data": taken.payload,
    }


async def _said(channel: Channel, messages: Sequence[Message], exchange: Exchange) -> Sequence[Outcome]:
    """What the channel answers; a channel that breaks its contract may have sent everything."""
    try:
        outcomes = list(await channel.send(messages, exchange))
    except Exception as error:  # noqa: BLE001 - a channel may be anybody's code
        return [Unknown("channel_error", type(error).__name__)] * len(messages)
    if len(outcomes) != len(messages):
        wrong = f"{len(outcomes)} outcomes for {len(messages)} messages"
        return [Unknown("channel_error", wrong)] * len(messages)
    return [
        outcome if isinstance(outcome, Outcome) else Unknown("channel_error", type(outcome).__name__)
        for outcome in outcomes
    ]


def _decoded(taken: Taken) -> dict[str, Any]:
    return msgspec.json.decode(taken.payload, type=dict[str, Any])
