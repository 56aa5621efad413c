"""A worker child: one process, one asyncio loop, one session. Its supervisor renews the lease.

If the supervisor dies, the child renews its own lease with a heartbeat thread, finishes its running jobs and exits. A
child that lost its session exits and is replaced; one with carried queues stays and opens another session, because
their jobs run on while PostgreSQL is away.
"""

import asyncio
import faulthandler
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from sereno.settings import Settings
from sereno.telemetry import tracing
from sereno.worker.child_channel import ChildChannel, ChildFigures, ChildHello, LeaseGone, LeaseRenewed, StopChild
from sereno.worker.event_loop import run_loop
from sereno.worker.heartbeat import Heartbeat, lease_end
from sereno.worker.watchdog import WatchdogPage, WatchdogThread
from sereno.worker.worker import Worker

# Seconds between two messages with figures to the supervisor.
FIGURES_EVERY = 0.5

# Exit codes of a child: a handler ignored its deadline, or the session was lost.
EXIT_STUCK = 75
EXIT_LOST = 76


class SupervisedLease:
    """A lease that the supervisor renews; the child takes over when the supervisor is gone."""

    def __init__(self, url: str, settings: Settings, session: int, registered_at: float) -> None:
        self.session = session
        self._own = Heartbeat(url, settings, session, registered_at)
        self._orphaned = False
        self.is_declared_lost = False
        self.renewed_until = lease_end(registered_at, settings.lease)

    @property
    def lost(self) -> bool:
        return self.is_declared_lost or self._own.lost

    @property
    def lease_end(self) -> float:
        return max(self.renewed_until, self._own.lease_end) if self._orphaned else self.renewed_until

    def start(self) -> None:
        """Do nothing: the supervisor already renews the lease."""

    def take_over(self) -> None:
        self._orphaned = True
        self._own.start()

    def stop(self) -> None:
        if self._orphaned:
            self._own.stop()


def run_child(wire: int, page: int, make_worker: Callable[..., Worker]) -> NoReturn:
    """Run a worker as a child process, and end the process."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    _run(_child(socket.socket(fileno=wire), WatchdogPage(page), make_worker))
    _exit(0)


def _exit(code: int) -> NoReturn:
    """Exit at once. Everything is settled or released; handlers and threads that ignore cancellation must not block."""
    if code == 0:
        tracing.flush()
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


def _run(main: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop  # noqa: PLC0415 - an optional extra; the standard loop works too, more slowly
    except ImportError:
        run_loop(main)
    else:
        run_loop(main, uvloop.new_event_loop)


async def _child(end: socket.socket, page: WatchdogPage, make_worker: Callable[..., Worker]) -> None:
    worker = make_worker(lease_holder=SupervisedLease)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # A service manager signals every process of the group; only the supervisor decides to release jobs at once.
        loop.add_signal_handler(number, worker.stop)
    wire = await ChildChannel.on(end)
    # Objects from start-up live as long as the process, so the garbage collector need not scan them again.
    gc.collect()
    gc.freeze()
    sending = asyncio.create_task(_send_figures(wire, worker))
    receiving = asyncio.create_task(_receive(wire, worker))
    watchdog = WatchdogThread(page, worker.earliest_deadline)
    watchdog.start()
    turn = asyncio.create_task(watchdog.turn())
    try:
        await worker.run(renew=worker.has_carried_queues)
    finally:
        watchdog.stop()
        turn.cancel()
        sending.cancel()
        receiving.cancel()
        wire.close()
    if worker.lost:
        _exit(EXIT_LOST)
    _exit(EXIT_STUCK if worker.is_stuck else 0)


async def _send_figures(wire: ChildChannel, worker: Worker) -> None:
    await worker.registered.wait()
    announced = 0
    while True:
        if worker.session != announced:
            announced = worker.session
            wire.send(ChildHello(announced))
        wire.send(ChildFigures(worker.is_ready, worker.take_tally(), worker.gauges()))
        await asyncio.sleep(FIGURES_EVERY)


async def _receive(wire: ChildChannel, worker: Worker) -> None:
    # A child that is stopped before it has a session registers first, then drains and exits.
    await worker.registered.wait()
    while message := await wire.from_supervisor():
        lease = _lease_of(worker)
        match message:
            case LeaseRenewed(session, until) if session == lease.session:
                lease.renewed_until = until
            case LeaseGone(session) if session == lease.session:
                lease.is_declared_lost = True
            case StopChild(hurry):
                worker.stop(hurry=hurry)
    # The supervisor is gone: it no longer renews our lease and will not replace us, so finish and exit.
    _lease_of(worker).take_over()
    worker.stop()


def _lease_of(worker: Worker) -> SupervisedLease:
    """Return the lease of the session that the worker has now."""
    lease = worker.lease_holder
    assert isinstance(lease, SupervisedLease)
    return lease
