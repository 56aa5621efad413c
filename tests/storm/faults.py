"""Carries out the planned faults, and writes each of them to the journal of the storm."""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import assert_never

import psycopg

from tests.facts import is_gone, one
from tests.storm.journal import (
    ClockJumped,
    NetworkCut,
    ProcessesFrozen,
    ProcessesKilled,
    ProcessesResumed,
    ServerFault,
    now,
)
from tests.storm.plan import FaultKind, PlannedFault
from tests.storm.world import PROXIED, World

# Seconds that a fault of the server or of the network lasts.
SHORT, LONG = 1.0, 4.0
# Seconds of a small jump of the clock at most, and of a day.
SMALL_JUMP, DAY = 90.0, 86400.0
# Seconds that processes stay frozen at most. A supervisor replaces a frozen process after the timeouts of its jobs, and
# those of sereno itself are longer.
FROZEN = 20.0

# How often a kill looks for a process that runs jobs.
TRIES = 10
RUNNING = """
    select distinct pid from sereno.jobs join sereno.sessions on sessions.id = session_id
    where jobs.state = 'running' and sessions.state = 'alive'
"""
SESSIONS = "select count(*) from sereno.sessions where pid = any(%s) and state = 'alive'"


class FaultRunner:
    """Carries out faults. Those that last run in threads, so that others overlap with them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="fault")
        self._lasting: list[Future[None]] = []
        self._released = threading.Event()
        # A process is not frozen twice, and what is killed is not frozen meanwhile.
        self._frozen: set[str] = set()
        self.skipped: Counter[FaultKind] = Counter()

    def carry_out(self, fault: PlannedFault) -> None:
        rng = random.Random(fault.chance)
        for earlier in self._lasting:
            if earlier.done():
                earlier.result()
        match fault.kind:
            case FaultKind.KILL_CHILD | FaultKind.KILL_SUPERVISOR | FaultKind.KILL_WORKER:
                self._kill(fault.kind, rng)
            case FaultKind.CUT:
                self._cut("cut", self._world.proxy.cut)
            case FaultKind.JUMP_SECONDS:
                self._jump(rng.uniform(1, SMALL_JUMP))
            case FaultKind.JUMP_DAYS:
                self._jump(rng.uniform(2.1, 2.9) * DAY)
            case FaultKind.FULL_DISK if self._world.server.disk is None:
                self.skipped[fault.kind] += 1
            case _:
                self._lasting.append(self._threads.submit(self._last, fault.kind, rng))

    def finish(self) -> None:
        """Wait until the lasting faults are over; raise what failed in their threads."""
        self._threads.shutdown()
        for fault in self._lasting:
            fault.result()

    def abort(self) -> None:
        """End the lasting faults early."""
        self._released.set()
        self._threads.shutdown(cancel_futures=True)

    def _last(self, kind: FaultKind, rng: random.Random) -> None:
        seconds = rng.uniform(SHORT, LONG)
        server = self._world.server
        match kind:
            case FaultKind.RESTART:
                self._of_server(kind, server.restart)
            case FaultKind.FULL_DISK:
                self._of_server(kind, lambda: server.fill_disk(self._released, seconds))
            case FaultKind.NO_CONNECTIONS:
                self._of_server(kind, lambda: server.refuse_connections(self._released, seconds))
            case FaultKind.SLOW_DISK:
                self._of_server(kind, lambda: server.slow_down(self._released, seconds))
            case FaultKind.SILENCE:
                self._cut("silence", self._world.proxy.freeze)
                self._released.wait(seconds)
                self._world.proxy.forget_frozen()
            case FaultKind.FREEZE_CHILD | FaultKind.FREEZE_WORKER:
                self._freeze(kind, rng)
            case (
                FaultKind.KILL_CHILD
                | FaultKind.KILL_SUPERVISOR
                | FaultKind.KILL_WORKER
                | FaultKind.CUT
                | FaultKind.JUMP_SECONDS
                | FaultKind.JUMP_DAYS
            ):
                raise AssertionError(f"{kind} does not last")
            case _:
                assert_never(kind)

    def _of_server(self, kind: FaultKind, act: Callable[[], None]) -> None:
        began = now()
        act()
        self._world.journal.write(ServerFault(kind, began, now()))

    def _cut(self, what: str, act: Callable[[], None]) -> None:
        self._world.journal.write(NetworkCut(PROXIED, what, now()))
        act()

    def _jump(self, seconds: float) -> None:
        before, after = self._world.server.jump(seconds)
        self._world.journal.write(ClockJumped(seconds, before, after))

    def _kill(self, kind: FaultKind, rng: random.Random) -> None:
        world = self._world
        names = [name for name in world.workers if name not in self._frozen]
        if not names:
            names = list(world.workers)
        at_work = self._at_work(names)
        name = rng.choice(sorted(at_work) or names)
        supervisor, *others = world.processes(name)
        children = [pid for pid in at_work.get(name) or world.workers[name].children() if pid in others]
        match kind:
            case FaultKind.KILL_CHILD if children:
                victims = [rng.choice(children)]
            case FaultKind.KILL_SUPERVISOR:
                world.orphans.update(others)
                victims = [supervisor]
            case _:
                victims = [supervisor, *others]
        self._signal(victims, kind)
        if supervisor in victims:
            world.start_worker(name)

    def _at_work(self, names: Sequence[str]) -> dict[str, list[int]]:
        """Return the processes of these workers that run jobs; wait for one, but not for long."""

        def query(connection: psycopg.Connection) -> set[int]:
            return {pid for (pid,) in connection.execute(RUNNING)}

        for _ in range(TRIES):
            running = self._world.server.ask(query)
            found = {name: [p for p in self._world.workers[name].children() if p in running] for name in names}
            if any(found.values()):
                return {name: pids for name, pids in found.items() if pids}
            self._released.wait(SHORT / TRIES)
        return {}

    def _signal(self, pids: Sequence[int], kind: FaultKind) -> None:
        """Stop all of them first, so that none replaces another, and kill them."""
        for pid in pids:
            _send(pid, signal.SIGSTOP)
        self._world.journal.write(ProcessesKilled(list(pids), kind, now()))
        for pid in pids:
            _send(pid, signal.SIGKILL)

    def _freeze(self, kind: FaultKind, rng: random.Random) -> None:
        """Stop processes until their sessions have ended, then let them continue."""
        world = self._world
        names = [name for name in world.workers if name not in self._frozen]
        if not names:
            return
        name = rng.choice(names)
        pids = world.processes(name)
        children = world.workers[name].children()
        if kind is FaultKind.FREEZE_CHILD and children:
            pids = [rng.choice(children)]
        self._frozen.add(name)
        try:
            world.journal.write(ProcessesFrozen(pids, now()))
            for pid in pids:
                _send(pid, signal.SIGSTOP)
            end = time.monotonic() + FROZEN
            while time.monotonic() < end and not self._have_lost_their_sessions(pids):
                if self._released.wait(SHORT / TRIES):
                    break
        finally:
            for pid in pids:
                _send(pid, signal.SIGCONT)
            world.journal.write(ProcessesResumed(pids, now()))
            self._frozen.discard(name)

    def _have_lost_their_sessions(self, pids: list[int]) -> bool:
        def query(connection: psycopg.Connection) -> bool:
            return bool(one(connection, SESSIONS, pids) == 0)

        return all(map(is_gone, pids)) or self._world.server.ask(query)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
