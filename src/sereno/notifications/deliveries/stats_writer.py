"""Statistics of notifications: counted where outcomes are known, and written to the database after a delay.

Workers count what they send, the server counts receipts. In both, the first count after a write schedules the next
write on the running event loop. A failed write is repeated. A process that is killed loses a few seconds of counts.
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
from sereno.notifications.deliveries.receipt_store import ReceivedReceipt
from sereno.notifications.deliveries.stats import DeliveryChange, DeliveryTally
from sereno.notifications.deliveries.transition import Transition
from sereno.telemetry.delivery_counts import COUNTED
from sereno.telemetry.log_events import emit

# Error codes of sereno itself: nothing was given to a provider.
UNSENT = frozenset({"template", "no_account", "unstorable"})
# Error codes with which providers throttle.
THROTTLED = frozenset(
    {
        *("429", "http_429", "rate_limited", "ratelimited"),
        *("TOO_MANY_REQUESTS", "MessageRateExceeded"),
        *("20429", "30022", "80007", "130429"),
    }
)
# Receipts about what a person did: their time says nothing about the provider.
BY_PEOPLE = frozenset({"read", "clicked", "complained", "unsubscribed"})
FAILED = frozenset({"failed", "invalid", "dead", "bounced"})
# By delivery: its event type and tenant.
Kinds = Mapping[int, tuple[str | None, str]]
NO_KIND = (None, "")
# Group key of sent deliveries: kind, state, code, whether the outcome is unknown, and whether it was the first attempt.
Alike = tuple[tuple[str | None, str], State, str | None, bool, bool]
# First attempts. None: the attempt of a lost worker, or one without a provider.
FIRST = (1, None)


class DeliveryStatsWriter:
    """Counts changes of deliveries, and writes the counts."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tally = DeliveryTally()
        # A server and a worker may share a process, each with an event loop in its own thread.
        self._one_at_a_time = Lock()
        # Event loops with a scheduled write; a loop that was destroyed drops its write.
        self._ordered: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.TimerHandle] = WeakKeyDictionary()
        self._writing: set[asyncio.Task[None]] = set()

    def count_created(self, changes: Sequence[DeliveryChange]) -> None:
        """Count new deliveries."""
        if changes:
            with self._one_at_a_time:
                self._tally.count_created(changes)
            _count_for_metrics(changes)
            self._schedule()

    def count_unsent(self, changes: Sequence[DeliveryChange]) -> None:
        """Count deliveries that were claimed and not sent."""
        if changes:
            with self._one_at_a_time:
                self._count_changes([_held(change) for change in changes])
            self._schedule()

    def count_outcomes(self, channel: str, account: str, transitions: Iterable[Transition], kinds: Kinds) -> None:
        """Count the outcomes of sent deliveries, grouped by equal outcomes."""
        alike = Counter(
            [
                (
                    kinds.get(each.id, NO_KIND),
                    each.state,
                    each.code,
                    each.is_unknown,
                    each.attempt in FIRST and not each.refund,
                )
                for each in transitions
                # A delivery that waits for a worker with other code was not tried.
                if not each.refund or each.code is not None
            ]
        )
        if alike:
            with self._one_at_a_time:
                self._add_outcomes(channel, account, alike)
            self._schedule()

    def _add_outcomes(self, channel: str, account: str, alike: Mapping[Alike, int]) -> None:
        figures = self._tally.channel(channel, account)
        for ((event, tenant), state, code, is_unknown, is_first), count in alike.items():
            was_tried, was_taken = code not in UNSENT, state in ("sent", "delivered")
            words = ["retried" if state == "pending" else str(state)]
            words += ["tried"] if was_tried and is_first else []
            words += ["sent"] if state == "delivered" else []
            self._count_changes([DeliveryChange(channel, event, tenant, word, None, count) for word in words])
            figures.sent += count * was_tried
            figures.accepted += count * was_taken
            figures.throttled += count * (code in THROTTLED)
            figures.failed += count * (state in FAILED)
            figures.unknown += count * is_unknown
            if code is not None:
                figures.trouble(code, count)

    def count_receipts(self, channel: str, account: str, received: Sequence[ReceivedReceipt]) -> None:
        """Count receipts."""
        if received:
            with self._one_at_a_time:
                self._add_receipts(channel, account, received)
            self._schedule()

    def _add_receipts(self, channel: str, account: str, received: Sequence[ReceivedReceipt]) -> None:
        figures = self._tally.channel(channel, account)
        for each in received:
            state = "retried" if each.state == "pending" else each.state
            # A message that was read was also delivered.
            words = ["delivered", "read"] if state == "read" and each.before != "delivered" else [state]
            self._count_changes(
                [DeliveryChange(channel, each.event, each.tenant, word, None, each.count) for word in words]
            )
            if each.outcome not in BY_PEOPLE and each.outcome != "down" and each.bucket is not None:
                figures.receipts[each.bucket] += each.count
            figures.failed += each.count if state in FAILED else 0
            if each.code:
                figures.trouble(each.code, each.count)

    def _count_changes(self, changes: Sequence[DeliveryChange]) -> None:
        self._tally.count(changes)
        _count_for_metrics(changes)

    async def flush(self) -> None:
        """Wait for the write that is running in this loop, and write what was counted since."""
        loop = asyncio.get_running_loop()
        running = [task for task in self._writing if task.get_loop() is loop]
        if running:
            await asyncio.wait(running)
        await self._write()

    async def _write(self) -> None:
        """Write the counts now; they are retained if the write fails."""
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
            self._put_back(taken)
            self._schedule()
            emit(
                logging.WARNING,
                "delivery.stats_failed",
                f"notification statistics are retained and written later: {error}",
            )
        except asyncio.CancelledError:
            self._put_back(taken)
            raise

    def _put_back(self, taken: DeliveryTally) -> None:
        with self._one_at_a_time:
            self._tally.add(taken)

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        if loop not in self._ordered:
            self._ordered[loop] = loop.call_later(self._database.settings.heartbeat, self._begin)

    def _begin(self) -> None:
        task = asyncio.get_running_loop().create_task(self._write())
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)


def _count_for_metrics(changes: Iterable[DeliveryChange]) -> None:
    for change in changes:
        COUNTED.add(change.channel, change.state, change.count)


def _held(change: DeliveryChange) -> DeliveryChange:
    if change.state != "pending":
        return change
    return DeliveryChange(change.channel, change.event, change.tenant, "held", None, change.count)
