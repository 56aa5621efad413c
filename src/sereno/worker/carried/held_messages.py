"""The messages that a worker holds: acknowledges them, and reports to the carrier while their jobs run.

A loop of its own: neither a slow PostgreSQL nor a slow store of progress may delay the reports, because a message
without one is delivered to another worker, which would run its jobs beside this one.
"""

import asyncio
from collections import deque
from time import monotonic

from sereno.errors import CarrierUnavailable
from sereno.telemetry.service import Service
from sereno.worker.carried.held_message import HeldMessage

# Seconds between two reports to the carrier that a message is still worked on; it is delivered again after 30.
REPORT_EVERY = 8.0
# Seconds without a report after which a message may have been delivered to another worker; and for which its jobs are
# still stored in PostgreSQL then, where it is known what that worker has stored (`carriers.store.KEEP_STORED`).
IN_DOUBT_AFTER, IN_DOUBT_FOR = 20.0, 120.0
# Seconds after which the outcomes of a message are stored with the carrier, in case this process dies, and between two
# such records. Most messages are done before.
RECORD_EVERY = 0.5
# Seconds of one round that may be spent on records.
RECORD_FOR = 1.0
# Seconds between two rounds while messages are held, while none are, and after a failure.
ROUND, ROUND_WHEN_IDLE, RETRY = 0.25, 5.0, 0.5
# Finished messages that are remembered: if one is delivered here again, its acknowledgement was lost.
MOST_REMEMBERED = 10_000


class HeldMessages(Service):
    """The messages of one worker that have jobs without a durable outcome, and those to acknowledge."""

    def __init__(self) -> None:
        super().__init__("carrier")
        # Bytes of all held messages.
        self.bytes = 0
        # By job, while it has no durable outcome; and by queue, position and first job.
        self._by_job: dict[int, HeldMessage] = {}
        self._held: dict[tuple[str, int, int], HeldMessage] = {}
        self._finished: deque[HeldMessage] = deque()
        self._remembered: dict[tuple[str, int, int], None] = {}

    def __len__(self) -> int:
        return len(self._held)

    def get(self, job_id: int) -> HeldMessage | None:
        """Return the message of a job that has no durable outcome; None if it is no longer trusted."""
        held = self._by_job.get(job_id)
        if held is not None and self._is_lost(held, monotonic()):
            self._forget(held)
            return None
        return held

    def recognises(self, held: HeldMessage) -> bool:
        """Return whether the message is here already: it is held, or it was finished and only not acknowledged."""
        known = self._held.get(held.key)
        if known is not None:
            # No other worker has it, then: it was delivered again to this one.
            known.message, known.in_doubt = held.message, None
            known.reported = monotonic()
            return True
        if held.key in self._remembered:
            self._finished.append(held)
            self.wake()
            return True
        return False

    def hold(self, held: HeldMessage) -> None:
        """Take charge of a message; it is acknowledged after the last of its jobs."""
        if not self._by_job.keys().isdisjoint(held.left):
            # The same jobs in another message, as after a publication that was repeated too late: that one has them.
            held.left = {job_id for job_id in held.left if job_id not in self._by_job}
        if not held.left:
            self._finish(held)
            return
        if not self._held:
            # It rests for long while nothing is held.
            self.wake()
        self._held[held.key] = held
        self.bytes += len(held.message.body)
        self._by_job.update(dict.fromkeys(held.left, held))

    def done(self, job_id: int) -> None:
        """Note that a job has a durable outcome."""
        held = self._by_job.pop(job_id, None)
        if held is not None:
            held.left.discard(job_id)
            if not held.left:
                del self._held[held.key]
                self.bytes -= len(held.message.body)
                self._finish(held)

    def _finish(self, held: HeldMessage) -> None:
        self._finished.append(held)
        self._remembered[held.key] = None
        if len(self._remembered) > MOST_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self.wake()

    async def run_once(self) -> float:
        try:
            await self._acknowledge()
            now = monotonic()
            await self._report(now)
            await self._record(now)
        except CarrierUnavailable:
            # The consumer says so. A message that was not acknowledged is delivered again.
            return RETRY
        if self._finished:
            return 0.0
        return ROUND if self._held else ROUND_WHEN_IDLE

    async def _acknowledge(self) -> None:
        while self._finished:
            held = self._finished.popleft()
            try:
                await held.message.acknowledge()
            except BaseException:
                self._finished.appendleft(held)
                raise

    @staticmethod
    def _is_lost(held: HeldMessage, now: float) -> bool:
        """Return whether another worker may have had the message for longer than its fences are kept."""
        if held.in_doubt is None and now - held.reported > IN_DOUBT_AFTER:
            held.in_doubt = held.reported + IN_DOUBT_AFTER
        return held.in_doubt is not None and now - held.in_doubt > IN_DOUBT_FOR

    def _forget(self, held: HeldMessage) -> None:
        """Drop a message without acknowledging it: if no other worker has it, it is delivered again."""
        if self._held.pop(held.key, None) is not None:
            self.bytes -= len(held.message.body)
            for job_id in held.left:
                self._by_job.pop(job_id, None)

    async def _report(self, now: float) -> None:
        """Tell the carrier that messages are still worked on."""
        due: list[HeldMessage] = []
        for held in list(self._held.values()):
            if self._is_lost(held, now):
                self._forget(held)
            elif now - held.reported > REPORT_EVERY:
                due.append(held)
        results = await asyncio.gather(*map(_extend, due), return_exceptions=True)
        for failure in filter(None, results):
            raise failure

    async def _record(self, now: float) -> None:
        """Store with the carrier which jobs have ended; those that were recorded last go last."""
        for held in list(self._held.values()):
            if not held.has_news or now - max(held.received, held.recorded) < RECORD_EVERY:
                continue
            if monotonic() - now > RECORD_FOR:
                return
            await held.message.store_progress(held.progress())
            held.recorded = now
            if self._held.pop(held.key, None) is not None:
                self._held[held.key] = held

    async def give_back(self) -> None:
        """Give back every message, with the outcomes that its jobs have so far; the worker stops."""
        try:
            await self._acknowledge()
            for held in list(self._held.values()):
                if held.has_news:
                    await held.message.store_progress(held.progress())
                await held.message.give_back()
        finally:
            self._held.clear()
            self._by_job.clear()


async def _extend(held: HeldMessage) -> None:
    """Report one message. It counts from here: the carrier has not heard of it before."""
    began = monotonic()
    await held.message.extend()
    held.reported = began
