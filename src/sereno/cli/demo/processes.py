"""The processes of the demo: five example systems with simulated services, a worker for each, and the server."""

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
from sereno.cli.demo import database
from sereno.cli.services.serving import HTTPServer
from sereno.errors import ConfigurationError
from sereno.jobs.filters import JobFilter
from sereno.jobs.queries import jobs as job_queries
from sereno.notifications.templates import operations as templates

SYSTEMS = ("tenders", "separate_worker", "reminders", "reconciliation", "triggers")
# Seconds. Short, so that the jobs of a killed worker come back while the user watches.
LEASE = 5
HEARTBEAT = 1.5
# Seconds that running handlers get when the demo ends.
GRACE = 2


def examples() -> Path:
    """Return the directory of the five systems: in the installed package, or beside the sources."""
    home = Path(sereno.__file__).parent
    for directory in (home / "examples", home.parents[1] / "examples"):
        if (directory / SYSTEMS[0] / "demo.py").is_file():
            return directory
    raise ConfigurationError("the examples are not installed with this package: run the demo from a checkout")


class DemoSystem:
    """One example system: its demo module, its application on the demo's database, and its worker."""

    def __init__(self, name: str, url: str, log: Path) -> None:
        self.name = name
        self.show: ModuleType = importlib.import_module(f"{name}.demo")
        self.app: Sereno = load_app(self.show.APP)
        self.app.override(database_url=url, schema="sereno")
        self.worker: asyncio.subprocess.Process | None = None
        # The child process that runs the jobs: its supervisor replaces it when it dies.
        self.pid: int | None = None
        self.deaths = 0
        self._url = url
        self._log = log
        self._environment: dict[str, str] = {}

    async def begin(self, stack: AsyncExitStack) -> None:
        """Start the simulated services, then the worker."""
        self._environment = await stack.enter_async_context(self.show.stage(self.app))
        stack.push_async_callback(self.app.aclose)
        await self._start()

    async def check(self, pid: int | None) -> bool:
        """Return whether the worker was killed since the last check. A killed worker is replaced.

        `pid`: the process that runs the jobs now.
        """
        if self.worker is not None and self.worker.returncode is not None:
            if self.worker.returncode >= 0:
                *_, last = ["", *self._log.read_text().splitlines()]
                raise ConfigurationError(f"the worker of {self.name} exited: {last} (full log: {self._log})")
            await self._start()
        before, self.pid = self.pid, pid or self.pid
        was_killed = before is not None and before != self.pid
        self.deaths += was_killed
        return was_killed

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
            # Ctrl-C in a terminal reaches the whole process group; only the demo itself handles it.
            start_new_session=True,
        )

    async def end(self) -> None:
        """Stop the worker; kill it when it does not exit within its grace."""
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
    """Starts and stops all systems and the server."""

    def __init__(self, url: str, directory: Path, port: int | None) -> None:
        sys.path.insert(0, str(examples()))
        self.directory = directory
        self._logs = directory / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        self.systems = [DemoSystem(name, url, self._logs / f"{name}.log") for name in SYSTEMS]
        # The server uses an application that declares events, so that the notification pages have content.
        self.app = self.systems[0].app
        self.serving = HTTPServer(self.app, None, port)
        self._has_retried = False
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
            # One after the other, in this task: a cancel scope must be closed by the task that opened it.
            for system in self.systems:
                await system.begin(self._stack)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def check(self) -> list[DemoSystem]:
        """Return the systems whose worker was killed since the last check and has been replaced."""
        pids = await self.app.database.arun_one(database.workers(SYSTEMS))
        return [system for system in self.systems if await system.check(pids.get(system.name))]

    async def act_as_operator(self) -> None:
        """Once there are dead jobs, retry them at a low rate and change a template, as an operator would."""
        dead = JobFilter(states=["dead"], task="reconciliation.sales_sync")
        if self._has_retried or not await self.app.database.arun(job_queries.list_jobs(dead, 1)):
            return
        self._has_retried = True
        await self.app.database.arun(bulk.begin("job.retry", dead, rate=0.5, yes=True, actor="the demo"))
        place = templates.place("reminders.due.email", "email", "body", "es")
        await self.app.database.arun(templates.change(place, "Recuerde: {{ title }}", actor="the demo"))

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(system.end() for system in self.systems))
        await self._stack.aclose()
