"""The connection to the servers of NATS: opened within a time, with our errors, and moved if a server is cut off."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any

import nats
from nats.aio.client import Client
from nats.js import errors as js_errors

from sereno.carriers.address import JetStream
from sereno.errors import CarrierFull, CarrierUnavailable, first_line

# Seconds to connect.
CONNECT_TIMEOUT = 3.0
# Seconds without an answer to any request after which another server is used. Shorter than a publication is tried, and
# than a message is held without a report; most elections are over before.
LEAVE_AFTER = 4.0
# Error codes of the server: the stream is full; and a message was neither stored nor refused yet, as by a leader
# without a majority.
STREAM_FULL, IN_PROCESS = (10077, 10047), 10158
FAILURES = (nats.errors.Error, OSError, TimeoutError)


@asynccontextmanager
async def translated(carrier: JetStream, queue: str = "") -> AsyncIterator[None]:
    """Turn the errors of the client into CarrierUnavailable."""
    of = f"queue {queue}: " if queue else ""
    try:
        yield
    except js_errors.APIError as error:
        if error.err_code in STREAM_FULL:
            raise CarrierFull(
                f"{of}its stream is full: raise max_bytes, or start workers for the queue ({error.description})"
            ) from None
        raise CarrierUnavailable(f"{of}NATS JetStream refused: {error.description or first_line(error)}") from None
    except FAILURES as error:
        reason = first_line(error) or type(error).__name__
        raise CarrierUnavailable(
            f"{of}NATS JetStream at {carrier.description} did not answer ({reason}); check that the servers run"
        ) from None


class _ClosingClient(Client):
    """Closes the connection to a server that accepts it and says nothing, before it tries the next one."""

    async def _connect_to_server(self, s: Any) -> None:
        if self._transport:
            self._transport.close()  # type: ignore[no-untyped-call]  # the package has few annotations
        await super()._connect_to_server(s)


async def _within(seconds: float, connecting: "asyncio.Future[None]") -> None:
    """Wait for a connection. No timeout around it: the client tries for ever, and can lose a cancellation meanwhile."""
    await asyncio.wait([connecting], timeout=seconds)
    if not connecting.done():
        raise TimeoutError
    await connecting


async def open_client(carrier: JetStream) -> Client:
    """Connect to one of the servers, or raise CarrierUnavailable."""
    client, has_given_up = _ClosingClient(), False

    async def quiet(_: Exception) -> None:
        """Keep the client from printing errors: every call raises its own. The end of a connection may be one, too."""
        if has_given_up and asyncio.current_task() is connecting:
            raise asyncio.CancelledError

    connecting = asyncio.ensure_future(
        client.connect(
            random.sample(carrier.addresses, len(carrier.addresses)),  # so that clients spread over the servers
            error_cb=quiet,
            name="sereno",
            connect_timeout=max(1, int(CONNECT_TIMEOUT)),
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.25,  # type: ignore[arg-type]  # annotated as whole seconds, but any number works
            # The order above, in turns: a server that was left is the last to be tried again.
            dont_randomize=True,
            ping_interval=5,
            max_outstanding_pings=2,
            user_credentials=carrier.credentials,
        )
    )
    try:
        async with translated(carrier):
            await _within(CONNECT_TIMEOUT, connecting)
    except BaseException:
        has_given_up = True
        connecting.cancel()
        with suppress(nats.errors.Error, OSError):
            await client.close()
        raise
    return client


class Connection:
    """A client of a cluster that leaves a server whose cluster does not answer: it may be cut off from the others."""

    def __init__(self, carrier: JetStream, client: Client) -> None:
        self.carrier = carrier
        self.client = client
        # By the monotonic clock: the last answer, or the last change of the server; and the first request since then
        # that had no answer.
        self._answered_at = monotonic()
        self._unanswered_since: float | None = None

    @asynccontextmanager
    async def requests(self, queue: str) -> AsyncIterator[None]:
        """Make requests that the cluster answers, with the errors of `translated`."""
        began = monotonic()
        async with translated(self.carrier, queue):
            try:
                yield
            except FAILURES as error:
                if _is_answer(error):
                    self._note_answer()
                else:
                    await self._note_silence(began)
                raise
        self._note_answer()

    def _note_answer(self) -> None:
        self._answered_at, self._unanswered_since = monotonic(), None

    async def _note_silence(self, began: float) -> None:
        """Connect to the next server after a while."""
        began = max(began, self._answered_at)
        self._unanswered_since = min(began, self._unanswered_since or began)
        if self.client.is_connected and monotonic() - self._unanswered_since > LEAVE_AFTER:
            self._note_answer()
            await self.client.force_reconnect()


def _is_answer(error: BaseException) -> bool:
    """Return whether the cluster has decided, as by refusing a stream; a server alone cannot."""
    if not isinstance(error, js_errors.APIError):
        return False
    return not isinstance(error, js_errors.ServiceUnavailableError) and error.err_code != IN_PROCESS
