"""Figures of notifications: counted where outcomes are known, and written down a moment later.

Workers send, and the server hears what providers tell; in both, the first count after a writing orders the next one on
the loop that runs. What could not be written is written the next time. A process that is killed loses a few seconds.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from weakref import WeakKeyDictionary

import psycopg

from sereno.database.database import Database
from sereno.errors import DatabaseUnavailable
from sereno.notifications.deliveries import stats_queries
from sereno.notifications.deliveries.delivery import State
from sereno.notifications.deliveries.receipts import ReceivedReceipt
from sereno.notifications.deliveries.stats import Change, DeliveryTally
from sereno.notifications.deliveries.transition import Transition
from sereno.telemetry.log_events import emit

# Codes of ours: nothing was given to a provider.
UNSENT = frozenset({"template", "no_account", "unstorable"})
# How providers say "slow down".
THROTTLED = frozenset(
    {
        *("429", "http_429", "rate_limited", "ratelimited"),
        *("TOO_MANY_REQUESTS", "MessageRateExceeded"),
        *("20429", "30022", "80007", "130429"),
    }
)
FAILED = frozenset({"failed", "invalid", "dead", "bounced"})
# By delivery: the kind of its event, and its tenant.
Kinds = Mapping[int, tuple[str | None, str]]
NOBODY = (None, "")
# What is told apart of those that were being sent: kind, state, code, whether nobody knows, and the first try.
Alike = tuple[tuple[str | None, str], State, str | None, bool, bool]
# None: of a try that nobody was heard of again, or that has no provider.
FIRST = (1, None)


class DeliveryStatsWriter:
    """Counts, and writes down what it has counted."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tally = DeliveryTally()
        # A server and a worker may share a process, each with a loop in a thread of its own.
        self._one_at_a_time = Lock()
        # Loops that will write; one that is gone takes what it was to do along.
        self._ordered: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.TimerHandle] = WeakKeyDictionary()
        self._writing: set[asyncio.Task[None]] = set()

    def made(self, changes: Sequence[Change]) -> None:
        """New deliveries."""
        if changes:
            with self._one_at_a_time:
                self._tally.made(changes)
            self._order()

    def changed(self, changes: Sequence[Change]) -> None:
        """Deliveries that were not sent after all, or not yet."""
        if changes:
            with self._one_at_a_time:
                self._tally.count(_held(change) for change in changes)
            self._order()

    def settled(self, channel: str, account: str, transitions: Iterable[Transition], kinds: Kinds) -> None:
        """What became of those that were being sent: told apart once for all that are alike."""
        alike = Counter(
            [
                (
                    kinds.get(each.id, NOBODY),
                    each.state,
                    each.code,
                    each.is_unknown,
                    each.attempt in FIRST and not each.refund,
                )
                for each in transitions
                # One that waits for a worker with other code was not tried.
                if not each.refund or each.code is not None
            ]
        )
        if alike:
            with self._one_at_a_time:
                self._settled(channel, account, alike)
            self._order()

    def _settled(self, channel: str, account: str, alike: Mapping[Alike, int]) -> None:
        figures = self._tally.channel(channel, account)
        for ((event, tenant), state, code, is_unknown, is_first), count in alike.items():
            was_tried, was_taken = code not in UNSENT, state in ("sent", "delivered")
            words = ["retried" if state == "pending" else str(state)]
            words += ["tried"] if was_tried and is_first else []
            words += ["sent"] if state == "delivered" else []
            self._tally.count([Change(channel, event, tenant, word, None, count) for word in words])
            figures.sent += count * was_tried
            figures.accepted += count * was_taken
            figures.throttled += count * (code in THROTTLED)
            figures.failed += count * (state in FAILED)
            figures.unknown += count * is_unknown
            if code is not None:
                figures.trouble(code, count)

    def heard(self, channel: str, account: str, told: Sequence[ReceivedReceipt]) -> None:
        """What providers said of what they took."""
        if told:
            with self._one_at_a_time:
                self._heard(channel, account, told)
            self._order()

    def _heard(self, channel: str, account: str, told: Sequence[ReceivedReceipt]) -> None:
        figures = self._tally.channel(channel, account)
        for each in told:
            state = "retried" if each.state == "pending" else each.state
            # Whoever has read it has got it.
            words = ["delivered", "read"] if state == "read" and each.before != "delivered" else [state]
            self._tally.count([Change(channel, each.event, each.tenant, word, None, each.count) for word in words])
            if each.outcome not in ("read", "down") and each.bucket is not None:
                figures.receipts[each.bucket] += each.count
            figures.failed += each.count if state in FAILED else 0
            if each.code:
                figures.trouble(each.code, each.count)

    async def write(self) -> None:
        """Now; what cannot be written is kept."""
        ordered = self._ordered.pop(asyncio.get_running_loop(), None)
        if ordered is not None:
            ordered.cancel()
        with self._one_at_a_time:
            taken = self._tally.take()
        if not taken:
            return
        try:
            await self._database.arun(stats_queries.add(taken))
        except (DatabaseUnavailable, psycopg.Error) as error:
            self._keep(taken)
            self._order()
            emit(logging.WARNING, "post.uncounted", f"figures of notifications are written later: {error}")
        except asyncio.CancelledError:
            self._keep(taken)
            raise

    def _keep(self, taken: DeliveryTally) -> None:
        with self._one_at_a_time:
            self._tally.add(taken)

    def _order(self) -> None:
        loop = asyncio.get_running_loop()
        if loop not in self._ordered:
            self._ordered[loop] = loop.call_later(self._database.settings.heartbeat, self._begin)

    def _begin(self) -> None:
        task = asyncio.get_running_loop().create_task(self.write())
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)


def _held(change: Change) -> Change:
    if change.state != "pending":
        return change
    return Change(change.channel, change.event, change.tenant, "held", None, change.count)
