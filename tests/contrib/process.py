"""Runs an application in a separate process under uvicorn."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.plain_http import NO_CERTIFICATES

ROOT = Path(__file__).parents[2]


@dataclass
class Served:
    """A running application; `client` sends requests to it."""

    client: httpx.Client
    process: subprocess.Popen[str]

    def end(self) -> str:
        """Stop it with SIGTERM; return its output. It must end within a minute."""
        self.process.send_signal(signal.SIGTERM)
        output, _ = self.process.communicate(timeout=60)
        return output


@contextmanager
def served(application: str, database_url: str) -> Iterator[Served]:
    """Serve on a socket that already listens, so that requests wait until the application has started."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", application, "--fd", str(listener.fileno())],
            env={**os.environ, "SERENO_DATABASE_URL": database_url},
            cwd=ROOT,
            pass_fds=[listener.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        with httpx.Client(base_url=url, trust_env=False, verify=NO_CERTIFICATES, timeout=60) as client:
            yield Served(client, process)
    finally:
        process.kill()
        process.communicate()
