"""Real processes that are held up at a step, and killed there: the next life goes on to the next step."""

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

# A step that is a write is held up by an advisory lock: this one, and the number of the step.
LOCKS = 815300
WAITING = """from pg_locks join pg_database on pg_database.oid = database
             where datname = current_database() and locktype = 'advisory' and objid = %s and not granted"""
# Nobody works, and nothing is due: what comes next comes with the time.
IDLE = """select not exists (select from {sereno}.jobs where state in ('ready', 'running')
                             or (state = 'scheduled' and run_at <= {sereno}.now()))
             and not exists (select from {sereno}.schedules where next_run_at <= {sereno}.now())"""
TRIGGERS = """
create function tenders.wait_here() returns trigger language plpgsql as
    $$ begin perform pg_advisory_xact_lock_shared(tg_argv[0]::bigint); return null; end $$;
create table tenders.seen (write text not null);
create function tenders.see() returns trigger language plpgsql as
    $$ begin insert into tenders.seen values ('tenders.' || tg_table_name || ' ' || lower(tg_op)); return null; end $$;
create trigger see after insert or update or delete on tenders.registry for each row execute function tenders.see();
create trigger see after insert or update or delete on tenders.tenders for each row execute function tenders.see();
create trigger see after insert or update or delete on tenders.progress for each row execute function tenders.see();
"""
EVERYBODY_IN = "/is-everybody-in"


class Door:
    """Of a partner: whoever asks for this is not answered, until it is opened."""

    def __init__(self, partner: Provider) -> None:
        self.url = partner.url
        self.asked: list[str] = []
        self.held: dict[str, asyncio.Event] = {}
        self.there: set[str] = set()
        self._answer = partner.answer
        partner.answer = self.answer  # type: ignore[method-assign]  # it stands in front of it

    async def answer(self, request: Request) -> web.StreamResponse:
        if request.path == EVERYBODY_IN:
            return web.Response()
        asked = f"{request.method} {request.path}"
        self.asked.append(asked)
        for asks, opened in list(self.held.items()):
            if re.match(asks, asked):
                self.there.add(asks)
                await opened.wait()
        return await self._answer(request)

    async def forget(self, asks: str) -> None:
        """Of those who are dead by now; what they had sent is read before this is."""
        async with aiohttp.ClientSession() as session, session.get(self.url + EVERYBODY_IN):
            self.there.discard(asks)


