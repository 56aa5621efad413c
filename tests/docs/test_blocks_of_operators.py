"""What operators copy from the pages, and is neither Python nor SQL alone: units, images, manifests, proxies, roles."""

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
from sereno.worker.health import HealthServer
from sereno.worker.worker import CANCEL_PATIENCE
from tests.deploy.test_deploy import ALSO, DEPLOY, beside, commands_in, is_known, said
from tests.docs.pages import ROOT, blocks, only
from tests.docs.test_docs import run_program, work_off
from tests.facts import PATIENCE, one
from tests.plain_http import NO_CERTIFICATES
from tests.roles import Roles, as_login, made_by_command, sereno
from tests.server.api.conftest import Served, serve, served

__all__ = ["made_by_command", "serve", "served"]

WORKER = ROOT / "docs/operate/worker-in-production.md"
PROXY = ROOT / "docs/operate/deploy.md"
UNIT = DEPLOY / "sereno-server.service"
# 25 s of grace, then handlers are cancelled, and then what is left is given back.
LONGEST_END = Settings().grace + 2 * CANCEL_PATIENCE


# The worker


def test_the_unit_is_the_file_that_is_checked() -> None:
    """tests/deploy hands the file to systemd."""
    unit = (DEPLOY / "sereno-worker.service").read_text()
    assert only(WORKER, "ini") == re.sub(r"^#.*\n", "", unit, flags=re.MULTILINE)


def test_the_image(tmp_path: Path) -> None:
    text = only(WORKER, "dockerfile")
    path = tmp_path / "Dockerfile"
    path.write_text(text)
    assert said([beside("hadolint"), str(path)]) == ""
    assert "--require-hashes" in text


def test_the_deployment() -> None:
    (document,) = yaml.safe_load_all(only(WORKER, "yaml"))
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("language", ["ini", "dockerfile", "yaml"])
def test_every_setting_and_command_is_one(language: str, tmp_path: Path) -> None:
    path = tmp_path / "block"
    path.write_text(only(WORKER, language))
    named = {name.removesuffix("_FILE") for name in re.findall(r"\bSERENO_[A-Z_]+\b", path.read_text())}
    assert named
    assert named - ALSO <= {f"SERENO_{name.upper()}" for name in Settings.__struct_fields__}
    commands = list(commands_in(path))
    assert len(commands) == (0 if language == "yaml" else 1), "the manifest runs what its image says"
    assert all(map(is_known, commands))


def test_whoever_ends_a_worker_waits_for_it() -> None:
    page = WORKER.read_text()
    said_by = [r"^TimeoutStopSec=(\d+)$", r"terminationGracePeriodSeconds: (\d+)", r"docker stop -t (\d+)"]
    for pattern in said_by:
        (seconds,) = re.findall(pattern, page, re.MULTILINE)
        assert int(seconds) > LONGEST_END
    assert f"at least {LONGEST_END:.0f} s" in page
    assert f"never less than {LONGEST_END:.0f}" in page


async def test_the_probes_are_answered() -> None:
    """At the port that the image says, where the manifest asks."""
    (container,) = yaml.safe_load(only(WORKER, "yaml"))["spec"]["template"]["spec"]["containers"]
    port = re.search(r"SERENO_HEALTH_PORT=(\d+)", only(WORKER, "dockerfile"))
    assert port is not None
    assert container["ports"] == [{"containerPort": int(port[1]), "name": "health"}]
    state = {"live": True, "ready": True}
    health = HealthServer(
        Settings(health_port=0), is_live=lambda: state["live"], is_ready=lambda: state["ready"], metrics=bytes
    )
    await health.start()
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{health.port}", verify=NO_CERTIFICATES, timeout=PATIENCE
    ) as client:
        for name, what in (("livenessProbe", "live"), ("readinessProbe", "ready")):
            asked = container[name]["httpGet"]
            assert asked["port"] == "health"
            assert (await client.get(asked["path"])).status_code == 200
            state[what] = False
            assert (await client.get(asked["path"])).status_code == 503
    await health.stop()


# The proxy


@dataclass(frozen=True)
class Location:
    """Of nginx: requests below `path` go to `target`, with these headers."""

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

    def handed_over(self, head: str, seen_from: str) -> str:
        """What nginx makes of the head of a request, from an address with TLS."""
        request, *lines = head.splitlines()
        method, path, version = request.split()
        assert path.startswith(self.path)
        # A target with a path puts it in the place of ours; one without is asked for the whole.
        if beginning := urlsplit(self.target).path:
            path = beginning + path.removeprefix(self.path)
        given = dict(line.split(": ", 1) for line in lines if line)
        (host,) = (value for name, value in given.items() if name.lower() == "host")
        known = {"$http_host": host, "$host": host.partition(":")[0], "$remote_addr": seen_from, "$scheme": "https"}
        own = {"Host": urlsplit(self.target).netloc} | {name: known[value] for name, value in self.headers.items()}
        replaced = {name.lower() for name in (*own, "Connection")}
        kept = {name: value for name, value in given.items() if name.lower() not in replaced}
        headers = {**own, **kept, "Connection": "close"}
        return "\r\n".join([f"{method} {path} {version}", *map(": ".join, headers.items()), "", ""])

    @asynccontextmanager
    async def proxy(self, server: str, seen_from: str = "203.0.113.7") -> AsyncIterator[httpx.AsyncClient]:
        """Somebody elsewhere, before a proxy that does what the page says."""

        async def hand_over(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            async with closed(writer):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = re.search(r"^content-length: (\d+)", head, re.MULTILINE | re.IGNORECASE)
                body = await reader.readexactly(int(length[1])) if length else b""
                place = urlsplit(server)
                inside, outside = await asyncio.open_connection(place.hostname, place.port)
                async with closed(outside):
                    outside.write(self.handed_over(head, seen_from).encode("latin-1") + body)
                    while part := await inside.read(65536):
                        writer.write(part)

        asked: list[asyncio.Task[None]] = []
        listening = await asyncio.start_server(
            lambda reader, writer: asked.append(asyncio.create_task(hand_over(reader, writer))), "127.0.0.1", 0
        )
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}{self.path}"
        try:
            async with listening, httpx.AsyncClient(base_url=url, verify=NO_CERTIFICATES, timeout=PATIENCE) as client:
                yield client
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)


