"""A message that a worker holds, and which of its jobs have no durable outcome yet."""

from time import monotonic
from typing import Any

import msgspec

from sereno.carriers.contract import CarriedMessage
from sereno.carriers.message import Batch, MoreFields, stored_row
from sereno.jobs.settlement import SettleResult

_ids = msgspec.json.Decoder(list[int])


class HeldMessage:
    """One delivery of a message. It is acknowledged when `left` is empty."""

    __slots__ = (
        "_index",
        "_more",
        "_recorded",
        "batch",
        "in_doubt",
        "key",
        "left",
        "message",
        "received",
        "recorded",
        "reported",
    )

    def __init__(self, message: CarriedMessage, batch: Batch) -> None:
        self.message = message
        self.batch = batch
        # With a job: after the loss of all its disks a carrier begins with the same positions again.
        self.key = (batch.queue, message.position, batch.ids[0])
        self.left = set(batch.ids)
        # By the monotonic clock: when it was received, when the carrier last heard of it, and when its progress was
        # last stored.
        self.received = self.reported = monotonic()
        self.recorded = float("-inf")
        # Since when another worker may have it as well.
        self.in_doubt: float | None = None
        self._recorded = 0
        self._index: dict[int, int] | None = None
        self._more: dict[int, MoreFields] = {}

    def row(self, job_id: int, seen: float) -> dict[str, Any]:
        """Return a job as `carriers.store.store` reads it. `seen`: when the worker got it, by the monotonic clock."""
        if self._index is None:
            self._index = {each: index for index, each in enumerate(self.batch.ids)}
            self._more = {fields.index: fields for fields in self.batch.more or ()}
        index = self._index[job_id]
        row = stored_row(self.batch, index, self._more.get(index))
        row["held_for"] = max(0.0, monotonic() - seen)
        row["position"] = self.message.position
        return row

    def success(self, item: SettleResult) -> dict[str, Any]:
        """Return a job that succeeded as `carriers.store.record` reads it."""
        row = self.row(item.id, self.received)
        result = item.settlement.result
        row["began"] = item.began
        if result is not None:
            row["result"] = msgspec.Raw(result)
        if item.settlement.reason is not None:
            row["reason"] = item.settlement.reason
        return row

    def leave_out(self, progress: bytes | None) -> None:
        """Leave out the jobs that had an outcome in an earlier delivery."""
        if progress is not None:
            try:
                self.left.difference_update(_ids.decode(progress))
            except msgspec.DecodeError:
                return

    @property
    def has_news(self) -> bool:
        """Whether jobs have ended since the progress was stored."""
        return len(self.batch.ids) - len(self.left) > self._recorded

    def progress(self) -> bytes:
        """Return which jobs have an outcome, for the next delivery."""
        ended = [job_id for job_id in self.batch.ids if job_id not in self.left]
        self._recorded = len(ended)
        return msgspec.json.encode(ended)
