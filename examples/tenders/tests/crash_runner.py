"""Runs real worker processes, blocks them at a step and kills them there; the next process runs to the next step."""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

import aiohttp
import psycopg
from aiohttp import web

from sereno.testing.kit import Kit
from sereno.testing.process import WorkerProcess
from sereno.testing.provider import Provider, Request
from tenders.tests.steps import STEPS, Call, Partner, Step, Victim, Write

# A step that is a write is blocked by an advisory lock: this number plus the index of the step.
LOCKS = 815300
WAITING = """from pg_locks join pg_database on pg_database.oid = database
             where datname = current_database() and locktype = 'advisory' and objid = %s and not granted"""
# No job is ready or running, and no job or schedule is due.
IDLE = """select not exists (select from {sereno}.jobs where state in ('ready', 'running')
                             or (state = 'scheduled' and run_at <= {sereno}.now()))
             and not exists (select from {sereno}.schedules where next_run_at <= {sereno}.now())"""
TRIGGERS = """
create function tenders.wait_here() returns trigger language plpgsql as
    $$ begin perform pg_advisory_xact_lock_shared(tg_argv[0]::bigint); return null; end $$;
create table tenders.log (write text not null);
create function tenders.log() returns trigger language plpgsql as
    $$ begin insert into tenders.log values ('tenders.' || tg_table_name || ' ' || lower(tg_op)); return null; end $$;
create trigger log after insert or update or delete on tenders.registry for each row execute function tenders.log();
create trigger log after insert or update or delete on tenders.tenders for each row execute function tenders.log();
create trigger log after insert or update or delete on tenders.progress for each row execute function tenders.log();
"""
FLUSH_PATH = "/flush"


class BlockedPartner:
    """Wraps a partner: requests that match a pattern in `held` wait until its event is set."""

    def __init__(self, partner: Provider) -> None:
        self.url = partner.url
        self.requests: list[str] = []
        self.held: dict[str, asyncio.Event] = {}
        self.reached: set[str] = set()
        self._answer = partner.answer
        partner.answer = self.answer  # type: ignore[method-assign]  # wraps the original

    async def answer(self, request: Request) -> web.StreamResponse:
        if request.path == FLUSH_PATH:
            return web.Response()
        line = f"{request.method} {request.path}"
        self.requests.append(line)
        for pattern, released in list(self.held.items()):
            if re.match(pattern, line):
                self.reached.add(pattern)
                await released.wait()
        return await self._answer(request)

    async def forget(self, pattern: str) -> None:
        """Forget requests of killed processes. The flush request is read after everything they had sent."""
        async with aiohttp.ClientSession() as session, session.get(self.url + FLUSH_PATH):
            self.reached.discard(pattern)


