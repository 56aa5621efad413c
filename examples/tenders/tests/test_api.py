"""The HTTP API of the app, as a process of its own: phones register, change their preferences and leave."""

import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from sereno.testing.process import WorkerProcess
from tenders.app import app
from tenders.tests.conftest import World

pytestmark = pytest.mark.slow

DAN, EVE = "ExponentPushToken[dan]", "ExponentPushToken[eve]"
ID, OTHER = "d9c1a8e0-dan", "f00dfeed-eve"
PATIENCE = 60
ACTIVE = """
select installation_id, push_token, active from device_installations where installation_id in (%s, %s) order by 1
"""
LISTENS = re.compile(r"Uvicorn running on (http://\S+)")


class Phone:
    """One installation of the app, as it talks to the API."""

    def __init__(self, client: httpx.Client, id: str, token: str | None = DAN) -> None:  # noqa: A002 - its name in the API
        self.path = f"/installations/{id}"
        self.token = token
        self.secret = "none"  # noqa: S105 - none was returned yet
        self._client = client

    def register(self, **fields: Any) -> httpx.Response:
        response = self._client.post(self.path, json={"push_token": self.token, "platform": "android"} | fields)
        self.secret = response.json().get("secret", self.secret)
        return response

    def call(self, method: str, path: str = "", json: Any = None, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.secret}"}
        return self._client.request(method, f"{self.path}{path}", json=json, headers=headers, **options)

    def start(self, token: str | None) -> httpx.Response:
        """As the app does at each start."""
        return self.call("PUT", json={"push_token": token, "platform": "android", "app_version": "2.1.0"})


