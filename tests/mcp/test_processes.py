"""`sereno mcp` as real processes: a client of the SDK over stdin and stdout, and over HTTP."""

import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import httpx2
import pytest
from click.testing import CliRunner
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from sereno import Sereno
from sereno.cli.main import main
from sereno.mcp.http_server import MOST_CONNECTIONS
from tests.cli.conftest import PROGRAM, process_environment
from tests.facts import TIMEOUT
from tests.manual_worker import ManualWorker
from tests.mcp.conftest import Assistant, NewToken
from tests.plain_http import NO_CERTIFICATES
from tests.server.api.conftest import Served
from tests.warm_process import WarmProcess

TOKEN = "srn_" + "t" * 32
Start = Callable[..., str]


@pytest.fixture
def start(served: Served, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts `sereno mcp --http` for the server of the test, and returns its URL."""
    processes: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> str:
        command = ["mcp", "--http", "--port", "0", "--url", served.url, *arguments]
        process = WarmProcess(
            [sys.executable, "-c", PROGRAM, *command],
            cwd=tmp_path,
            # It must not be used: every request carries its own.
            env=process_environment(SERENO_TOKEN=TOKEN),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )
        processes.append(process)
        assert process.stdout is not None
        line: str = process.stdout.readline()
        assert line.startswith("Listening at http://"), line + process.communicate(timeout=TIMEOUT)[0]
        return line.split()[2].rstrip(".")

    yield run
    for process in processes:
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
        process.communicate()


@asynccontextmanager
async def over_http(url: str, token: str, mode: str) -> AsyncIterator[Assistant]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=TIMEOUT, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield Assistant(client)


@pytest.mark.quick
async def test_a_client_starts_the_program_and_uses_its_tools(
    manual: ManualWorker, served: Served, new_token: NewToken, tmp_path: Path
) -> None:
    dead = manual.dead(tenant="r42")
    manual.dead(tenant="r43")
    (tmp_path / "token").write_text(f"{new_token('operator', tenant='r42')}\n")
    program = StdioServerParameters(
        command=sys.executable,
        args=["-c", PROGRAM, "mcp", "--url", served.url, "--allow-writes"],
        env=process_environment(SERENO_TOKEN_FILE=str(tmp_path / "token")),
        cwd=tmp_path,
    )
    async with Client(program, mode="legacy") as client:
        assistant = Assistant(client)
        assert [job["id"] for job in (await assistant.call("dead_letters"))["items"]] == [dead]
        shown = await assistant.call("retry_jobs", job_ids=[dead])
        await assistant.call("retry_jobs", job_ids=[dead], confirmation=shown["confirmation"])
        assert (await assistant.call("show_job", job_id=dead))["job"]["state"] == "ready"
        assert "403: " in await assistant.refused("status")


@pytest.mark.slow
async def test_each_client_over_http_has_the_rights_of_its_own_token(
    manual: ManualWorker, start: Start, new_token: NewToken
) -> None:
    jobs = {tenant: manual.dead(tenant=tenant) for tenant in ("r42", "r43")}
    url = start("--allow-writes")
    for (tenant, dead), mode in zip(jobs.items(), ("auto", "legacy"), strict=True):
        async with over_http(url, new_token("operator", tenant=tenant), mode) as assistant:
            assert [job["id"] for job in (await assistant.call("dead_letters"))["items"]] == [dead]
            shown = await assistant.call("retry_jobs", job_ids=[dead])
            await assistant.call("retry_jobs", job_ids=[dead], confirmation=shown["confirmation"])


@pytest.mark.slow
def test_requests_over_http_need_a_token_a_known_host_and_a_known_origin(
    start: Start, new_token: NewToken, subtests: pytest.Subtests
) -> None:
    url = start("--allow-host", "mcp.example.org")
    authorization = {"Authorization": f"Bearer {new_token()}"}
    for name, headers, status in (
        ("no token", {}, 401),
        ("not a token", {"Authorization": "Bearer x"}, 401),
        ("an unknown token", {"Authorization": f"Bearer {TOKEN}"}, 401),
        ("another scheme", {"Authorization": "Basic c3JuX3g6"}, 401),
        ("a token", authorization, 200),
        ("another host", {**authorization, "Host": "evil.example"}, 421),
        ("a host that begins so", {**authorization, "Host": "127.0.0.1.evil.example:80"}, 421),
        ("a host of the option", {**authorization, "Host": "mcp.example.org"}, 200),
        ("another origin", {**authorization, "Origin": "https://evil.example"}, 403),
        ("an origin of this machine", {**authorization, "Origin": "http://localhost:3000"}, 200),
    ):
        with subtests.test(name=name):
            response = posted(url, headers)
            assert response.status_code == status, response.text
    assert posted(url, authorization, cursor="x" * 300_000).status_code == 413


@pytest.mark.slow
def test_clients_that_send_nothing_keep_nobody_out(start: Start, new_token: NewToken) -> None:
    url = start()
    address = urlsplit(url)
    assert address.port is not None
    with ExitStack() as idle:
        for _ in range(MOST_CONNECTIONS + 10):
            idle.enter_context(socket.create_connection((address.hostname, address.port), TIMEOUT))
        assert posted(url, {"Authorization": f"Bearer {new_token()}"}).status_code == 200


def posted(url: str, headers: dict[str, str], **params: str) -> httpx.Response:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
    given = {"Accept": "application/json, text/event-stream", **headers}
    return httpx.post(url, json=call, headers=given, timeout=TIMEOUT, verify=NO_CERTIFICATES)


@pytest.mark.slow
def test_a_server_without_tokens_is_not_opened_to_others(app: Sereno, start: Start) -> None:
    """Over HTTP, a request is forwarded, and such a server serves its own machine alone."""
    open_server = Served(app, is_open=True)
    try:
        url = start("--url", open_server.url)
        assert posted(url, {"Authorization": f"Bearer {TOKEN}"}).status_code == 401
    finally:
        open_server.stop()
    assert posted(url, {"Authorization": f"Bearer {TOKEN}"}).status_code == 503


def test_what_cannot_be_safe_is_refused(subtests: pytest.Subtests) -> None:
    for arguments, environment, said in (
        (["--url", "http://sereno.example.org"], {}, "in the clear: use https, or --allow-http"),
        (["--url", "sereno.example.org"], {}, "write the address of sereno server"),
        (["--url", "ftp://sereno.example.org"], {}, "write the address of sereno server"),
        (["--url", "https://me:secret@sereno.example.org"], {}, "leave out user, query and fragment"),
        (["--url", "https://sereno.example.org:70000"], {}, "write the address of sereno server"),
        (["--url", "http://[::1"], {}, "write the address of sereno server"),
        ([], {"SERENO_URL": "http://10.0.0.7"}, "in the clear"),
        ([], {"SERENO_TOKEN": "secret-that-is-no-token"}, "SERENO_TOKEN is not a token"),
        ([], {"SERENO_TOKEN_FILE": "/no/such/file"}, "SERENO_TOKEN_FILE: '/no/such/file' cannot be read"),
        (["--port", "1"], {}, "--host, --port and --allow-host need --http"),
        (["--http", "--allow-host", "https://mcp.example.org/"], {}, "write the host of the URL alone"),
        (["--http", "--host", "0.0.0.0"], {}, "can be reached from other machines"),  # noqa: S104 - it is refused
    ):
        with subtests.test(arguments=arguments, environment=environment):
            result = CliRunner().invoke(main, ["mcp", *arguments], env=environment)
            assert result.exit_code in (2, 3), result.output
            assert said in result.output
            assert "secret" not in result.output.replace("`sereno", "")
