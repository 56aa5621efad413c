"""Blocks that operators copy from the pages: systemd units, images, manifests, proxy configuration, grants."""

import asyncio
import re
import shlex
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx
import kubernetes_validate
import psycopg
import pytest
import yaml

from sereno import Sereno
from sereno.access.operations import create
from sereno.server.api.stream import SILENCE_SECONDS
from sereno.server.web.sign_in import MOST_TRIES
from sereno.settings import Settings
from sereno.worker.autoscale import AutoscaleReader
from sereno.worker.health import HealthServer
from sereno.worker.worker import CANCEL_TIMEOUT
from tests.deploy.test_deploy import ALSO, DEPLOY, beside, commands_in, is_known, said
from tests.docs.pages import ROOT, blocks, only
from tests.docs.test_docs import run_program, run_worker
from tests.facts import TIMEOUT, one
from tests.plain_http import NO_CERTIFICATES
from tests.roles import Roles, as_login, made_by_command, sereno
from tests.server.api.conftest import Served, serve, served

__all__ = ["made_by_command", "serve", "served"]

WORKER = ROOT / "docs/operate/worker-in-production.md"
PROXY = ROOT / "docs/operate/deploy.md"
UNIT = DEPLOY / "sereno-server.service"
# Seconds: the grace period of 25 s, then handlers are cancelled, and then the rest of the jobs is released.
LONGEST_SHUTDOWN = Settings().grace + 2 * CANCEL_TIMEOUT


# The worker


def test_the_systemd_unit_is_the_shipped_file() -> None:
    """tests/deploy checks the file with systemd."""
    unit = (DEPLOY / "sereno-worker.service").read_text()
    assert only(WORKER, "ini") == re.sub(r"^#.*\n", "", unit, flags=re.MULTILINE)


def test_the_dockerfile_passes_hadolint_and_requires_hashes(tmp_path: Path) -> None:
    text = only(WORKER, "dockerfile")
    path = tmp_path / "Dockerfile"
    path.write_text(text)
    assert said([beside("hadolint"), str(path)]) == ""
    assert "--require-hashes" in text


def test_the_kubernetes_manifest_is_valid() -> None:
    (document,) = yaml.safe_load_all(only(WORKER, "yaml"))
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_every_setting_and_command_of_a_block_exists(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for language in ("ini", "dockerfile", "yaml"):
        with subtests.test(language=language):
            path = tmp_path / "block"
            path.write_text(only(WORKER, language))
            named = {name.removesuffix("_FILE") for name in re.findall(r"\bSERENO_[A-Z_]+\b", path.read_text())}
            assert named
            assert named - ALSO <= {f"SERENO_{name.upper()}" for name in Settings.__struct_fields__}
            commands = list(commands_in(path))
            assert len(commands) == (0 if language == "yaml" else 1), "the manifest runs the command of its image"
            assert all(map(is_known, commands))


def test_stop_timeouts_are_longer_than_the_longest_shutdown() -> None:
    page = WORKER.read_text()
    patterns = [r"^TimeoutStopSec=(\d+)$", r"terminationGracePeriodSeconds: (\d+)", r"docker stop -t (\d+)"]
    for pattern in patterns:
        (seconds,) = re.findall(pattern, page, re.MULTILINE)
        assert int(seconds) > LONGEST_SHUTDOWN
    assert f"at least {LONGEST_SHUTDOWN:.0f} s" in page
    assert f"never less than {LONGEST_SHUTDOWN:.0f}" in page


async def test_the_probes_of_the_manifest_respond() -> None:
    """The manifest uses the port of the image and paths that the health server serves."""
    (container,) = yaml.safe_load(only(WORKER, "yaml"))["spec"]["template"]["spec"]["containers"]
    port = re.search(r"SERENO_HEALTH_PORT=(\d+)", only(WORKER, "dockerfile"))
    assert port is not None
    assert container["ports"] == [{"containerPort": int(port[1]), "name": "health"}]
    state = {"live": True, "ready": True}
    settings = Settings(health_port=0)
    health = HealthServer(
        settings,
        is_live=lambda: state["live"],
        is_ready=lambda: state["ready"],
        metrics=bytes,
        autoscale=AutoscaleReader("", settings).respond,
    )
    await health.start()
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{health.port}", verify=NO_CERTIFICATES, timeout=TIMEOUT
    ) as client:
        for name, key in (("livenessProbe", "live"), ("readinessProbe", "ready")):
            probe = container[name]["httpGet"]
            assert probe["port"] == "health"
            assert (await client.get(probe["path"])).status_code == 200
            state[key] = False
            assert (await client.get(probe["path"])).status_code == 503
    await health.stop()


# The proxy


