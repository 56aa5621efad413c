"""The supervisor of the worker child processes.

It runs no handlers, so its event loop is never blocked. It renews the leases of all children on its own connection,
notices at once when a child dies and makes its jobs ready again, and kills and replaces a child whose event loop stays
blocked past the deadline of the blocking job. It forwards SIGTERM and SIGINT to the children; a second signal makes
them release their running jobs at once.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from time import monotonic
from typing import Protocol

from sereno.database.connect import ServiceConnection
from sereno.errors import DatabaseUnavailable
from sereno.settings import Settings
from sereno.telemetry import delivery_counts
from sereno.telemetry.exposition import exposition
from sereno.telemetry.log_events import emit
from sereno.telemetry.metrics import Gauges, MetricTally, SchedulerFigures
from sereno.telemetry.service import Service
from sereno.version import __version__
from sereno.worker.autoscale import AutoscaleReader
from sereno.worker.child import EXIT_LOST, EXIT_STUCK
from sereno.worker.child_channel import ChildChannel, ChildFigures, ChildHello, LeaseGone, LeaseRenewed, StopChild
from sereno.worker.fork_server import ForkFailed, ForkServer, StartedProcess
from sereno.worker.health import HealthServer
from sereno.worker.heartbeat import boot_clock, lease_end
from sereno.worker.log_writer import LogWriter
from sereno.worker.maintenance.promoter import rescue
from sereno.worker.sessions import finish, keep
from sereno.worker.watchdog import WatchdogPage

# Seconds between two checks for blocked children.
WATCH_EVERY = 0.5
# A child that has sent no figures for this many seconds is not ready.
SILENT_AFTER = 3.0
# Environment variable with the file descriptors of a child's channel and watchdog page.
CHILD_VARIABLE = "SERENO_CHILD_DESCRIPTORS"
# Seconds that a child gets to write its stacks after SIGUSR1; enough on a busy machine.
STACKS_TIMEOUT = 2.0
# A child that ends within this many seconds without a session counts as a failed start; the next start is delayed, with
# pauses that double up to LONGEST_PAUSE.
SHORT_LIFE = 5.0
LONGEST_PAUSE = 30.0


class ChildProcess:
    """One worker process as its supervisor sees it."""

    def __init__(self, process: StartedProcess, wire: ChildChannel, page: WatchdogPage) -> None:
        self.pid, self.ended = process
        self.wire = wire
        self.page = page
        self.session: int | None = None
        self.born = monotonic()
        self.last_figures_at = monotonic()
        self.ready = False
        self.gauges = Gauges()
        self.killed = False


class SupervisedScheduler(Protocol):
    """A scheduler that the supervisor starts and stops."""

    figures: SchedulerFigures

    def start(self) -> None: ...
    async def stop(self) -> None: ...


class Supervisor:
    """Runs `processes` children until it is stopped."""

    def __init__(
        self,
        url: str,
        settings: Settings,
        fork_control: socket.socket | None,
        scheduler: "SupervisedScheduler | None" = None,
    ) -> None:
        """`fork_control`: the control socket of the children's fork server. Without one they are started fresh.

        `scheduler`: a scheduler to run in this process, where no handler can delay it.
        """
        self._settings = settings
        self._fork_control = fork_control
        self._fork_server: ForkServer | None = None
        self._connection = ServiceConnection(url, settings, "supervisor")
        self._log_writer = LogWriter(url, settings)
        self._children: set[ChildProcess] = set()
        self._child_loops: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._stopped = asyncio.Event()
        self._tally = MetricTally()
        self._heartbeat = _Heartbeats(self._connection, settings, self._children)
        self._scheduler = scheduler
        self.health = HealthServer(
            settings,
            is_live=lambda: True,
            is_ready=self._is_ready,
            metrics=self._metrics,
            autoscale=AutoscaleReader(url, settings).respond,
        )

    async def run(self) -> None:
        """Run until a signal arrives and every child has ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        async with self._log_writer:
            await self._run()

    async def _run(self) -> None:
        if self._fork_control is not None:
            self._fork_server = ForkServer(self._fork_control)
        await self.health.start()
        if self.health.port:
            url = f"http://{self._settings.health_host}:{self.health.port}"
            emit(logging.INFO, "health.started", f"health: {url}/livez /readyz /metrics /autoscale")
        for _ in range(self._settings.processes):
            self._child_loops.add(asyncio.create_task(self._run_one()))
        self._heartbeat.start()
        scheduling = asyncio.create_task(self._run_scheduler())
        watch = asyncio.create_task(self._watch())
        await asyncio.gather(*self._child_loops)
        watch.cancel()
        await scheduling
        await self._heartbeat.stop()
        await self.health.stop()
        await self._connection.close()
        if self._fork_server is not None:
            self._fork_server.close()

    def stop(self) -> None:
        """Stop every child. The second call makes them release their running jobs at once."""
        message = StopChild(hurry=self._stopping)
        self._stopping = True
        self._stopped.set()
        for child in self._children:
            child.wire.send(message)

    async def _run_scheduler(self) -> None:
        """Run the scheduler until `stop` is called, so that another one leads while the last handlers here finish."""
        if self._scheduler is not None:
            self._scheduler.start()
            await self._stopped.wait()
            await self._scheduler.stop()

    def _metrics(self) -> bytes:
        figures = None if self._scheduler is None else self._scheduler.figures
        # A server in the same process records the receipts that providers send to it.
        self._tally.reached(delivery_counts.COUNTED.take())
        return exposition(self._tally, [child.gauges for child in self._children], __version__, figures)

    async def _run_one(self) -> None:
        """Keep one child process running: start a new one whenever it ends, until the supervisor stops."""
        pause = 0.0
        while not self._stopping:
            child = await self._spawn()
            await self._attend(child)
            short = monotonic() - child.born < SHORT_LIFE and child.session is None
            pause = min(LONGEST_PAUSE, max(0.5, pause * 2)) if short else 0.0
            if pause and not self._stopping:
                await self._rest(pause)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            pass

    async def _spawn(self) -> ChildProcess:
        ours, theirs = socket.socketpair()
        page = WatchdogPage()
        with theirs:
            process = await self._start((theirs.fileno(), page.descriptor))
        child = ChildProcess(process, await ChildChannel.on(ours), page)
        self._children.add(child)
        if self._stopping:
            child.wire.send(StopChild(hurry=False))
        return child

    async def _start(self, descriptors: tuple[int, int]) -> StartedProcess:
        """Start a process with these descriptors, forked if possible."""
        if self._fork_server is not None:
            try:
                return await self._fork_server.fork(descriptors)
            except ForkFailed as error:
                self._fork_server = None
                emit(logging.INFO, "child.fresh", f"worker children are started fresh, not forked: {error}")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "sereno",
            *sys.argv[1:],
            env={**os.environ, CHILD_VARIABLE: ",".join(map(str, descriptors))},
            pass_fds=descriptors,
            # Ctrl-C in a terminal must reach the supervisor only, which forwards it.
            start_new_session=True,
        )
        return StartedProcess(process.pid, asyncio.ensure_future(process.wait()))

    async def _attend(self, child: ChildProcess) -> None:
        """Read a child's messages until it exits, then clean up after it."""
        while message := await child.wire.from_child():
            match message:
                case ChildHello(session):
                    child.session = session
                    self._heartbeat.wake()
                case ChildFigures():
                    child.last_figures_at = monotonic()
                    child.ready = message.ready
                    child.gauges = message.gauges
                    self._tally.add(message.tally)
        code = await child.ended
        self._children.discard(child)
        child.wire.close()
        child.page.close()
        if code == 0 or (self._stopping and child.session is None):
            return
        await self._clean_up(child, code)

    async def _clean_up(self, child: ChildProcess, code: int | None) -> None:
        reasons = {EXIT_STUCK: "a handler ignored its deadline", EXIT_LOST: "it lost its session", None: "code unknown"}
        emit(
            logging.ERROR,
            "child.died",
            f"worker child {child.pid} ended ({reasons.get(code, f'code {code}')}): it is replaced",
            pid=child.pid,
            session=child.session,
        )
        if child.session is None:
            return
        try:
            await self._connection.run(finish([child.session], "dead", child.pid))
            await rescue(self._connection)
        except DatabaseUnavailable as error:
            emit(
                logging.WARNING,
                "child.release_failed",
                f"the jobs of worker child {child.pid} are ready again when its lease expires: {error}",
            )

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_EVERY)
            for child in list(self._children):
                if not child.killed and child.page.is_blocked(monotonic(), self._settings.stall_limit):
                    await self._replace(child)

    async def _replace(self, child: ChildProcess) -> None:
        child.killed = True
        emit(
            logging.ERROR,
            "child.blocked",
            f"worker child {child.pid}: a handler blocks its loop past its deadline; its stacks follow",
            pid=child.pid,
            session=child.session,
        )
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGUSR1)
            await asyncio.sleep(STACKS_TIMEOUT)
            if child in self._children:
                os.kill(child.pid, signal.SIGKILL)

    def _is_ready(self) -> bool:
        ready = [
            child for child in self._children if child.ready and monotonic() - child.last_figures_at < SILENT_AFTER
        ]
        return not self._stopping and len(ready) == self._settings.processes


class _Heartbeats(Service):
    """Renews the leases of all children with one statement."""

    def __init__(self, connection: ServiceConnection, settings: Settings, children: set[ChildProcess]) -> None:
        super().__init__("heartbeat")
        self._connection = connection
        self._settings = settings
        self._children = children

    async def run_once(self) -> float:
        sent = boot_clock()
        held = {child.session: child for child in self._children if child.session is not None}
        if held:
            alive = await self._connection.run(keep(list(held), self._settings.lease), self._settings.heartbeat)
            until = lease_end(sent, self._settings.lease)
            for session, child in held.items():
                child.wire.send(LeaseRenewed(session, until) if session in alive else LeaseGone(session))
        return self._settings.heartbeat
