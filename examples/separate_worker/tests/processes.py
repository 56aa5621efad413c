"""`python -m separate_worker` for real: APIs, monoliths and workers, each with a log of its own."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from sereno import Sereno
from sereno.testing.process import WorkerProcess

PATIENCE = 60
_LISTENS = re.compile(r"Uvicorn running on (http://\S+)")


class Process(WorkerProcess):
    """One process. Killing it also kills its children, which run its jobs."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as written:
            self._start(command, environment, written)

    @property
    def output(self) -> str:
        return self._log.read_text()

    @property
    def url(self) -> str:
        """Empty until it listens."""
        assert self._process.poll() is None, self.output
        found = _LISTENS.search(self.output)
        return found[1] if found else ""

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    async def ended(self) -> int:
        """Return the exit code; the event loop, and with it the CRM, keeps running meanwhile."""
        return await asyncio.to_thread(self._process.wait, PATIENCE)

    async def metrics(self) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with aiohttp.ClientSession(self.url, timeout=timeout, raise_for_status=True) as client:
            found: dict[str, Any] = await (await client.get("/api/integrations/jobs/metrics")).json()
        return found

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the lines of its JSON log with this event."""
        lines = [json.loads(line) for line in self.output.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == name]


class Processes:
    """Starts processes on the database and schema of the test, and kills them at the end."""

    def __init__(self, app: Sereno, directory: Path) -> None:
        self._environment = {**os.environ, "SERENO_DATABASE_URL": app.url, "SERENO_SCHEMA": app.settings.schema}
        self._environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._directory = directory
        self._stack = ExitStack()
        self._started = 0

    def start(self, **environment: str) -> Process:
        """Start an API, a monolith or a worker, as the environment says."""
        given = {
            "SEPARATE_WORKER_PORT": "0",
            "SEPARATE_WORKER_RATE": "1000",
            "SERENO_POLL": "0.5",
            "SERENO_LOG_FORMAT": "json",
        }
        self._started += 1
        log = self._directory / f"process-{self._started}.log"
        command = [sys.executable, "-m", "separate_worker"]
        process = Process(command, {**self._environment, **given, **environment}, log)
        self._stack.callback(process.kill)
        return process

    async def run(self, module: str, *words: str, **environment: str) -> tuple[int, str]:
        """Run `python -m` with a module; return its exit code and output."""
        return await self.python("-m", module, *words, **environment)

    async def python(self, *words: str, **environment: str) -> tuple[int, str]:
        command = [sys.executable, *words]
        ran = await asyncio.to_thread(
            subprocess.run,
            command,
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return ran.returncode, ran.stdout + ran.stderr

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
