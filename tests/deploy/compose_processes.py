"""The services of a compose file as processes of this machine, for tests where no container runtime is.

Commands, variables, order, health checks and volumes are those of the file. Each process has a loopback address of its
own, so that ports stay as they are. The database is the embedded PostgreSQL, prepared by the scripts that the image of
PostgreSQL would run.
"""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import psycopg

from sereno.database.embedded import EmbeddedPostgres
from sereno.database.embedded.programs import wheel_bin_dir
from tests.deploy.compose_file import services
from tests.deploy.dockerfile import PROGRAM, copied
from tests.facts import until
from tests.shared_server import MEMORY

T = TypeVar("T")

# Where the image of PostgreSQL finds the scripts that it runs once.
SCRIPTS = "/docker-entrypoint-initdb.d"
# Seconds. Several interpreters start at once, on a busy machine.
PATIENCE = 100.0
_URL = re.compile(r"http://[0-9.]+:(\d+)/")


class ServiceProcess:
    """One process of a service. `address`: its loopback address."""

    def __init__(
        self, name: str, address: str, command: list[str], check: list[str], options: Mapping[str, Any], log: Path
    ) -> None:
        self.name = name
        self.address = address
        self._check = check
        self._options = options
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, **options
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def until(self, fact: Callable[[], T]) -> T:
        """Return the first true result of `fact`; fail if the process ends before."""

        def checked() -> T:
            assert self._process.poll() is None, f"{self.name} has ended:\n{self.output}"
            return fact()

        return until(checked, PATIENCE)

    def is_healthy(self) -> bool:
        """Run the health check of the service; not before its port is open, because that takes an interpreter."""
        port = _URL.search(" ".join(self._check))
        with socket.socket() as connection:
            if port is not None and connection.connect_ex((self.address, int(port[1]))) != 0:
                return False
        done = subprocess.run(self._check, capture_output=True, timeout=PATIENCE, check=False, **self._options)
        return done.returncode == 0

    def wait(self) -> int:
        return self._process.wait(PATIENCE)

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class ComposeProcesses:
    """`with ComposeProcesses([file], "tenders", directory) as up`: all services run and are healthy.

    `database`: the URL of its superuser. `processes`: by the name of the service, with several for one with replicas.
    """

    def __init__(
        self, files: Sequence[Path], example: str, directory: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        self._services = services(files, variables or {})
        self._directory = directory
        self._application = self._image(example)
        numbers = random.sample(range(1 << 8, 255 << 8), len(self._services))
        self._networks = {
            name: f"127.{number >> 8}.{number & 255}" for name, number in zip(self._services, numbers, strict=True)
        }
        self.database = ""
        self.processes: dict[str, list[ServiceProcess]] = {}
        # Those that have done their work.
        self.completed: dict[str, ServiceProcess] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as started:
            started.enter_context(self._stack)
            for name in self._in_order():
                self._start(name)
            for processes in self.processes.values():
                for process in processes:
                    process.until(process.is_healthy)
            self._stack = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def process(self, name: str) -> ServiceProcess:
        return self.processes[name][0]

    def stop(self) -> dict[str, list[int]]:
        """Stop the services with TERM, in the order of `docker compose stop`; return their exit codes."""
        codes: dict[str, list[int]] = {}
        for name, processes in reversed(self.processes.items()):
            for process in processes:
                process.terminate()
            codes[name] = [process.wait() for process in processes]
        return codes

    def _in_order(self) -> Iterator[str]:
        """Yield the services, those that others depend on first."""
        waiting = dict(self._services)
        while waiting:
            ready = [name for name, each in waiting.items() if not waiting.keys() & each.get("depends_on", {}).keys()]
            assert ready, f"{', '.join(waiting)} depend on each other"
            for name in ready:
                del waiting[name]
            yield from ready

    def _start(self, name: str) -> None:
        service = self._services[name]
        if service.get("image", "").startswith("postgres:"):
            self.database = self._start_database(service)
            return
        for other, condition in service["depends_on"].items():
            self._wait(other, condition["condition"])
        for number in range(service.get("deploy", {}).get("replicas", 1)):
            process = self._process(name, number)
            self._stack.callback(process.kill)
            self.processes.setdefault(name, []).append(process)

    def _process(self, name: str, number: int) -> ServiceProcess:
        service, label = self._services[name], f"{name}-{number}"
        temporary = self._directory / "tmp" / label
        temporary.mkdir(parents=True)
        # Nothing of the machine's own environment: the file has to say all that the service needs.
        path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])
        environment = {"PATH": path, "HOME": "/nonexistent", "TMPDIR": str(temporary)}
        for key, value in service["environment"].items():
            if value is not None:
                environment[key] = self._here(name, value, number)
        return ServiceProcess(
            label,
            self._address(name, number),
            [self._here(name, word, number) for word in service["command"]],
            [self._here(name, word, number) for word in service.get("healthcheck", {}).get("test", [])[1:]],
            {"env": environment, "cwd": self._application},
            self._directory / f"{label}.log",
        )

    def _wait(self, name: str, condition: str) -> None:
        """Wait until what depends on a service may start. The database is ready as soon as it has started."""
        if condition == "service_completed_successfully" and name in self.processes:
            (process,) = self.processes.pop(name)
            assert process.wait() == 0, process.output
            self.completed[name] = process
        elif condition == "service_healthy":
            for process in self.processes.get(name, []):
                process.until(process.is_healthy)

    def _start_database(self, service: Mapping[str, Any]) -> str:
        directory = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None))
        )
        # Where the tests run as root, the server does not.
        directory.chmod(0o755)
        server = self._stack.enter_context(EmbeddedPostgres(directory, parameters={"fsync": "off"}))
        name = service["environment"]["POSTGRES_DB"]
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f'create database "{name}"'.encode())
            ((host,),) = connection.execute("select setting from pg_settings where name = 'unix_socket_directories'")
        path = f"{wheel_bin_dir()}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, **service["environment"], "PGHOST": host, "PATH": path}
        mounted = (volume.split(":") for volume in service["volumes"])
        scripts = {target: source for source, target, *_ in mounted if target.startswith(SCRIPTS)}
        for _, script in sorted(scripts.items()):
            subprocess.run([script], check=True, env=environment, timeout=PATIENCE)
        return server.url.replace("/postgres?", f"/{name}?", 1)

    def _here(self, name: str, text: str, number: int) -> str:
        """Return a text of a service with what it names here: addresses, the database, the places of volumes."""
        for volume in self._services[name]["volumes"]:
            source, target, *_ = volume.split(":")
            text = re.sub(rf"{re.escape(target)}(?=[/ ]|$)", self._place(source), text)
        for other in self._services:
            if self._services[other].get("image", "").startswith("postgres:"):
                query = self.database.partition("?")[2]
                text = re.sub(rf"@{other}/(\w+)", rf"@/\1?{query}", text)
            text = re.sub(rf"(?:(?<=@)|(?<=//)){other}(?=[:/]|$)", self._address(other), text)
        return re.sub(r"\b(0\.0\.0\.0|127\.0\.0\.1)\b", self._address(name, number), text)

    def _address(self, name: str, number: int = 0) -> str:
        """Return the address of a service, or of the one whose network it uses."""
        network = self._services[name].get("network_mode", "").removeprefix("service:")
        return f"{self._networks[network or name]}.{number + 1}"

    def _place(self, volume: str) -> str:
        if volume.startswith("/"):
            return volume
        place = self._directory / "volumes" / volume
        place.mkdir(parents=True, exist_ok=True)
        return str(place)

    def _image(self, example: str) -> Path:
        """Return a directory with what the image of the example has, by the COPY lines of the Dockerfile."""
        application = self._directory / "app"
        application.mkdir()
        for source, target in copied(PROGRAM, example):
            (application / target).symlink_to(source)
        return application
