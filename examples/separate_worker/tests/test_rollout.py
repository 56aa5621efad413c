"""The rollout as an operator runs it: its commands start and stop real processes, while leads keep coming."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from separate_worker.leads import push_lead
from separate_worker.rollout import COMMANDS
from separate_worker.stand_ins import Crm
from separate_worker.tests.conftest import scalar, until, violated_invariants
from separate_worker.tests.processes import PATIENCE, Process, Processes
from sereno.testing.kit import Kit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROLLOUT = "separate_worker.rollout"
RHYTHM = {"JOB_RUNNER_INTERVAL_MS": "300"}
# Seconds between two requests of a client, also between two tries of one.
PAUSE = 0.05


class Deployment:
    """An API behind one address, and a worker. The commands of the rollout ask for changes by lines in a file."""

    def __init__(self, processes: Processes, directory: Path) -> None:
        self._processes = processes
        self._requests = directory / "requests"
        self._requests.touch()
        self._done = 0
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = str(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}"
        self.api = self._start_api("true")
        self.worker: Process | None = None

    @property
    def commands(self) -> dict[str, str]:
        return {variable: f"echo {variable} >> {self._requests}" for variable in COMMANDS}

    @property
    def asked(self) -> list[str]:
        return self._requests.read_text().split()

    def _start_api(self, runs_jobs: str) -> Process:
        environment = {"SEPARATE_WORKER_PORT": self._port, "JOB_RUNNER_ENABLED": runs_jobs}
        return self._processes.start(**RHYTHM, **environment)

    async def operate(self) -> None:
        """Do what the commands ask for, until cancelled."""
        while True:
            for wanted in self.asked[self._done :]:
                await self._change(wanted)
                self._done += 1
            await asyncio.sleep(PAUSE)

    async def _change(self, wanted: str) -> None:
        match wanted:
            case "ROLLOUT_START_WORKER":
                self.worker = self._processes.start(**RHYTHM, WORKER_MODE="1")
            case "ROLLOUT_STOP_WORKER":
                assert self.worker is not None
                self.worker.terminate()
                assert await self.worker.ended() == 0
            case _:
                self.api.terminate()
                await self.api.ended()
                self.api = self._start_api("true" if wanted == "ROLLOUT_API_WITH_RUNNER" else "false")


class Client:
    """Sends leads; repeats a request that gets no answer, as the API is away while it is replaced."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.accepted = 0
        self._ends = asyncio.Event()
        self._ended = asyncio.Event()

    async def run(self) -> None:
        headers = {"Authorization": "Bearer key-of-acme"}
        async with aiohttp.ClientSession(self._url, headers=headers, timeout=aiohttp.ClientTimeout(PATIENCE)) as http:
            while not self._ends.is_set():
                body = {"reference": f"form-{self.accepted}", "email": "ada@example.org"}
                try:
                    async with http.post("/api/leads", json=body) as answer:
                        self.accepted += answer.status == 202
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(PAUSE)
        self._ended.set()

    async def end(self) -> None:
        """End between two requests: then the API has answered all of them."""
        self._ends.set()
        await self._ended.wait()


@asynccontextmanager
async def running(*functions: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run functions beside the test, and raise the error of one that fails."""

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for function in functions:
                group.create_task(_as_coroutine(function))

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()


async def _as_coroutine(function: Callable[[], Awaitable[None]]) -> None:
    await function()


async def test_the_phases_lead_to_a_separate_worker_and_back_and_no_lead_is_lost(
    kit: Kit, crm: Crm, processes: Processes, tmp_path: Path
) -> None:
    deployment = Deployment(processes, tmp_path)
    client = Client(deployment.url)
    async with running(deployment.operate, client.run):
        await until(lambda: client.accepted)
        code, text = await processes.run(ROLLOUT, "--api", deployment.url, **deployment.commands)
        assert code == 0, text
        assert [line for line in text.splitlines() if line.startswith(("phase", "done"))] == [
            "phase 1: a worker beside the API",
            "phase 2: the API runs no jobs",
            "phase 3: jobs are processed",
            "done",
        ]
        assert deployment.asked == ["ROLLOUT_START_WORKER", "ROLLOUT_API_WITHOUT_RUNNER"]
        assert deployment.worker is not None
        found = await deployment.api.metrics()
        assert (found["jobRunnerEnabled"], len(found["workers"])) == (False, 1)
        assert f":{deployment.worker.pid}:" in found["lockedBy"]
        # Safe to repeat: what holds needs no command.
        code, text = await processes.run(ROLLOUT, "--api", deployment.url, **deployment.commands)
        assert (code, len(deployment.asked)) == (0, 2), text
        code, text = await processes.run(ROLLOUT, "--back", "--api", deployment.url, **deployment.commands)
        assert code == 0, text
        assert deployment.asked[2:] == ["ROLLOUT_API_WITH_RUNNER", "ROLLOUT_STOP_WORKER"]
        found = await deployment.api.metrics()
        assert [worker["process"] for worker in found["workers"]] == [found["process"]]
        await client.end()
    # A request that got no answer may have been accepted as well.
    leads = await scalar("select count(*) from separate_worker.leads")
    assert leads >= client.accepted
    await until(lambda: len(kit.jobs(push_lead, state="succeeded")) == leads)
    wanted = {f"leads-{number}" for number in [job.args["lead"] for job in kit.jobs(push_lead)]}
    assert sorted(request.headers["idempotency-key"] for request in crm.log) == sorted(wanted)
    assert await violated_invariants() == []


async def test_a_phase_that_does_not_hold_stops_the_rollout_and_names_the_way_back(
    kit: Kit, crm: Crm, processes: Processes, tmp_path: Path
) -> None:
    deployment = Deployment(processes, tmp_path)
    await until(lambda: deployment.api.url)
    where = ("--api", deployment.url, "--timeout", "1")
    # The command has no effect: there is no worker.
    code, text = await processes.run(ROLLOUT, *where, **deployment.commands)
    assert (code, deployment.asked) == (1, ["ROLLOUT_START_WORKER"])
    assert "fails    no separate worker is alive" in text
    assert "or go back with --back" in text
    code, text = await processes.run(ROLLOUT, *where, ROLLOUT_START_WORKER="exit 3")
    assert (code, "the command ended with exit code 3" in text) == (1, True)
    # The API runs jobs as before.
    found = await deployment.api.metrics()
    assert (found["jobRunnerEnabled"], len(found["workers"])) == (True, 1)


async def test_the_printed_phases_are_the_commands_and_nothing_is_run(kit: Kit, processes: Processes) -> None:
    for words, variables in (
        (["--print"], ["ROLLOUT_START_WORKER", "ROLLOUT_API_WITHOUT_RUNNER"]),
        (["--print", "--back"], ["ROLLOUT_API_WITH_RUNNER", "ROLLOUT_STOP_WORKER"]),
    ):
        code, text = await processes.run(ROLLOUT, *words)
        assert code == 0
        printed = [line.removeprefix("  run      ") for line in text.splitlines() if line.startswith("  run")]
        assert printed == [COMMANDS[variable] for variable in variables]
    assert kit.jobs() == []
