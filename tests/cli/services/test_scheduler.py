"""`sereno scheduler`: a real process with the probes and metrics of its health port."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import PROGRAM, process_environment
from tests.facts import TIMEOUT, until
from tests.plain_http import NO_CERTIFICATES
from tests.warm_process import WarmProcess


@pytest.mark.slow
def test_a_scheduler_serves_probes_and_metrics_until_it_is_stopped(database_url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = WarmProcess(
        [sys.executable, "-c", PROGRAM, "scheduler", "--health-port", str(port)],
        cwd=tmp_path,
        env=process_environment(SERENO_DATABASE_URL=database_url),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    try:
        assert process.stdout is not None
        assert " is running on " in process.stdout.readline()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT, verify=NO_CERTIFICATES) as client:
            assert client.get("/livez").status_code == 200
            assert until(lambda: client.get("/readyz").status_code == 200)
            assert until(lambda: "sereno_scheduler_leads 1.0" in client.get("/metrics").text)
            assert client.get("/autoscale?queue=mails").json()["wanted_workers"] == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
        assert process.stdout.read().endswith("Stopped: 0 fires, 0 skipped.\n")
    finally:
        process.kill()
        process.communicate()