@dataclass(frozen=True)
class Location:
    """A location of nginx: requests below `path` go to `target`, with these headers."""

    path: str
    target: str
    headers: dict[str, str]
    others: dict[str, str]

    @classmethod
    def read(cls, text: str) -> "Location":
        found = re.fullmatch(r"location (\S+) \{\n(.*)\}\n", text, re.DOTALL)
        assert found is not None
        directives = re.findall(r"^ +(\w+) (.+?);", found[2], re.MULTILINE)
        assert len(directives) == found[2].count("\n")
        headers = dict(value.split() for name, value in directives if name == "proxy_set_header")
        others = {name: value for name, value in directives if name != "proxy_set_header"}
        return cls(found[1], others.pop("proxy_pass"), headers, others)

    def forwarded(self, head: str, seen_from: str) -> str:
        """Return the head of a request as nginx forwards it, for a client with TLS at this address."""
        request, *lines = head.splitlines()
        method, path, version = request.split()
        assert path.startswith(self.path)
        # The path of the target replaces that of the location; without one the whole path is forwarded.
        if beginning := urlsplit(self.target).path:
            path = beginning + path.removeprefix(self.path)
        given = dict(line.split(": ", 1) for line in lines if line)
        (host,) = (value for name, value in given.items() if name.lower() == "host")
        known = {"$http_host": host, "$host": host.partition(":")[0], "$remote_addr": seen_from, "$scheme": "https"}
        own = {"Host": urlsplit(self.target).netloc} | {name: known[value] for name, value in self.headers.items()}
        replaced = {name.lower() for name in (*own, "Connection")}
        unchanged = {name: value for name, value in given.items() if name.lower() not in replaced}
        headers = {**own, **unchanged, "Connection": "close"}
        return "\r\n".join([f"{method} {path} {version}", *map(": ".join, headers.items()), "", ""])

    @asynccontextmanager
    async def proxy(self, server: str, seen_from: str = "203.0.113.7") -> AsyncIterator[httpx.AsyncClient]:
        """Return a client of a proxy that follows the configuration of the page."""

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            async with closed(writer):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = re.search(r"^content-length: (\d+)", head, re.MULTILINE | re.IGNORECASE)
                body = await reader.readexactly(int(length[1])) if length else b""
                address = urlsplit(server)
                inside, outside = await asyncio.open_connection(address.hostname, address.port)
                async with closed(outside):
                    outside.write(self.forwarded(head, seen_from).encode("latin-1") + body)
                    while part := await inside.read(65536):
                        writer.write(part)

        forwarding: list[asyncio.Task[None]] = []
        listening = await asyncio.start_server(
            lambda reader, writer: forwarding.append(asyncio.create_task(forward(reader, writer))), "127.0.0.1", 0
        )
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}{self.path}"
        try:
            async with listening, httpx.AsyncClient(base_url=url, verify=NO_CERTIFICATES, timeout=TIMEOUT) as client:
                yield client
        finally:
            for task in forwarding:
                task.cancel()
            await asyncio.gather(*forwarding, return_exceptions=True)


