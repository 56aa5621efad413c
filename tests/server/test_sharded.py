"""A server over several databases: what it shows, who may read it, and that it changes nothing."""

from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.access.identity import make_cookie
from sereno.access.operations import create, revoke
from sereno.errors import ConfigurationError
from sereno.server.sharded import sharded
from sereno.server.shared.authenticator import COOKIE
from sereno.server.web.page_request import SECTIONS
from tests.databases import DatabasePool
from tests.facts import until
from tests.server.two_shards import TwoShards, second_database, two_shards
from tests.server.web.outages import unavailable

SECRET = "a secret of thirty-two characters and more"  # noqa: S105 - of these tests
LATER = 4_000_000_000


@pytest.fixture
def second_url(databases: DatabasePool) -> Iterator[str]:
    with second_database(databases) as url:
        yield url


@pytest.fixture
def shards(app: Sereno, second_url: str) -> Iterator[TwoShards]:
    with two_shards(app, second_url, secret=SECRET) as made:
        yield made


def enqueue(app: Sereno, count: int, tenant: str = "t1") -> list[int]:
    def work() -> None: ...

    task = app.task(name="work")(work)
    return [task.using(tenant=tenant).enqueue().id for _ in range(count)]


def listed(client: httpx.Client) -> dict[str, Any]:
    answer = client.get("/api/v1/shards")
    assert answer.status_code == 200, answer.text
    return {each["name"]: each for each in answer.json()["items"]}


@pytest.mark.slow
def test_the_overview_and_the_api_show_each_shard_with_its_own_figures(shards: TwoShards) -> None:
    enqueue(shards.apps["a"], 2)
    enqueue(shards.apps["b"], 3)
    with shards.client(shards.token()) as client:
        found = listed(client)
        assert {name: each["figures"]["ready"] for name, each in found.items()} == {"a": 2, "b": 3}
        assert [each["is_reachable"] and each["is_current"] for each in found.values()] == [True, True]
        assert client.get("/shards/b/api/v1/jobs").json()["items"][0]["tenant"] == "t1"
        page = client.get("/")
        assert page.status_code == 200
        assert 'href="./shards/a/"' in page.text
        assert "All shards respond." in page.text


@pytest.mark.slow
def test_every_page_of_a_shard_is_shown_by_a_database_that_refuses_writes(
    shards: TwoShards, second_url: str, connection: psycopg.Connection
) -> None:
    enqueue(shards.apps["b"], 1)
    with psycopg.connect(second_url, autocommit=True) as second:
        name = second.info.dbname
        second.execute(f'alter database "{name}" set default_transaction_read_only = on')
    with shards.client(shards.token()) as client:
        for path, *_ in SECTIONS:
            page = client.get(f"/shards/b/{path}")
            assert page.status_code == 200, (path, page.text)
            assert 'href="./../../"' in page.text, path
            assert "data-do=" not in page.text, f"{path} offers a change"


@pytest.mark.slow
def test_a_shard_that_is_away_is_shown_as_such_and_the_other_one_works(
    shards: TwoShards, server_url: str, second_url: str
) -> None:
    enqueue(shards.apps["b"], 3)
    with shards.client(shards.token()) as client:
        assert listed(client)["b"]["figures"]["ready"] == 3
        with unavailable(server_url, second_url):
            until(lambda: not listed(client)["b"]["is_reachable"])
            found = listed(client)
            assert found["a"]["is_reachable"]
            assert found["b"]["figures"]["ready"] == 3
            assert found["b"]["age"] > 0
            assert "The shard b does not respond." in client.get("/").text
            assert client.get("/shards/a/jobs").status_code == 200
            assert client.get("/shards/b/api/v1/jobs").status_code == 503
        until(lambda: listed(client)["b"]["is_reachable"])


def test_a_shard_without_a_schema_is_named(app: Sereno, empty_database_url: str) -> None:
    with two_shards(app, empty_database_url) as shards, shards.client(shards.token()) as client:
        found = listed(client)["b"]
        assert found["is_reachable"]
        assert not found["is_current"]
        assert "sereno migrate" in found["problem"]
        assert "no current schema" in client.get("/").text


@pytest.mark.slow
def test_only_tokens_of_the_first_shard_that_are_not_a_tenants_read_anything(
    shards: TwoShards, subtests: pytest.Subtests
) -> None:
    enqueue(shards.apps["a"], 1)
    job = enqueue(shards.apps["b"], 1)[0]
    refused = {
        "no token": None,
        "tenant of the first shard": shards.token("a", "admin", "t1"),
        "tenant of the other shard": shards.token("b", "viewer", "t1"),
        "admin of the other shard": shards.token("b", "admin"),
        "stream of a job": Sereno(shards.apps["b"].url, secret=SECRET).jobs.token(job),
    }
    paths = ["/api/v1/shards", *(f"/shards/{name}/api/v1/{path}" for name in "ab" for path in ("jobs", "me", "stream"))]
    paths.append(f"/shards/b/api/v1/jobs/{job}/stream")
    for name, token in refused.items():
        with subtests.test(name), shards.client(token) as client:
            assert {path: client.get(path).status_code for path in paths} == dict.fromkeys(paths, 401)
            for page in ("/", "/shards/a/", "/shards/b/jobs", "/shards/b/static/x/sereno.css", "/shards/a/livez"):
                answer = client.get(page)
                assert answer.status_code == 303, page
                assert httpx.URL(f"{shards.url}{page}").join(answer.headers["location"]).path == "/sign-in"