class House:
    """The processes of the program, one life after the other."""

    def __init__(self, kit: Kit, partners: Mapping[Partner, Provider]) -> None:
        self._kit = kit
        self._doors = {name: Door(partner) for name, partner in partners.items()}
        self._worker: WorkerProcess | None = None

    async def __aenter__(self) -> Self:
        """Nobody is held up yet. The triggers go with the schema `tenders`, before the next test."""
        self._holding = psycopg.connect(self._kit.app.url, autocommit=True)
        self._looking = psycopg.connect(self._kit.app.url, autocommit=True)
        self._holding.execute(TRIGGERS)
        for step in STEPS:
            if isinstance(step.at, Write):
                self._holding.execute(
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
        for door in self._doors.values():
            for opened in door.held.values():
                opened.set()
        self._holding.close()
        self._looking.close()

    async def walk(self, steps: Sequence[Step], check: Callable[[], None]) -> None:
        """Kill at each step, and check after each. Then everybody is dead, and their leases have run out."""
        deaths = [(step, victim) for step in steps for victim in step.dies]
        self._hold(steps[0])
        for (step, victim), following in zip(deaths, [*deaths[1:], None], strict=True):
            with _said(f"on the way to the step: {step.name}"):
                await self._reach(step)
            with _said(f"{victim} killed at the step: {step.name}"):
                await self._die(step, victim, None if following is None else following[0])
                check()
                self._forgive()
        self._end()
        self._kit.lose_leases()

    def _forgive(self) -> None:
        """A job whose worker dies three times is a dead letter. Here it is not to blame: it keeps one crash at most."""
        self._looking.execute(self._sql("update {sereno}.jobs set crashes = 1 where crashes > 1"))

    def unlisted(self) -> list[str]:
        """What happened to our own tables, or was asked of a partner, and is no step of the list."""
        writes = [step.at for step in STEPS if isinstance(step.at, Write)]
        listed = {f"{write.table} {what}" for write in writes for what in write.what.split(" or ")}
        seen = {write for (write,) in self._looking.execute("select write from tenders.seen")}
        calls = [(step.at.partner, step.at.asks) for step in STEPS if isinstance(step.at, Call)]
        strange = [
            f"{name}: {asked}"
            for name, door in self._doors.items()
            for asked in door.asked
            # What else is archived is sereno's own.
            if name != "store" or "/tenders.tenders/" in asked
            if not any(name == partner and re.match(asks, asked) for partner, asks in calls)
        ]
        return sorted(seen - listed) + strange

    async def _reach(self, step: Step) -> None:
        """Somebody is at this step."""
        worker = self._worker = self._worker or WorkerProcess("tenders.app:app", self._kit.app)
        for wait in step.waits:
            await asyncio.to_thread(worker.until, lambda: self._is_idle() or self._is_there(step))
            self._kit.travel(wait)
        await asyncio.to_thread(worker.until, lambda: self._is_there(step))

    async def _die(self, step: Step, victim: Victim, following: Step | None) -> None:
        """Whoever comes next is held up at the following step, before anybody can come there."""
        assert self._worker is not None
        supervisor, workers = self._worker.pid, _children(self._worker.pid)
        if following is not None and following != step:
            self._hold(following)
        if victim == "supervisor":
            os.kill(supervisor, signal.SIGKILL)
            self._release(step)
            try:
                await self._until_gone(workers)
            except BaseException:
                # Nobody else knows of them any more.
                _kill(workers)
                raise
            self._end()
            return
        dead = workers if victim != "process of its own" else [pid for each in workers for pid in _children(each)]
        assert dead, "there is no such process"
        if victim == "host":
            self._end()
        else:
            _kill(dead)
        await self._until_gone(dead)
        await self._bury(step)
        if following is not None:
            await self._bury(following)
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

    def _hold(self, step: Step) -> None:
        match step.at:
            case Write():
                self._holding.execute("select pg_advisory_lock(%s)", [_lock(step)])
            case Call(partner, asks):
                self._doors[partner].held[asks] = asyncio.Event()

    def _release(self, step: Step) -> None:
        match step.at:
            case Write():
                self._holding.execute("select pg_advisory_unlock(%s)", [_lock(step)])
            case Call(partner, asks):
                self._doors[partner].held.pop(asks).set()

    def _is_there(self, step: Step) -> bool:
        match step.at:
            case Write():
                return self._looking.execute(f"select {WAITING}", [_lock(step)]).fetchone() is not None
            case Call(partner, asks):
                return asks in self._doors[partner].there

    async def _bury(self, step: Step) -> None:
        """The dead are there no more: the server rolls back, as it does when it sees that nobody is there to commit."""
        match step.at:
            case Write():
                self._looking.execute(f"select pg_terminate_backend(pid, 5000) {WAITING}", [_lock(step)])
            case Call(partner, asks):
                await self._doors[partner].forget(asks)

    def _is_idle(self) -> bool:
        return self._looking.execute(self._sql(IDLE)).fetchone() == (True,)

    def _sql(self, statement: str) -> bytes:
        return statement.format(sereno=self._kit.app.settings.schema).encode()


def _lock(step: Step) -> int:
    return LOCKS + STEPS.index(step)


@contextmanager
def _said(where: str) -> Iterator[None]:
    """What goes wrong says at which step."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{where}: {error}") from error


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], check=False, stdout=subprocess.PIPE, text=True)
    return [int(line) for line in found.stdout.split()]


def _kill(processes: Sequence[int]) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _is_gone(pid: int) -> bool:
    """Also when nobody has asked for its exit code yet."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], check=False, stdout=subprocess.PIPE, text=True)
    return not found.stdout.strip() or found.stdout.startswith("Z")
