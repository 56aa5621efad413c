"""A real Prometheus and its promtool, where they are installed: `tools/bring_prometheus`."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.facts import TIMEOUT, until
from tests.plain_http import NO_CERTIFICATES

# Directory of the programs, if they are not in the PATH.
BIN = os.environ.get("SERENO_TEST_PROMETHEUS_BIN")
PROMTOOL = shutil.which("promtool", path=BIN)
PROMETHEUS = shutil.which("prometheus", path=BIN)
MISSING = "there is no promtool: tools/bring_prometheus"


def promtool(*arguments: str | Path) -> str:
    """Return what promtool prints; fail with it unless it is content."""
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *map(str, arguments)],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


class Prometheus:
    """A running server."""

    def __init__(self, port: int) -> None:
        self._client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT, trust_env=False, verify=NO_CERTIFICATES
        )

    def get(self, path: str, **params: str) -> Any:
        """Return the data of a response, or the text of a refusal."""
        response = self._client.get(f"/api/v1/{path}", params=params)
        answer = response.json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def is_ready(self) -> bool:
        try:
            return self._client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def close(self) -> None:
        self._client.close()


@contextmanager
def running(directory: Path, config: Mapping[str, Any]) -> Iterator[Prometheus]:
    """Run a server with this configuration, which is written as JSON: YAML includes it."""
    assert PROMETHEUS is not None
    file = directory / "prometheus.yaml"
    file.write_text(json.dumps(config))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [
            PROMETHEUS,
            f"--config.file={file}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    server = Prometheus(port)
    try:
        until(server.is_ready)
        yield server
    finally:
        server.close()
        process.terminate()
        process.wait(TIMEOUT)