def test_every_user_is_a_viewer(shards: TwoShards) -> None:
    with shards.client(shards.token(role="admin")) as client:
        me = client.get("/shards/b/api/v1/me").json()
        assert (me["role"], me["tenant"]) == ("viewer", None)
        assert client.get("/shards/b/api/v1/tokens").status_code == 403
        assert client.get("/shards/a/api/v1/settings").status_code == 403


@pytest.mark.slow
def test_a_cookie_of_another_server_with_the_same_secret_is_refused(shards: TwoShards) -> None:
    """It names the id of a token, which has another owner in each database."""
    made = shards.apps["a"].database.run(create("ann", "admin", actor="test"))
    cookie = make_cookie(SECRET.encode(), 1, LATER)
    with shards.client() as client:
        assert client.get("/", headers={"Cookie": f"{COOKIE}={cookie}"}).status_code == 303
        assert client.post("/sign-in", data={"token": made.secret}).status_code == 303
        assert client.get("/shards/b/jobs").status_code == 200


@pytest.mark.slow
def test_a_revoked_token_ends_every_sign_in_and_stream(shards: TwoShards) -> None:
    made = shards.apps["a"].database.run(create("ann", "admin", actor="test"))
    with shards.client() as client:
        assert client.post("/sign-in", data={"token": made.secret}).status_code == 303
        with client.stream("GET", "/shards/b/api/v1/stream", headers={"Accept": "text/event-stream"}) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 2000"
            shards.apps["a"].database.run(revoke("ann", actor="test"))
            # The stream ends, although its database knows nothing of the token.
            assert "event: now" in list(lines)
        assert client.get("/shards/b/jobs").status_code == 303


@pytest.mark.slow
def test_a_tenants_token_cannot_sign_in(shards: TwoShards) -> None:
    with shards.client() as client:
        answer = client.post("/sign-in", data={"token": shards.token("a", "admin", "t1")})
        assert answer.status_code == 403
        assert COOKIE not in answer.cookies


def test_a_change_is_refused_before_it_is_read(shards: TwoShards) -> None:
    job = enqueue(shards.apps["b"], 1)[0]
    with shards.client(shards.token()) as client:
        for method, path in (("POST", "api/v1/jobs/cancel"), ("DELETE", f"api/v1/jobs/{job}"), ("POST", "sign-out")):
            answer = client.request(method, f"/shards/b/{path}", content=b"{")
            assert answer.status_code == 403, path
            assert "shard b read-only" in answer.json()["detail"], path
    assert shards.apps["b"].jobs.get(job).state == "ready"


@pytest.mark.slow
def test_every_change_is_refused_and_the_shard_is_named(shards: TwoShards, subtests: pytest.Subtests) -> None:
    job = enqueue(shards.apps["b"], 1)[0]
    with shards.client(shards.token()) as client:
        document = client.get("/shards/b/api/v1/openapi.json").json()
        changes = [
            (method.upper(), path)
            for path, operations in document["paths"].items()
            for method in operations
            if method not in ("get", "head")
        ]
        assert len(changes) > 40
        for method, path in [*changes, ("POST", "/../../sign-out"), ("POST", "/../../unsubscribe")]:
            filled = path.replace("{job_id}", str(job)).replace("{", "").replace("}", "")
            with subtests.test(f"{method} {path}"):
                answer = client.request(method, f"/shards/b/api/v1{filled}")
                assert answer.status_code == 403
                assert "own server" in answer.json()["detail"]
                assert "shard b" in answer.json()["detail"]
    assert shards.apps["b"].jobs.get(job).state == "ready"


def test_probes_need_no_token(shards: TwoShards, server_url: str, second_url: str) -> None:
    with shards.client() as client, unavailable(server_url, second_url):
        assert client.get("/livez").status_code == 200
        assert client.get("/readyz").status_code == 200


def test_a_user_named_by_a_trusted_proxy_is_a_viewer_of_every_shard(app: Sereno, second_url: str) -> None:
    settings: dict[str, Any] = {"proxy_user_header": "x-user", "proxy_user_role": "admin"}
    with (
        two_shards(app, second_url, trusted_proxies=["127.0.0.1"], **settings) as shards,
        shards.client() as client,
    ):
        for path in ("/api/v1/shards", "/shards/b/api/v1/me", "/shards/a/jobs"):
            assert client.get(path, headers={"X-User": "ann", "X-Forwarded-For": "192.0.2.7"}).status_code == 200, path
        me = client.get("/shards/b/api/v1/me", headers={"X-User": "ann"}).json()
        assert (me["name"], me["role"]) == ("ann", "viewer")
        assert client.get("/api/v1/shards").status_code == 401


def test_an_application_that_may_write_is_refused(app: Sereno) -> None:
    with pytest.raises(ConfigurationError, match="shard a: its application must have read_only=True"):
        sharded({"a": app})
