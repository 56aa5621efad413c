"""NATS JetStream as the carrier of queues: one stream and one durable pull consumer for each queue.

The stream keeps a message until it is acknowledged (work-queue retention) and refuses new ones when it is full. The
consumer delivers a message again when its worker has not reported for ACK_WAIT.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
import nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api
from nats.js import errors as js_errors

from sereno.carriers.address import PLAIN_NAME, JetStream
from sereno.carriers.contract import CarrierState
from sereno.carriers.jetstream_connection import CONNECT_TIMEOUT, Connection, open_client, translated
from sereno.carriers.jetstream_pull import Pull
from sereno.errors import CarrierUnavailable

# Seconds without a report of its worker after which a message is delivered again.
ACK_WAIT = 30.0
# Seconds for the reply of the cluster to a request or a published message.
REPLY_TIMEOUT = 5.0
# Seconds in which a message with the same id is recognised: longer than a relay takes to be replaced. The servers keep
# the ids of that time in memory.
DUPLICATE_WINDOW = 120.0
# Seconds for which the progress of a message is kept.
KEEP_PROGRESS = 7 * 86400.0
# Messages that workers may hold at once, all together.
MOST_HELD = 20_000
# Bytes that the headers of a message may have; the server counts them as a part of it.
HEADERS = 512
# Error code of the server.
NAME_IN_USE = 10058
CONSUMER = "workers"
# The address of acknowledgements begins so; what has another one is not a message of a stream.
ACK = "$JS.ACK."


async def connect(carrier: JetStream) -> "JetStreamClient":
    """Connect to one of the servers, or raise CarrierUnavailable."""
    return JetStreamClient(Connection(carrier, await open_client(carrier)))


class JetStreamMessage:
    """One delivery of a message."""

    __slots__ = ("_client", "_has_progress", "_message", "_queue", "deliveries", "position")

    def __init__(self, client: "JetStreamClient", queue: str, message: Msg) -> None:
        metadata = message.metadata
        self._client = client
        self._queue = queue
        self._message = message
        self.position: int = metadata.sequence.stream
        self.deliveries: int = metadata.num_delivered or 1
        # Whether this or an earlier delivery may have stored progress.
        self._has_progress = self.deliveries > 1

    @property
    def body(self) -> bytes:
        return self._message.data

    async def acknowledge(self) -> None:
        async with translated(self._client.carrier, self._queue):
            await self._message.ack()
        if self._has_progress:
            # What is left of it expires.
            with suppress(CarrierUnavailable):
                await self._client.forget_progress(self._queue, self.position)

    async def extend(self) -> None:
        await self._client.extend(self._queue, self._message.reply)

    async def give_back(self) -> None:
        async with translated(self._client.carrier, self._queue):
            await self._message.nak()

    async def store_progress(self, progress: bytes) -> None:
        self._has_progress = True
        await self._client.store_progress(self._queue, self.position, progress)

    async def progress(self) -> bytes | None:
        return await self._client.progress(self._queue, self.position)


class JetStreamClient:
    """A connection to a cluster. It reconnects by itself, and creates the stream of a queue at its first use."""

    def __init__(self, connection: Connection) -> None:
        self.carrier = connection.carrier
        self._requests = connection.requests
        self._client = client = connection.client
        self._js: JetStreamContext = client.jetstream(timeout=REPLY_TIMEOUT)
        self._known: set[str] = set()
        self._pulls: dict[str, Pull] = {}

    @property
    def is_connected(self) -> bool:
        return bool(self._client.is_connected)

    @property
    def is_closed(self) -> bool:
        return bool(self._client.is_closed)

    @property
    def largest_message(self) -> int:
        return int(self._client.max_payload) - HEADERS

    async def publish(self, queue: str, body: bytes, message_id: str) -> int:
        async with self._requests(queue):
            if queue not in self._known:
                await self._prepare(queue)
            try:
                return await self._publish(queue, body, message_id)
            except js_errors.NoStreamResponseError:
                # The stream was deleted, or the cluster restarted with empty disks.
                await self._prepare(queue)
                return await self._publish(queue, body, message_id)

    async def _publish(self, queue: str, body: bytes, message_id: str) -> int:
        stored = await self._js.publish(
            self._subject(queue), body, timeout=REPLY_TIMEOUT, headers={api.Header.MSG_ID: message_id}
        )
        return stored.seq

    async def fetch(self, queue: str, most: int, wait: float) -> Sequence[JetStreamMessage]:
        if queue not in self._pulls:
            async with self._requests(queue):
                await self._prepare(queue)
        async with translated(self.carrier, queue):
            pull = self._pulls.get(queue)
            if pull is None:
                subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream(queue)}.{CONSUMER}"
                pull = self._pulls[queue] = Pull(self._client, subject, self._stream(queue))
                await pull.open()
            messages = await pull.fetch(most, wait)
        if not messages and wait and self._client.is_connected:
            # The consumer may be gone with its stream, or the server be cut off from the others; a check costs one
            # request for each wait without messages.
            async with self._requests(queue):
                await self._prepare(queue)
        return [JetStreamMessage(self, queue, message) for message in messages if message.reply.startswith(ACK)]

    async def _prepare(self, queue: str) -> None:
        """Create the streams and the consumer of a queue if they do not exist."""
        stream, carrier = self._stream(queue), self.carrier
        try:
            await self._js.consumer_info(stream, CONSUMER)
        except js_errors.NotFoundError:
            await self._create_stream(
                api.StreamConfig(
                    name=stream,
                    description=f"jobs of the queue {queue}",
                    subjects=[self._subject(queue)],
                    retention=api.RetentionPolicy.WORK_QUEUE,
                    discard=api.DiscardPolicy.NEW,
                    storage=api.StorageType.FILE,
                    num_replicas=carrier.replicas,
                    duplicate_window=DUPLICATE_WINDOW,
                    max_bytes=carrier.max_bytes or -1,
                )
            )
            await self._create_stream(
                api.StreamConfig(
                    name=f"{stream}-progress",
                    description=f"progress of the jobs of the queue {queue}",
                    subjects=[f"{self._progress(queue)}.*"],
                    max_msgs_per_subject=1,
                    max_age=KEEP_PROGRESS,
                    storage=api.StorageType.FILE,
                    num_replicas=carrier.replicas,
                    allow_direct=True,
                )
            )
            await self._js.add_consumer(
                stream,
                api.ConsumerConfig(
                    durable_name=CONSUMER,
                    ack_policy=api.AckPolicy.EXPLICIT,
                    ack_wait=ACK_WAIT,
                    max_deliver=-1,
                    max_ack_pending=MOST_HELD,
                ),
            )
        self._known.add(queue)

    async def _create_stream(self, config: api.StreamConfig) -> None:
        try:
            await self._js.add_stream(config)
        except js_errors.APIError as error:
            if error.err_code != NAME_IN_USE:
                raise

    async def extend(self, queue: str, reply: str) -> None:
        # The consumer replies: a message counts as held only if its leader knows. A server that is cut off does not.
        async with self._requests(queue):
            await self._client.request(reply, Msg.Ack.Progress, timeout=REPLY_TIMEOUT)

    async def store_progress(self, queue: str, position: int, progress: bytes) -> None:
        async with self._requests(queue):
            await self._js.publish(f"{self._progress(queue)}.{position}", progress, timeout=REPLY_TIMEOUT)

    async def progress(self, queue: str, position: int) -> bytes | None:
        async with self._requests(queue):
            try:
                message = await self._js.get_last_msg(
                    f"{self._stream(queue)}-progress", f"{self._progress(queue)}.{position}"
                )
            except js_errors.NotFoundError:
                return None
        return message.data

    async def forget_progress(self, queue: str, position: int) -> None:
        async with self._requests(queue):
            await self._js.purge_stream(
                f"{self._stream(queue)}-progress", subject=f"{self._progress(queue)}.{position}"
            )

    async def state(self, queue: str) -> CarrierState:
        async with self._requests(queue):
            await self._prepare(queue)
            stream = await self._leader_info(queue)
            consumer = await self._js.consumer_info(self._stream(queue), CONSUMER)
            ends = sorted({stream.state.first_seq, stream.state.last_seq}) if stream.state.messages else []
            samples = [await self._message(self._stream(queue), position) for position in ends]
        # The stream keeps what is not acknowledged. The consumer counts nothing until it has elected a leader.
        held = min(consumer.num_ack_pending or 0, stream.state.messages)
        cluster = stream.cluster
        current = 1 + sum(bool(peer.current) for peer in (cluster.replicas or [])) if cluster else 1
        return CarrierState(
            pending_messages=stream.state.messages - held,
            held_messages=held,
            redelivered_messages=consumer.num_redelivered or 0,
            bytes=stream.state.bytes,
            oldest=_age(samples[0]) if samples else None,
            replicas=self.carrier.replicas,
            current_replicas=current,
            leader=cluster.leader if cluster else None,
            max_bytes=limit if (limit := stream.config.max_bytes or 0) > 0 else None,
            samples=tuple(sample.data for sample in samples if sample is not None and sample.data),
        )

    async def _leader_info(self, queue: str) -> api.StreamInfo:
        """Return what the leader of the stream knows.

        Not by STREAM.INFO: a node that was just started answers that too, before it has copied a message. The list of
        streams is collected from the leaders alone.
        """
        request = msgspec.json.encode({"offset": 0, "subject": self._subject(queue)})
        reply = await self._client.request("$JS.API.STREAM.LIST", request, timeout=REPLY_TIMEOUT)
        found = msgspec.json.decode(reply.data)
        if "error" in found:
            raise js_errors.APIError.from_error(found["error"])
        streams = found.get("streams")
        if not streams:
            raise CarrierUnavailable(f"queue {queue}: its stream has no leader yet; try again in a few seconds")
        info: api.StreamInfo = api.StreamInfo.from_response(streams[0])
        return info

    async def _message(self, stream: str, position: int) -> api.RawStreamMsg | None:
        try:
            return await self._js.get_msg(stream, position)
        except js_errors.NotFoundError:
            # It was acknowledged since.
            return None

    async def acknowledged(self, queue: str) -> int:
        async with self._requests(queue):
            if queue not in self._known:
                await self._prepare(queue)
            consumer = await self._js.consumer_info(self._stream(queue), CONSUMER)
        return 0 if consumer.ack_floor is None else consumer.ack_floor.stream_seq

    async def close(self) -> None:
        with suppress(nats.errors.Error, OSError, TimeoutError):
            async with asyncio.timeout(CONNECT_TIMEOUT):
                if self._client.is_connected:
                    for pull in self._pulls.values():
                        await pull.close()
                await self._client.flush()
        await self._client.close()

    def _stream(self, queue: str) -> str:
        return f"{self.carrier.prefix}-{_token(queue)}"

    def _subject(self, queue: str) -> str:
        return f"{self.carrier.prefix}.jobs.{_token(queue)}"

    def _progress(self, queue: str) -> str:
        return f"{self.carrier.prefix}.progress.{_token(queue)}"


def _age(message: api.RawStreamMsg | None) -> float | None:
    """Return the seconds since a message was published."""
    if message is None or message.time is None:
        return None
    return max(0.0, (datetime.now(UTC) - message.time).total_seconds())


def _token(queue: str) -> str:
    """Return the queue's name as it can be part of a subject and of the name of a stream."""
    if PLAIN_NAME.fullmatch(queue):
        return queue
    return "x-" + hashlib.sha256(queue.encode()).hexdigest()[:24]