class CrashRunner:
    """Starts the program's worker again and again, and kills it at each step."""

    def __init__(self, kit: Kit, partners: Mapping[Partner, Provider]) -> None:
        self._kit = kit
        self._partners = {name: BlockedPartner(partner) for name, partner in partners.items()}
        self._worker: WorkerProcess | None = None

    async def __aenter__(self) -> Self:
        """Install the triggers; nothing is blocked yet. The next test drops them with the schema `tenders`."""
        self._lock_holder = psycopg.connect(self._kit.app.url, autocommit=True)
        self._reader = psycopg.connect(self._kit.app.url, autocommit=True)
        self._lock_holder.execute(TRIGGERS)
        for step in STEPS:
            if isinstance(step.at, Write):
                self._lock_holder.execute(
                    self._sql(
                        f"create trigger wait_here_{_lock(step)} after {step.at.what} on {step.at.table} for each row"
                        f" when ({step.at.when}) execute function tenders.wait_here({_lock(step)})"
                    )
                )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        for partner in self._partners.values():
            for released in partner.held.values():
                released.set()
        self._lock_holder.close()
        self._reader.close()

    async def walk(self, steps: Sequence[Step], check: Callable[[], None]) -> None:
        """Kill at each step and check after each. On return all processes are dead and their leases have expired."""
        deaths = [(step, victim) for step in steps for victim in step.dies]
        self._block(steps[0])
        for (step, victim), following in zip(deaths, [*deaths[1:], None], strict=True):
            with _step_in_errors(f"on the way to the step: {step.name}"):
                await self._reach(step)
            # Also here: a crash may be counted after the check that followed it.
            self._reset_crashes()
            with _step_in_errors(f"{victim} killed at the step: {step.name}"):
                await self._die(step, victim, None if following is None else following[0])
                check()
                self._reset_crashes()
        self._end()
        self._kit.lose_leases()

    def _reset_crashes(self) -> None:
        """Keep crash counts at 1: a job whose worker dies three times would become a dead letter."""
        self._reader.execute(self._sql("update {sereno}.jobs set crashes = 1 where crashes > 1"))

    def unlisted(self) -> list[str]:
        """Return writes to our tables and requests to partners that are not in the list of steps."""
        writes = [step.at for step in STEPS if isinstance(step.at, Write)]
        listed = {f"{write.table} {what}" for write in writes for what in write.what.split(" or ")}
        written = {write for (write,) in self._reader.execute("select write from tenders.log")}
        calls = [(step.at.partner, step.at.request) for step in STEPS if isinstance(step.at, Call)]
        unlisted = [
            f"{name}: {request}"
            for name, blocked in self._partners.items()
            for request in blocked.requests
            # Other archived files are sereno's own tables.
            if name != "store" or "/tenders.tenders/" in request
            if not any(name == partner and re.match(pattern, request) for partner, pattern in calls)
        ]
        return sorted(written - listed) + unlisted

    async def _reach(self, step: Step) -> None:
        """Run until a process is blocked at this step."""
        worker = self._worker = self._worker or WorkerProcess("tenders.app:app", self._kit.app)
        for wait in step.waits:
            await asyncio.to_thread(worker.until, lambda: self._is_idle() or self._is_reached(step))
            self._kit.travel(wait)
        await asyncio.to_thread(worker.until, lambda: self._is_reached(step))

    async def _die(self, step: Step, victim: Victim, following: Step | None) -> None:
        """Kill the victim. The following step is blocked first, so that no process can pass it."""
        assert self._worker is not None
        supervisor, workers = self._worker.pid, _workers(self._worker.pid)
        if following is not None and following != step:
            self._block(following)
        if victim == "supervisor":
            os.kill(supervisor, signal.SIGKILL)
            self._release(step)
            try:
                await self._until_gone(workers)
            except BaseException:
                # They have no parent any more that would end them.
                _kill(workers)
                raise
            self._end()
            return
        dead = workers if victim != "isolated process" else [pid for each in workers for pid in _children(each)]
        assert dead, "there is no such process"
        if victim == "host":
            self._end()
        else:
            _kill(dead)
        await self._until_gone(dead)
        await self._discard_blocked(step)
        if following is not None:
            await self._discard_blocked(following)
        if following != step:
            self._release(step)
        if victim == "host":
            self._kit.lose_leases()

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    async def _until_gone(self, processes: Sequence[int]) -> None:
        await asyncio.to_thread(self._kit.until, lambda: all(map(_is_gone, processes)))

    def _block(self, step: Step) -> None:
        match step.at:
            case Write():
                self._lock_holder.execute("select pg_advisory_lock(%s)", [_lock(step)])
            case Call(partner, request):
                self._partners[partner].held[request] = asyncio.Event()

    def _release(self, step: Step) -> None:
        match step.at:
            case Write():
                self._lock_holder.execute("select pg_advisory_unlock(%s)", [_lock(step)])
            case Call(partner, request):
                self._partners[partner].held.pop(request).set()

    def _is_reached(self, step: Step) -> bool:
        match step.at:
            case Write():
                return self._reader.execute(f"select {WAITING}", [_lock(step)]).fetchone() is not None
            case Call(partner, request):
                return request in self._partners[partner].reached

    async def _discard_blocked(self, step: Step) -> None:
        """End the backends and requests of killed processes: the server rolls back, as it does for a lost client."""
        match step.at:
            case Write():
                self._reader.execute(f"select pg_terminate_backend(pid, 5000) {WAITING}", [_lock(step)])
            case Call(partner, request):
                await self._partners[partner].forget(request)

    def _is_idle(self) -> bool:
        return self._reader.execute(self._sql(IDLE)).fetchone() == (True,)

    def _sql(self, statement: str) -> bytes:
        return statement.format(sereno=self._kit.app.settings.schema).encode()


def _lock(step: Step) -> int:
    return LOCKS + STEPS.index(step)


@contextmanager
def _step_in_errors(where: str) -> Iterator[None]:
    """Add the step to the message of an error."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{where}: {error}") from error


def _workers(supervisor: int) -> list[int]:
    """Return the worker processes of a supervisor, which its fork server has started."""
    return [worker for fork_server in _children(supervisor) for worker in _children(fork_server)]


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], check=False, stdout=subprocess.PIPE, text=True)
    return [int(line) for line in found.stdout.split()]


def _kill(processes: Sequence[int]) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _is_gone(pid: int) -> bool:
    """Return whether the process has ended; a zombie counts as ended."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], check=False, stdout=subprocess.PIPE, text=True)
    return not found.stdout.strip() or found.stdout.startswith("Z")