@asynccontextmanager
async def closed(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """At the end, whatever happens."""
    try:
        yield
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.fixture
def location(app: Sereno) -> Location:
    """The proxy of the page, before a server with the settings of the unit that we ship."""
    (trusted,) = re.findall(r"^Environment=SERENO_TRUSTED_PROXIES=(.+)$", UNIT.read_text(), re.MULTILINE)
    app.override(trusted_proxies=trusted.split(","))
    return Location.read(only(PROXY, "nginx"))


async def _token(app: Sereno, role: str) -> str:
    return (await app.database.arun(create("ada", role, actor="test"))).secret


def test_the_proxy_asks_where_the_server_listens(location: Location) -> None:
    settings = Settings()
    assert location.target == f"http://{settings.server_host}:{settings.server_port}/"
    assert location.others == {"proxy_http_version": "1.1", "proxy_buffering": "off", "proxy_read_timeout": "1h"}
    assert SILENCE_SECONDS < 60, "a stream that has nothing new says so, long before nginx gives it up"


async def test_people_sign_in_through_the_proxy(app: Sereno, location: Location, served: Served) -> None:
    token = await _token(app, "admin")
    async with location.proxy(served.url) as client:
        form = await client.get("")
        assert (form.status_code, form.headers["location"]) == (303, "./sign-in?next=")
        # As the browser of somebody who speaks TLS with the proxy writes it.
        here = str(client.base_url).removesuffix(location.path).replace("http:", "https:")
        signed_in = await client.post("sign-in", data={"token": token}, headers={"Origin": here})
        assert signed_in.status_code == 303
        assert "; Secure" in signed_in.headers["set-cookie"], "the proxy says that people come with TLS"
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


async def test_the_stream_comes_through_the_proxy(app: Sereno, location: Location, served: Served) -> None:
    asking = {"Authorization": f"Bearer {await _token(app, 'viewer')}", "Accept": "text/event-stream"}
    async with location.proxy(served.url) as client, client.stream("GET", "api/v1/stream", headers=asking) as stream:
        lines = stream.aiter_lines()
        while await anext(lines) != "event: now":
            """It has not come yet."""


async def test_guesses_are_counted_by_who_makes_them(app: Sereno, location: Location, served: Served) -> None:
    """And not by the proxy, or one who guesses would shut out everybody."""
    await _token(app, "admin")
    answers = []
    for seen_from, tries in (("203.0.113.7", MOST_TRIES + 1), ("203.0.113.8", 1)):
        async with location.proxy(served.url, seen_from) as client:
            answers += [(await client.post("sign-in", data={"token": "x"})).status_code for _ in range(tries)]
    assert answers == [403] * MOST_TRIES + [429, 403]


async def test_a_server_that_is_open_to_its_machine_is_not_open_behind_the_proxy(
    location: Location, serve: Callable[..., Served]
) -> None:
    served = serve(is_open=True)
    async with httpx.AsyncClient(base_url=served.url, verify=NO_CERTIFICATES, timeout=PATIENCE) as here:
        assert (await here.get("/api/v1/me")).status_code == 200
    async with location.proxy(served.url) as client:
        assert (await client.get("api/v1/me")).status_code == 401


# Roles


@pytest.fixture
def own_role(connection: psycopg.Connection) -> Iterator[str]:
    """A name for a login: roles belong to the server, and other tests run on it. Nothing is left of it."""
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


def test_the_grants_of_the_page_are_enough(connection: psycopg.Connection, roles: Roles, own_role: str) -> None:
    """With the roles that `sereno migrate --roles create` makes, under other names."""
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


@pytest.mark.acceptance
def test_the_way_from_a_procedure_to_its_history(
    connection: psycopg.Connection, database_url: str, own_role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step of the page, in its order, with a login of another name."""
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
            work_off(program, database_url, connection)
        else:
            follow(step.code, database_url)
    assert one(connection, "select closed_by_job from reporting.closed where day = '2026-11-01'") == 1


def follow(shown: str, database_url: str) -> None:
    """What people type, and that it says what the page says of it."""
    answer = ""
    for line in shown.splitlines():
        if line.startswith("$ sereno "):
            done = sereno(database_url, *shlex.split(line)[2:])
            assert done.exit_code == 0, done.output
            answer = done.output
        elif not line.startswith(("export ", "…")):
            assert line in answer