@asynccontextmanager
async def closed(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close the writer at the end, also after an error."""
    try:
        yield
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.fixture
def location(app: Sereno) -> Location:
    """Return the proxy of the page, in front of a server with the settings of the shipped unit."""
    (trusted,) = re.findall(r"^Environment=SERENO_TRUSTED_PROXIES=(.+)$", UNIT.read_text(), re.MULTILINE)
    app.override(trusted_proxies=trusted.split(","))
    return Location.read(only(PROXY, "nginx"))


async def _token(app: Sereno, role: str) -> str:
    return (await app.database.arun(create("ada", role, actor="test"))).secret


@pytest.mark.slow
def test_the_proxy_forwards_to_the_default_address_of_the_server(location: Location) -> None:
    settings = Settings()
    assert location.target == f"http://{settings.server_host}:{settings.server_port}/"
    assert location.others == {"proxy_http_version": "1.1", "proxy_buffering": "off", "proxy_read_timeout": "1h"}
    assert SILENCE_SECONDS < 60, "an idle stream sends a line long before nginx closes it"


@pytest.mark.slow
async def test_a_user_can_sign_in_through_the_proxy(app: Sereno, location: Location, served: Served) -> None:
    token = await _token(app, "admin")
    async with location.proxy(served.url) as client:
        form = await client.get("")
        assert (form.status_code, form.headers["location"]) == (303, "./sign-in?next=")
        # The origin that a browser sends over TLS.
        origin = str(client.base_url).removesuffix(location.path).replace("http:", "https:")
        signed_in = await client.post("sign-in", data={"token": token}, headers={"Origin": origin})
        assert signed_in.status_code == 303
        assert "; Secure" in signed_in.headers["set-cookie"], "the proxy reports that the client uses TLS"
        assert signed_in.headers["set-cookie"].startswith("__Host-")
        client.headers["Cookie"] = signed_in.headers["set-cookie"].partition(";")[0]
        page = await client.get("")
        assert page.status_code == 200
        links = set(re.findall(r'(?:src|href)="([^"#?]+)"', page.text))
        assert len(links) > 5
        for link in links:
            assert (await client.get(urljoin(str(page.url), link))).status_code == 200, link
        elsewhere = {"Origin": "https://evil.example.org"}
        assert (await client.post("sign-in", data={"token": token}, headers=elsewhere)).status_code == 403


async def test_the_event_stream_passes_the_proxy(app: Sereno, location: Location, served: Served) -> None:
    headers = {"Authorization": f"Bearer {await _token(app, 'viewer')}", "Accept": "text/event-stream"}
    async with location.proxy(served.url) as client, client.stream("GET", "api/v1/stream", headers=headers) as stream:
        lines = stream.aiter_lines()
        while await anext(lines) != "event: now":
            """Skip the lines before it."""


async def test_failed_sign_ins_are_counted_for_each_client_behind_the_proxy(
    app: Sereno, location: Location, served: Served
) -> None:
    """Counted for the proxy as a whole, one client that guesses would lock out all others."""
    await _token(app, "admin")
    statuses = []
    for seen_from, tries in (("203.0.113.7", MOST_TRIES + 1), ("203.0.113.8", 1)):
        async with location.proxy(served.url, seen_from) as client:
            statuses += [(await client.post("sign-in", data={"token": "x"})).status_code for _ in range(tries)]
    assert statuses == [403] * MOST_TRIES + [429, 403]


async def test_a_server_without_sign_in_on_loopback_requires_it_behind_the_proxy(
    location: Location, serve: Callable[..., Served]
) -> None:
    served = serve(is_open=True)
    async with httpx.AsyncClient(base_url=served.url, verify=NO_CERTIFICATES, timeout=TIMEOUT) as direct:
        assert (await direct.get("/api/v1/me")).status_code == 200
    async with location.proxy(served.url) as client:
        assert (await client.get("api/v1/me")).status_code == 401


# Roles


@pytest.fixture
def own_role(connection: psycopg.Connection) -> Iterator[str]:
    """Return a unique name for a role, and drop the role afterwards: roles belong to the server, which tests share."""
    name = f"page_{uuid.uuid4().hex[:12]}"
    yield name
    if one(connection, "select 1 from pg_roles where rolname = %s", name):
        connection.execute(f"drop owned by {name}; drop role {name}".encode())


TABLES = """
create table orders (id bigint);
create table tenders (id bigint);
create schema reporting;
create procedure reporting.close_day() language sql as 'select';
revoke execute on procedure reporting.close_day from public
"""


@pytest.mark.slow
def test_the_grants_of_the_page_are_sufficient(connection: psycopg.Connection, roles: Roles, own_role: str) -> None:
    """The roles are those of `sereno migrate --roles create`, under other names."""
    connection.execute(TABLES)
    connection.execute(f"create role {own_role} login".encode())
    named = [
        re.sub(r"\bshop\b", own_role, re.sub(r"\bsereno_(\w+)", lambda found: roles.name(found[1]), each.code))
        for each in blocks(ROOT / "docs/operate/roles.md")
        if each.language == "sql"
    ]
    granted, (membership, call) = named[0], named[1].splitlines()
    connection.execute(granted.encode())
    connection.execute(membership.encode())
    with roles.connect("worker") as worker:
        worker.execute("insert into orders values (1); update orders set id = 2; delete from tenders")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            worker.execute("delete from orders")
    with roles.connect("procedure") as procedure:
        procedure.execute("call reporting.close_day()")
    with psycopg.connect(as_login(roles.database_url, own_role), autocommit=True) as shop:
        assert one(shop, call) is not None
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            shop.execute("select from sereno.jobs")
    assert one(connection, "select args->>'order' from sereno.jobs where task = 'confirm'") == "7"


@pytest.mark.slow
def test_the_steps_of_the_procedures_page_work(
    connection: psycopg.Connection, database_url: str, own_role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step in order, with a login of another name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERENO_PROCEDURE_URL", as_login(database_url, own_role))
    steps = takewhile(lambda each: "reporting.book" not in each.code, blocks(ROOT / "docs/recipes/procedures.md"))
    for step in steps:
        if step.language == "sql":
            connection.execute(re.sub(r"\breports\b", own_role, step.code).encode())
        elif step.language == "python":
            program = tmp_path / "reports.py"
            program.write_text(step.code)
            run_program(program, database_url)
            run_worker(program, database_url, connection)
        else:
            run_commands(step.code, database_url)
    assert one(connection, "select closed_by_job from reporting.closed where day = '2026-11-01'") == 1


def run_commands(shown: str, database_url: str) -> None:
    """Run the commands of a block, and check that their output contains the lines that the page shows."""
    output = ""
    for line in shown.splitlines():
        if line.startswith("$ sereno "):
            result = sereno(database_url, *shlex.split(line)[2:])
            assert result.exit_code == 0, result.output
            output = result.output
        elif not line.startswith(("export ", "…")):
            assert line in output
