"""`sereno server`: a real process that serves on loopback until it is stopped."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.cli.services.serving import HTTPServer
from sereno.server.web.sign_in import MOST_TRIES
from tests.cli.conftest import PROGRAM, Command, process_environment
from tests.facts import TIMEOUT, one, until
from tests.plain_http import NO_CERTIFICATES
from tests.warm_process import WarmProcess

Start = Callable[..., "Running"]


class Running:
    """A server process that has printed its URL."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.output = process.stdout.readline()
        found = re.search(r"Listening at (http://[^/]*:(\d+)/)\. ", self.output)
        assert found is not None, self.output + process.communicate(timeout=TIMEOUT)[0]
        self.url, self.port = found[1].replace("0.0.0.0", "127.0.0.1") + "api/v1/", int(found[2])  # noqa: S104 - as printed

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT)


@pytest.fixture
def start(database_url: str, tmp_path: Path) -> Iterator[Start]:
    processes: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **environment: str) -> Running:
        processes.append(
            WarmProcess(
                [sys.executable, "-c", PROGRAM, "server", "--port", "0", *arguments],
                cwd=tmp_path,
                env=process_environment(SERENO_DATABASE_URL=database_url) | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
            )
        )
        return Running(processes[-1])

    yield run
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGTERM, marks=pytest.mark.quick), pytest.param(signal.SIGINT, marks=pytest.mark.slow)],
)
def test_the_server_serves_until_it_is_stopped(
    start: Start, connection: psycopg.Connection, number: signal.Signals
) -> None:
    running = start()
    assert running.port != 0
    assert httpx.get(f"{running.url}me", timeout=TIMEOUT, verify=NO_CERTIFICATES).json() == {
        "name": "local",
        "role": "admin",
        "tenant": None,
    }
    assert running.end(number) == 0
    assert running.process.stdout is not None
    assert running.process.stdout.read() == (
        "No token exists yet: anyone on this machine has full access. Create one: sereno token create me --role admin\n"
    )
    others = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    until(lambda: one(connection, others) == 0)


@pytest.mark.slow
def test_once_a_token_exists_it_is_required(start: Start, sereno: Command) -> None:
    secret = sereno("token", "create", "me", "--role", "admin").stdout.strip()
    running = start("--host", "0.0.0.0")  # noqa: S104 - requested from this machine only
    assert httpx.get(f"{running.url}me", timeout=TIMEOUT, verify=NO_CERTIFICATES).status_code == 401
    shown = httpx.get(
        f"{running.url}me", headers={"Authorization": f"Bearer {secret}"}, timeout=TIMEOUT, verify=NO_CERTIFICATES
    )
    assert shown.json()["name"] == "me"
    assert running.end() == 0


def test_without_a_token_the_server_listens_on_loopback_only(sereno: Command) -> None:
    for host in ("0.0.0.0", "::", "10.1.2.3", "somewhere.example"):  # noqa: S104 - refused
        result = sereno("server", "--port", "0", "--host", host)
        assert result.exit_code == 3
        assert "sereno token create" in result.stderr
    sereno("token", "create", "me", "--expires-in", "0s")
    assert sereno("server", "--port", "0", SERENO_SERVER_HOST="0.0.0.0").exit_code == 3  # noqa: S104 - refused


@pytest.mark.slow
@pytest.mark.parametrize("end", ["revoke", "expire"])
def test_a_server_whose_only_token_expired_stays_closed_after_a_restart(
    start: Start, sereno: Command, connection: psycopg.Connection, end: str
) -> None:
    sereno("token", "create", "me", "--role", "admin")
    if end == "revoke":
        sereno("token", "revoke", "me")
    else:
        connection.execute("update sereno.tokens set expires_at = sereno.now() - interval '1 s'")
    running = start()
    assert httpx.get(f"{running.url}me", timeout=TIMEOUT, verify=NO_CERTIFICATES).status_code == 401
    assert (
        httpx.post(
            f"{running.url}tokens", json={"name": "mine", "role": "admin"}, timeout=TIMEOUT, verify=NO_CERTIFICATES
        ).status_code
        == 401
    )
    # The message says how to create another token with access to the database.
    assert running.process.stdout is not None
    assert "sereno token create me --role admin" in running.process.stdout.readline()
    secret = sereno("token", "create", "again", "--role", "admin").stdout.strip()
    shown = httpx.get(
        f"{running.url}me", headers={"Authorization": f"Bearer {secret}"}, timeout=TIMEOUT, verify=NO_CERTIFICATES
    )
    assert shown.json()["name"] == "again"


@pytest.mark.slow
def test_proxy_headers_are_trusted_only_from_configured_addresses(start: Start, sereno: Command) -> None:
    sereno("token", "create", "me")

    def guess(running: Running) -> list[int]:
        address = running.url.removesuffix("api/v1/") + "sign-in"
        return [
            httpx.post(
                address,
                data={"token": "x"},
                headers={"X-Forwarded-For": f"203.0.113.{last}"},
                timeout=TIMEOUT,
                verify=NO_CERTIFICATES,
            ).status_code
            for last in range(MOST_TRIES + 1)
        ]

    # Uvicorn reads FORWARDED_ALLOW_IPS, which must have no effect.
    assert guess(start(FORWARDED_ALLOW_IPS="*"))[-1] == 429
    assert guess(start(SERENO_TRUSTED_PROXIES="::1,127.0.0.0/8")) == [403] * (MOST_TRIES + 1)


@pytest.mark.slow
def test_the_database_of_the_command_line_overrides_that_of_the_application(
    start: Start, database_url: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(
        "from sereno import Sereno\n"
        "app = Sereno('postgresql://user@127.0.0.1:1/nothing')\n"
        "@app.task\n"
        "def greet(): ...\n"
    )
    running = start("-a", "shop:app", "--database-url", database_url)
    assert "greet" in [
        line["name"]
        for line in httpx.get(f"{running.url}tasks", timeout=TIMEOUT, verify=NO_CERTIFICATES).json()["items"]
    ]
    assert (
        httpx.post(f"{running.url}jobs", json={"task": "greet"}, timeout=TIMEOUT, verify=NO_CERTIFICATES).status_code
        == 201
    )
    assert one(connection, "select count(*) from sereno.jobs") == 1
    described = httpx.get(f"{running.url}openapi.json", timeout=TIMEOUT, verify=NO_CERTIFICATES).json()
    assert described["info"]["title"] == "sereno"
    assert running.end() == 0


def test_a_used_port_exits_with_3(sereno: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = sereno("server", "--port", str(port))
    assert (result.exit_code, f"port {port}" in result.stderr) == (3, True)


def test_a_server_without_the_schema_exits_with_5(sereno: Command, empty_database_url: str) -> None:
    assert sereno("server", "--port", "0", "--database-url", empty_database_url).exit_code == 5


def test_without_the_server_extra_the_error_says_what_to_install(
    sereno: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = sereno("server")
    assert result.exit_code == 3
    assert "pip install 'sereno[server]'" in result.stderr


def test_the_keep_alive_is_longer_than_that_of_proxies(app: Sereno) -> None:
    """Most proxies keep connections for a minute; if the server closed first, it could lose a request."""
    server = HTTPServer(app, "127.0.0.1", 0)
    server._listener.close()
    assert server._running.config.timeout_keep_alive > 60
