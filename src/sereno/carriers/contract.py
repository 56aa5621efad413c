"""The contract between sereno and what transports the jobs of a queue outside of PostgreSQL.

A carrier stores messages, each a batch of jobs, until they are acknowledged. It promises two things: `publish` returns
after the message is replicated, and a message is delivered again until it was acknowledged. Everything else (retries,
dead letters, history) is done in PostgreSQL.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Body: TypeAlias = bytes


@dataclass(frozen=True, slots=True)
class CarrierState:
    """The state of one queue at its carrier."""

    # Messages that were not delivered yet, and messages that workers hold.
    pending_messages: int
    held_messages: int
    redelivered_messages: int
    bytes: int
    # Seconds since the oldest message was published; None if there is none.
    oldest: float | None
    # Nodes that store the queue: how many it should have, and how many are up to date.
    replicas: int
    current_replicas: int
    leader: str | None
    # Bytes that the carrier stores at most; None without a limit.
    max_bytes: int | None = None
    # The bodies of its oldest and of its newest message, to estimate how many jobs there are.
    samples: tuple[Body, ...] = ()


class CarriedMessage(Protocol):
    """One delivery of a message."""

    @property
    def body(self) -> bytes: ...

    @property
    def position(self) -> int:
        """Its place in the queue: the same in every delivery, and never that of another message."""

    @property
    def deliveries(self) -> int:
        """How often it was delivered, including this time."""

    async def acknowledge(self) -> None:
        """Delete the message: all its jobs have a durable outcome."""

    async def extend(self) -> None:
        """Postpone the next delivery, because its jobs are still running; return when the carrier has done so."""

    async def give_back(self) -> None:
        """Have the message delivered again at once."""

    async def store_progress(self, progress: bytes) -> None:
        """Store which of its jobs have an outcome, for the next delivery."""

    async def progress(self) -> bytes | None:
        """Return what an earlier delivery has stored."""


class CarrierClient(Protocol):
    """A connection to a carrier, used in one event loop. Every method may raise CarrierUnavailable."""

    @property
    def is_connected(self) -> bool: ...

    @property
    def is_closed(self) -> bool:
        """Whether it has given up for good, as after a refused password."""

    @property
    def largest_message(self) -> int:
        """Bytes."""

    async def publish(self, queue: str, body: bytes, message_id: str) -> int:
        """Store a message and return its position when it is replicated.

        A message with the id of a recent one is stored once, unless the servers were restarted since.
        """

    async def fetch(self, queue: str, most: int, wait: float) -> Sequence[CarriedMessage]:
        """Return messages; if there are none, request `most` and wait for the first one at most `wait` seconds.

        May return more than that: messages that an earlier call has requested. With `wait` 0 it requests none.
        """

    async def state(self, queue: str) -> CarrierState: ...

    async def acknowledged(self, queue: str) -> int:
        """Return the position up to which every message was acknowledged."""

    async def close(self) -> None: ...


class Carrier(Protocol):
    """Where a queue is carried, as declared. Nothing connects before `connect`."""

    @property
    def kind(self) -> str: ...

    @property
    def description(self) -> str:
        """The address without credentials."""

    async def connect(self) -> CarrierClient: ...
