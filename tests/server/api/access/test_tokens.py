"""Tokens over HTTP: they are created, listed and revoked; stored responses expire after a day."""

from typing import Any

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.access.operations import revoke
from sereno.errors import Refused
from sereno.server.shared import authenticator
from tests.facts import auntil, one, until
from tests.server.api.conftest import PLAIN, Ask, Served


@pytest.mark.slow
def test_a_token_is_created_used_and_revoked(
    ask: Ask, served: Served, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "FRESH_SECONDS", 0.1)
    client = ask("admin")
    answer = client.post("/tokens", json={"name": "grafana", "role": "operator", "tenant": "r42", "expires_in": "90d"})
    assert answer.status_code == 201
    made = answer.json()
    token = made["token"]
    assert (token["name"], token["role"], token["tenant"]) == ("grafana", "operator", "r42")
    assert token["created_by"] == "admin None 0"
    assert token["expires_at"] is not None
    bearer = {"Authorization": f"Bearer {made['secret']}"}
    assert httpx.get(f"{served.url}/api/v1/me", headers=bearer, **PLAIN).json() == {
        "name": "grafana",
        "role": "operator",
        "tenant": "r42",
    }
    listed = client.get("/tokens")
    assert [line["name"] for line in listed.json()["items"]] == ["grafana", "admin None 0"]
    assert made["secret"] not in listed.text
    assert client.delete(f"/tokens/{token['id']}").status_code == 204
    until(lambda: httpx.get(f"{served.url}/api/v1/me", headers=bearer, **PLAIN).status_code == 401)
    assert client.delete(f"/tokens/{token['id']}").status_code == 404
    assert client.get("/tokens").json()["items"][-1]["revoked_at"] is not None
    audited = connection.execute("select actor, action, subject from sereno.audit order by id").fetchall()
    assert audited[-2:] == [
        ("admin None 0", "token.create", "token grafana"),
        ("admin None 0", "token.revoke", "token grafana"),
    ]


def test_the_secret_is_not_stored_for_an_idempotency_key(ask: Ask, connection: psycopg.Connection) -> None:
    client = ask("admin")
    for status in (201, 409):
        answer = client.post("/tokens", json={"name": "n"}, headers={"Idempotency-Key": "k"})
        assert answer.status_code == status
    assert one(connection, "select count(*) from sereno.idempotency_keys") == 0


def test_a_tenants_admin_creates_tokens_of_that_tenant(ask: Ask) -> None:
    owner, client = ask("admin"), ask("admin", tenant="a")
    other = owner.post("/tokens", json={"name": "theirs", "tenant": "b"}).json()["token"]
    of_all = owner.post("/tokens", json={"name": "of all tenants"}).json()["token"]
    mine = client.post("/tokens", json={"name": "mine", "role": "admin"}).json()["token"]
    assert mine["tenant"] == "a"
    assert client.post("/tokens", json={"name": "x", "tenant": "b"}).status_code == 404
    assert [line["name"] for line in client.get("/tokens").json()["items"]] == ["mine", "admin a 1"]
    for number in (other["id"], of_all["id"], 999):
        assert client.delete(f"/tokens/{number}").status_code == 404
    assert client.delete(f"/tokens/{mine['id']}").status_code == 204
    assert sum(line["revoked_at"] is None for line in owner.get("/tokens").json()["items"]) == 4


def test_names_are_unique_within_a_tenant_only(ask: Ask, app: Sereno, connection: psycopg.Connection) -> None:
    """Otherwise a 409 would reveal the names of other tenants' tokens, or of operators' tokens."""
    admin, acme, globex = ask("admin"), ask("admin", tenant="acme"), ask("admin", tenant="globex")
    made = [client.post("/tokens", json={"name": "payroll"}) for client in (admin, acme, globex)]
    assert [answer.status_code for answer in made] == [201, 201, 201]
    assert [client.post("/tokens", json={"name": "payroll"}).status_code for client in (admin, acme)] == [409, 409]
    with pytest.raises(Refused, match="3 tokens are named 'payroll'"):
        app.database.run(revoke("payroll", actor="test"))
    living = "select count(*) from sereno.tokens where name = 'payroll' and revoked_at is null"
    assert one(connection, living) == 3
    number = made[1].json()["token"]["id"]
    assert globex.delete(f"/tokens/{number}").status_code == 404
    assert acme.delete(f"/tokens/{number}").status_code == 204
    assert one(connection, "select detail ->> 'tenant' from sereno.audit where action = 'token.revoke'") == "acme"
    app.database.run(revoke(str(made[2].json()["token"]["id"]), actor="test"))
    assert app.database.run(revoke("payroll", actor="test")) == "payroll"
    assert one(connection, living) == 0


@pytest.mark.slow
def test_a_numeric_name_does_not_revoke_another_token(ask: Ask, app: Sereno, connection: psycopg.Connection) -> None:
    client = ask("admin")
    mine = client.post("/tokens", json={"name": "mine"}).json()["token"]["id"]
    assert client.post("/tokens", json={"name": str(mine)}).status_code == 422
    connection.execute(
        "insert into sereno.tokens (name, hash, role, created_by) values (%s, 'x', 'viewer', 'an older version')",
        [str(mine)],
    )
    assert client.delete(f"/tokens/{mine}").status_code == 409
    assert one(connection, "select count(*) from sereno.tokens where revoked_at is not null") == 0


def test_roles_for_tokens(bare_ask: Ask) -> None:
    assert bare_ask(None).get("/tokens").status_code == 401
    for client in (bare_ask("operator"), bare_ask("viewer"), bare_ask("operator", tenant="a")):
        assert client.get("/tokens").status_code == 403
        assert client.post("/tokens", json={"name": "x"}).status_code == 403
        assert client.delete("/tokens/1").status_code == 403


INVALID_TOKENS: list[dict[str, Any]] = [
    {},
    {"name": ""},
    {"name": "x" * 201},
    {"name": "a\x00b"},
    {"name": "n", "role": "root"},
    {"name": "n", "tenant": ""},
    {"name": "n", "tenant": "a\x00b"},
    {"name": "n", "expires_in": "soon"},
    {"name": "n", "expires_in": -1},
    {"name": "n", "expires_in": 1e300},
    {"name": "n", "expires_in": "999999999999999999w"},
]


@pytest.mark.slow
def test_invalid_token_requests_are_refused(
    ask: Ask, connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    client = ask("admin")
    for body in INVALID_TOKENS:
        with subtests.test(body=str(body)[:60]):
            answer = client.post("/tokens", json=body)
            assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
            assert one(connection, "select count(*) from sereno.tokens") == 1


async def test_a_worker_deletes_stored_responses_after_a_day(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def work() -> None: ...

    connection.execute(
        "insert into sereno.idempotency_keys (who, key, request, at)"
        " values ('1', 'old', '', now() - interval '25 hours'), ('1', 'new', '', now() - interval '23 hours')"
    )
    connection.execute(
        "insert into sereno.sign_outs (sign_in, ends_at)"
        " values ('old', now() - interval '25 hours'), ('new', now() - interval '23 hours')"
    )
    async with app.working():
        await auntil(lambda: one(connection, "select count(*) from sereno.idempotency_keys") == 1)
        await auntil(lambda: one(connection, "select count(*) from sereno.sign_outs") == 1)
    assert one(connection, "select key from sereno.idempotency_keys") == "new"
    assert one(connection, "select sign_in from sereno.sign_outs") == "new"