class Server(WorkerProcess):
    """The API in a process of its own, on the database and schema of the test."""

    def __init__(self, log: Path) -> None:
        self._log = log
        given = {"SERENO_DATABASE_URL": app.url, "SERENO_SCHEMA": app.settings.schema}
        given["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        command = [sys.executable, "-m", "uvicorn", "tenders.api:api", "--port", "0"]
        with log.open("wb") as written:
            self._start(command, {**os.environ, **given, "TENDERS_REGISTRATIONS_PER_MINUTE": "5"}, written)

    @property
    def output(self) -> str:
        return self._log.read_text()

    def url(self) -> str:
        found = self.until(lambda: LISTENS.search(self.output), PATIENCE)
        assert found is not None
        return found[1]


@pytest.fixture(scope="module")
def started() -> Iterator[list[Server]]:
    """One server for all tests, started by the first one, which has created the schema."""
    servers: list[Server] = []
    yield servers
    for server in servers:
        server.kill()


@pytest.fixture
def client(world: World, started: list[Server], tmp_path: Path) -> Iterator[httpx.Client]:
    if not started:
        started.append(Server(tmp_path / "api.log"))
    (server,) = started
    with httpx.Client(base_url=server.url(), timeout=PATIENCE) as opened:
        yield opened
    assert "Traceback" not in server.output


async def test_a_phone_registers_chooses_and_leaves(world: World, client: httpx.Client) -> None:
    dan = Phone(client, ID)
    response = dan.register()
    assert (response.status_code, len(dan.secret)) == (201, 43)
    nothing: dict[str, Any] = {"regions": [], "kinds": [], "categories": [], "words": []}
    assert response.json()["preferences"] == {"enabled": True, "amount_min": None, "amount_max": None} | nothing
    assert dan.register().status_code == 409
    chosen = {"regions": ["Región del Bío-Bío"], "amount_min": 5_000_000, "words": ["luminarias"]}
    assert dan.call("PUT", "/preferences", chosen).status_code == 200
    shown = dan.call("GET").json()
    assert (shown["preferences"]["regions"], shown["secret"]) == (["Biobío"], None)
    wanted, _ = (world.authority.publish(region="Biobío", amount=amount) for amount in (6_000_000, 4_000_000))
    world.authority.tenders[0] |= {"Nombre": "Luminarias públicas"}
    await world.cycle()
    assert [code for code, token in world.pushed() if token == DAN] == [wanted]
    assert dan.call("DELETE").status_code == 204
    assert dan.call("GET").status_code == 401
    world.authority.publish(region="Biobío", amount=6_000_000)
    world.authority.tenders[-1] |= {"Nombre": "Luminarias públicas"}
    await world.cycle()
    assert [code for code, token in world.pushed() if token == DAN] == [wanted]
    world.check_invariants()


async def test_a_token_is_used_for_the_installation_that_named_it_last(world: World, client: httpx.Client) -> None:
    """A new token, a phone that was installed again, and one whose user allows no pushes any more."""
    dan, again = Phone(client, ID), Phone(client, OTHER)
    dan.register()
    assert dan.start(EVE).status_code == 200
    world.authority.publish()
    await world.cycle()
    assert {token for _, token in world.pushed()} >= {EVE}
    assert DAN not in {token for _, token in world.pushed()}
    again.token = EVE
    assert again.register().status_code == 201
    world.authority.publish()
    await world.cycle()
    assert [token for _, token in world.pushed()].count(EVE) == 2
    assert world.rows(ACTIVE, ID, OTHER) == [(ID, None, False), (OTHER, EVE, True)]
    assert again.start(None).status_code == 200
    world.authority.publish()
    await world.cycle()
    assert [token for _, token in world.pushed()].count(EVE) == 2


async def test_an_invalid_token_is_used_again_when_the_app_starts(world: World, client: httpx.Client) -> None:
    dan = Phone(client, ID)
    dan.register()
    world.expo.tickets[DAN] = "DeviceNotRegistered"
    world.authority.publish()
    await world.cycle()
    row = "select active, invalidated_at is not null from device_installations where installation_id = %s"
    assert world.rows(row, ID) == [(False, True)]
    world.expo.tickets.clear()
    dan.start(DAN)
    assert world.rows(row, ID) == [(True, False)]


def test_requests_at_the_same_time_leave_each_token_with_one_installation(world: World, client: httpx.Client) -> None:
    dan, eve = Phone(client, ID), Phone(client, OTHER, EVE)
    dan.register()
    eve.register()
    with ThreadPoolExecutor(4) as pool:
        starts = [(phone, token) for _ in range(5) for phone in (dan, eve) for token in (DAN, EVE)]
        responses = list(pool.map(lambda each: each[0].start(each[1]), starts))
    assert {response.status_code for response in responses} == {200}
    rows = world.rows(
        "select push_token, active from device_installations where installation_id in (%s, %s)", ID, OTHER
    )
    assert {row for row in rows if row[0]} <= {(DAN, True), (EVE, True)}
    assert {row for row in rows if not row[0]} <= {(None, False)}
    active = world.rows(
        "select address from {sereno}.addresses_v1 where state = 'active' and address in (%s, %s)", DAN, EVE
    )
    assert sorted(active) == sorted((token,) for token, _ in rows if token)


def test_a_secret_opens_its_own_installation_only(client: httpx.Client, subtests: pytest.Subtests) -> None:
    dan, eve = Phone(client, ID), Phone(client, OTHER, EVE)
    dan.register()
    eve.register()
    own = dan.secret
    for name, secret in {
        "none": "-",
        "another's": eve.secret,
        "longer": own + "x",
        "shorter": own[:-1],
        "no text": "\xff",
    }.items():
        dan.secret = secret
        for method, path in (("GET", ""), ("PUT", ""), ("PUT", "/preferences"), ("DELETE", "")):
            with subtests.test(f"{name}: {method} {path}"):
                body = {"push_token": EVE} if (method, path) == ("PUT", "") else {}
                headers = {b"Authorization": f"Bearer {secret}".encode("latin-1")}
                assert client.request(method, f"{dan.path}{path}", json=body, headers=headers).status_code == 401
    dan.secret = own
    assert dan.call("GET").json()["phone"]["push_token"] == DAN
    responses = [Phone(client, "an-unknown-one").call("GET"), client.get(dan.path)]
    assert responses[0].json() == responses[1].json()


def test_hostile_input_is_refused_and_changes_nothing(client: httpx.Client, subtests: pytest.Subtests) -> None:
    dan = Phone(client, ID)
    dan.register()
    before = dan.call("GET").json()
    preferences: dict[str, Any] = {
        "unknown name": {"everything": True},
        "number as text": {"amount_min": "5000000"},
        "negative": {"amount_min": -1},
        "too large": {"amount_max": 10**15},
        "not finite": b'{"amount_min": 1e999}',
        "turned around": {"amount_min": 2, "amount_max": 1},
        "no region": {"regions": ["Atlantis"]},
        "no list": {"regions": "Biobío"},
        "too many": {"categories": ["4321"] * 21},
        "no category": {"categories": ["43x1"]},
        "digits of another script": {"categories": ["٤٣"]},
        "no kind": {"kinds": ["'; drop table tenders.installations --"]},
        "a letter": {"words": ["a"]},
        "only marks": {"words": ["\u0301\u0301\u0301"]},
        "letters that become many": {"words": ["\ufdfa" * 40]},
        "a null byte": {"words": ["a\x00b"]},
        "half a letter in a name": b'{"\\ud800": 1}',
        "half a letter": b'{"words": ["\\ud800\\ud800"]}',
        "a list": [],
        "nothing": b"",
        "no JSON": b"{",
        "no UTF-8": b'{"words": ["\xff\xfe"]}',
        "deep": b"[" * 5000 + b"]" * 5000,
    }
    for name, body in preferences.items():
        with subtests.test(name):
            content = {"content": body} if isinstance(body, bytes) else {"json": body}
            headers = {"Authorization": f"Bearer {dan.secret}", "Content-Type": "application/json"}
            response = client.put(f"{dan.path}/preferences", headers=headers, **content)
            assert response.status_code in (400, 422), response.text
    for name, body in {
        "no token of Expo": {"push_token": "https://example.org/"},
        "a long token": {"push_token": f"ExponentPushToken[{'x' * 500}]"},
        "another platform": {"push_token": DAN, "platform": "toaster"},
        "a version with lines": {"push_token": DAN, "app_version": "1\r\n2"},
        "no locale": {"push_token": DAN, "locale": "../../etc"},
        "no token": {},
    }.items():
        with subtests.test(name):
            assert dan.call("PUT", json=body).status_code == 422
    for name in ("short", "x" * 65, "a/../../b-installation", "ñandú-12345", "%00%00%00%00%00%00%00%00"):
        with subtests.test(name):
            assert client.post(f"/installations/{name}", json={"push_token": EVE}).status_code in (404, 422)
    with subtests.test("a large body"):
        large = {"words": ["x" * 20_000]}
        assert dan.call("PUT", "/preferences", large).status_code == 413
    with subtests.test("a large body without a length"):
        parts = (b"x" * 4096 for _ in range(100))
        assert client.put(f"{dan.path}/preferences", content=parts).status_code == 413
    assert dan.call("GET").json() == before


def test_registrations_are_limited(client: httpx.Client) -> None:
    """The two phones of the fixture count as well."""
    codes = [Phone(client, f"installation-{number}", None).register().status_code for number in range(5)]
    assert codes == [201, 201, 201, 429, 429]
    assert client.get("/livez").status_code == client.get("/readyz").status_code == 200
