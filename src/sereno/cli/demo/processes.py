"""Everything that the demo runs: the stand-ins of five systems, a worker for each, and the server."""

import asyncio
import importlib
import os
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import ModuleType
from typing import IO, Self

import sereno
from sereno.app import Sereno
from sereno.bulk import operations as bulk
from sereno.cli.context import load_app
from sereno.cli.services.serving import HTTPServer
from sereno.errors import ConfigurationError
from sereno.jobs import queries as job_queries
from sereno.jobs.filters import JobFilter
from sereno.notifications.templates import operations as templates

SYSTEMS = ("tenders", "separate_worker", "reminders", "reconciliation", "triggers")
# Who kills a worker wants to see its jobs come back.
LEASE = 5
HEARTBEAT = 1.5
# Handlers get this long when the demo ends.
GRACE = 2


def examples() -> Path:
    """Where the five systems lie: in the installed package, or beside the sources."""
    home = Path(sereno.__file__).parent
    for directory in (home / "examples", home.parents[1] / "examples"):
        if (directory / SYSTEMS[0] / "demo.py").is_file():
            return directory
    raise ConfigurationError("the examples are not installed with this package: run the demo from a checkout")


class System:
    """One of the five: its show, its application on our database, and its worker."""

    def __init__(self, name: str, url: str, log: Path) -> None:
        self.name = name
        self.show: ModuleType = importlib.import_module(f"{name}.demo")
        self.app: Sereno = load_app(self.show.APP)
        self.app.override(database_url=url, schema="sereno")
        self.worker: asyncio.subprocess.Process | None = None
        # The process that runs its jobs: the worker watches over it, and replaces it.
        self.pid: int | None = None
        self.deaths = 0
        self._url = url
        self._log = log
        self._environment: dict[str, str] = {}

    async def begin(self, stack: AsyncExitStack) -> None:
        """Set the stage and start the worker."""
        self._environment = await stack.enter_async_context(self.show.stage(self.app))
        stack.push_async_callback(self.app.aclose)
        await self._start()

    async def look(self) -> bool:
        """Whether somebody has killed it since the last look; then there is another one."""
        if self.worker is not None and self.worker.returncode is not None:
            if self.worker.returncode >= 0:
                *_, last = ["", *self._log.read_text().splitlines()]
                raise ConfigurationError(f"the worker of {self.name} ended by itself: {last} (all of it: {self._log})")
            await self._start()
        before, self.pid = self.pid, await self._child() or self.pid
        was_killed = before is not None and before != self.pid
        self.deaths += was_killed
        return was_killed

    async def _child(self) -> int | None:
        assert self.worker is not None
        command = ("pgrep", "-P", str(self.worker.pid))
        found = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        said, _ = await found.communicate()
        return int(said.split()[0]) if said else None

    async def _start(self) -> None:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        given = {
            "SERENO_DEMO": self.name,
            "SERENO_DATABASE_URL": self._url,
            "SERENO_SCHEMA": "sereno",
            "PYTHONPATH": path,
        }
        quick = {
            "SERENO_LEASE": str(LEASE),
            "SERENO_HEARTBEAT": str(HEARTBEAT),
            "SERENO_GRACE": str(GRACE),
            "SERENO_POLL": "0.5",
        }
        with self._log.open("ab") as log:
            self.worker = await self._process(log, {**os.environ, **given, **quick, **self._environment})

    async def _process(self, log: IO[bytes], environment: dict[str, str]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "sereno",
            "worker",
            "sereno.cli.demo.worker:app",
            stdout=log,
            stderr=log,
            env=environment,
            # Ctrl-C in a terminal reaches the whole group, and is ours to handle.
            start_new_session=True,
        )

    async def end(self) -> None:
        """The worker finishes what it has, for a moment."""
        if self.worker is None or self.worker.returncode is not None:
            return
        with suppress(ProcessLookupError):
            self.worker.terminate()
        try:
            async with asyncio.timeout(GRACE + LEASE):
                await self.worker.wait()
        except TimeoutError:
            self.worker.kill()
            await self.worker.wait()


class DemoProcesses:
    """All of it, from the first stand-in to the last worker that has ended."""

    def __init__(self, url: str, directory: Path, port: int | None) -> None:
        sys.path.insert(0, str(examples()))
        self._logs = directory / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        self.systems = [System(name, url, self._logs / f"{name}.log") for name in SYSTEMS]
        # One with events: pages that know what an application may tell people show them.
        self.app = self.systems[0].app
        self.serving = HTTPServer(self.app, None, port)
        self._has_sent_back = False
        self._stack = AsyncExitStack()

    @property
    def logs(self) -> Path:
        return self._logs

    async def __aenter__(self) -> Self:
        server = asyncio.create_task(self.serving.run())

        async def end_server() -> None:
            self.serving.end()
            await server

        self._stack.push_async_callback(end_server)
        try:
            # One after the other and in this task: some of what they open must be closed by whoever opened it.
            for system in self.systems:
                await system.begin(self._stack)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def lend_a_hand(self) -> None:
        """What people do, once there is reason to: dead letters go back to work, slowly, and somebody writes words."""
        dead = JobFilter(states=["dead"], task="reconciliation.sales_sync")
        if self._has_sent_back or not await self.app.database.arun(job_queries.list_jobs(dead, 1)):
            return
        self._has_sent_back = True
        await self.app.database.arun(bulk.begin("job.retry", dead, rate=0.5, yes=True, actor="the demo"))
        words = templates.place("reminders.due.email", "email", "body", "es")
        await self.app.database.arun(templates.change(words, "Recuerde: {{ title }}", actor="the demo"))

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(system.end() for system in self.systems))
        await self._stack.aclose()
