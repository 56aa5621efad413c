"""Authentication by a token, a cookie, a proxy or the surrounding application, and of requests from this machine."""

import asyncio
import socket
import time
from collections.abc import Callable
from types import SimpleNamespace

import httpx
import psycopg
import pytest
from starlette.requests import HTTPConnection

from sereno import Sereno
from sereno.access.authentication import sign_out
from sereno.access.identity import Principal, make_cookie, read_cookie
from sereno.access.operations import CreatedToken, create, revoke
from sereno.errors import ConfigurationError
from sereno.server.shared import authenticator
from sereno.server.shared.authenticator import COOKIE, FRESH_SECONDS, Authenticator
from sereno.server.shared.proxies import FORWARDING_HEADERS
from tests.facts import advance, until
from tests.server.api.conftest import PLAIN, Served

SECRET = "s" * 40
Serve = Callable[..., Served]


def _token(app: Sereno, role: str = "admin", tenant: str | None = None, **more: str) -> CreatedToken:
    return app.database.run(create("ada", role, tenant=tenant, actor="test", **more))


def _me(served: Served, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return httpx.get(f"{served.url}/api/v1/me", headers=named, **PLAIN)


def _pause(served: Served, **headers: str) -> int:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return httpx.post(f"{served.url}/api/v1/queues/q/pause", headers=named, **PLAIN).status_code


# Tokens


def test_an_invalid_token_is_refused(bare_served: Served, subtests: pytest.Subtests) -> None:
    url = f"{bare_served.url}/api/v1/me"
    for header in ("", "Bearer", "Bearer x", "Bearer srn_", "Basic c3I6bg==", "Bearer srn_é", "Bearer srn_" + "x" * 32):
        with subtests.test(header=header[:20]):
            headers = {b"Authorization": header.encode("latin-1")}
            answer = httpx.get(url, headers=headers, **PLAIN)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert "sereno token create" in answer.json()["detail"]


def test_a_revoked_token_is_refused_within_seconds(app: Sereno, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is cached for FRESH_SECONDS, and not longer."""
    began = time.monotonic()
    clock = SimpleNamespace(monotonic=lambda: began, time=time.time)
    monkeypatch.setattr(authenticator, "time", clock)
    served, made = serve(), _token(app)
    bearer = f"Bearer {made.secret}"
    assert _me(served, Authorization=bearer).json()["name"] == "ada"
    app.database.run(revoke("ada"))
    assert FRESH_SECONDS <= 5
    clock.monotonic = lambda: began + FRESH_SECONDS - 0.1
    assert _me(served, Authorization=bearer).status_code == 200
    clock.monotonic = lambda: began + FRESH_SECONDS + 0.1
    assert _me(served, Authorization=bearer).status_code == 401


@pytest.mark.slow
def test_an_expired_token_is_refused(app: Sereno, serve: Serve, connection: psycopg.Connection) -> None:
    made = _token(app, expires_in="1h")
    bearer = f"Bearer {made.secret}"
    assert _me(serve(), Authorization=bearer).status_code == 200
    advance(connection, 3601)
    # Another server, which has not cached the token.
    assert _me(serve(), Authorization=bearer).status_code == 401


# Cookies


def test_a_cookie_has_the_rights_of_its_token(app: Sereno, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticator, "FRESH_SECONDS", 0.1)
    app.override(secret=SECRET)
    made = _token(app, "operator", "r42")
    cookie = Authenticator(app.database).cookie(Principal("ada", "operator", "r42", made.token.id))
    assert cookie is not None
    sign_in = read_cookie(SECRET.encode(), cookie, time.time())
    assert sign_in is not None
    assert sign_in.token == made.token.id
    served = serve()
    assert _me(served, Cookie=f"{COOKIE}={cookie}").json() == {"name": "ada", "role": "operator", "tenant": "r42"}
    app.database.run(revoke("ada"))
    until(lambda: _me(served, Cookie=f"{COOKIE}={cookie}").status_code == 401)


def test_a_user_without_a_token_gets_no_cookie(app: Sereno) -> None:
    assert Authenticator(app.database).cookie(Principal("ada", "admin")) is None


def test_a_forged_cookie_is_refused(app: Sereno, serve: Serve) -> None:
    app.override(secret=SECRET)
    served, number, soon = serve(), _token(app).token.id, int(time.time()) + 60
    good = make_cookie(SECRET.encode(), number, soon)
    assert _me(served, Cookie=f"{COOKIE}={good}").status_code == 200
    version, token, until_, sign_in, signature = good.split(".")
    for cookie in (
        make_cookie(b"x" * 40, number, soon),
        make_cookie(SECRET.encode(), number, int(time.time()) - 1),
        make_cookie(SECRET.encode(), 999, soon),
        f"{version}.{token}.{int(until_) + 60}.{sign_in}.{signature}",
        f"{version}.{number + 1}.{until_}.{sign_in}.{signature}",
        f"{version}.{token}.{until_}.{'A' * len(sign_in)}.{signature}",
        f"{version}.{token}.{until_}.{sign_in}.{signature[:-1]}",
        f"v3.{token}.{until_}.{sign_in}.{signature}",
        "",
        "x" * 5000,
    ):
        assert _me(served, Cookie=f"{COOKIE}={cookie}").status_code == 401


def test_without_a_secret_cookies_end_with_the_process(app: Sereno, serve: Serve) -> None:
    cookie = Authenticator(app.database).cookie(Principal("ada", "admin", None, _token(app).token.id))
    assert _me(serve(), Cookie=f"{COOKIE}={cookie}").status_code == 401


def test_a_page_of_another_origin_changes_nothing_with_a_cookie(app: Sereno, serve: Serve) -> None:
    app.override(secret=SECRET)
    served, made = serve(), _token(app)
    cookie = f"{COOKIE}={make_cookie(SECRET.encode(), made.token.id, int(time.time()) + 60)}"
    assert _pause(served, Cookie=cookie, Origin="http://evil.example") == 401
    assert _pause(served, Cookie=cookie, Origin="null") == 401
    assert _pause(served, Cookie=cookie, Sec_Fetch_Site="cross-site") == 401
    assert _pause(served, Cookie=cookie, Sec_Fetch_Site="same-site") == 401
    assert _pause(served, Cookie=cookie, Origin=served.url) == 200
    assert _pause(served, Cookie=cookie, Sec_Fetch_Site="same-origin") == 200
    # A program elsewhere that has the token itself is authorized.
    assert _pause(served, Authorization=f"Bearer {made.secret}", Origin="http://evil.example") == 200


# From this machine


def test_an_open_server_accepts_requests_from_this_machine_only(serve: Serve) -> None:
    served = serve(is_open=True)
    assert _me(served).json() == {"name": "local", "role": "admin", "tenant": None}
    port = served.url.rpartition(":")[2]
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert _me(served, Host=host).status_code == 200
    for host in (f"evil.example:{port}", f"localhost.evil.example:{port}", f"127.0.0.1.nip.example:{port}", "10.0.0.1"):
        assert _me(served, Host=host).status_code == 401
        assert _pause(served, Host=host) == 401


def test_a_page_of_another_origin_changes_nothing_on_an_open_server(serve: Serve) -> None:
    served = serve(is_open=True)
    assert _pause(served, Origin="http://evil.example") == 401
    assert _pause(served, Origin="null") == 401
    assert _pause(served, Sec_Fetch_Site="cross-site") == 401
    assert _pause(served, Origin=served.url) == 200
    assert _pause(served) == 200


def test_an_open_server_is_closed_for_good_by_the_first_token(
    app: Sereno, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a token that was revoked before the server looked."""
    began = time.monotonic()
    clock = SimpleNamespace(monotonic=lambda: began, time=time.time)
    monkeypatch.setattr(authenticator, "time", clock)
    served = serve(is_open=True)
    assert _me(served).status_code == 200
    _token(app)
    app.database.run(revoke("ada"))
    clock.monotonic = lambda: began + FRESH_SECONDS + 0.1
    assert _me(served).status_code == 401


# Read-only servers, proxies and applications


@pytest.mark.slow
def test_a_read_only_server_refuses_changes(app: Sereno, serve: Serve) -> None:
    app.override(read_only=True)
    assert _pause(serve(is_open=True)) == 403
    served, bearer = serve(), f"Bearer {_token(app).secret}"
    assert _me(served, Authorization=bearer).status_code == 200
    refused = httpx.post(f"{served.url}/api/v1/queues/q/pause", headers={"Authorization": bearer}, **PLAIN)
    assert refused.status_code == 403
    assert "SERENO_READ_ONLY" in refused.json()["detail"]


def test_a_read_only_server_does_not_record_the_use_of_a_token(
    app: Sereno, serve: Serve, connection: psycopg.Connection
) -> None:
    bearer = f"Bearer {_token(app).secret}"
    app.override(read_only=True)
    assert _me(serve(), Authorization=bearer).status_code == 200
    assert connection.execute("select used_at from sereno.tokens").fetchall() == [(None,)]
    app.override(read_only=False)
    assert _me(serve(), Authorization=bearer).status_code == 200
    assert connection.execute("select used_at is null from sereno.tokens").fetchall() == [(False,)]


def test_a_read_only_server_refuses_tokens_and_sign_ins_that_have_ended(
    app: Sereno, serve: Serve, connection: psycopg.Connection
) -> None:
    app.override(secret=SECRET)
    made = {name: app.database.run(create(name, "viewer", actor="test")) for name in ("valid", "revoked", "expired")}
    app.database.run(revoke("revoked"))
    connection.execute("update sereno.tokens set expires_at = sereno.now() where name = 'expired'")
    cookies = [make_cookie(SECRET.encode(), made["valid"].token.id, int(time.time()) + 60) for _ in range(2)]
    ended = read_cookie(SECRET.encode(), cookies[1], time.time())
    assert ended is not None
    app.database.run(sign_out(ended))
    app.override(read_only=True)
    served = serve()
    statuses = {name: _me(served, Authorization=f"Bearer {one.secret}").status_code for name, one in made.items()}
    assert statuses == {"valid": 200, "revoked": 401, "expired": 401}
    assert [_me(served, Cookie=f"{COOKIE}={cookie}").status_code for cookie in cookies] == [200, 401]


def test_a_proxy_names_the_user(app: Sereno, serve: Serve) -> None:
    app.override(proxy_user_header="X-User", proxy_user_role="operator", trusted_proxies=["127.0.0.1"])
    served = serve()
    assert _me(served, X_User="ada").json() == {"name": "ada", "role": "operator", "tenant": None}
    assert _pause(served, X_User="ada") == 200
    assert _me(served).status_code == 401
    assert _me(served, X_User="").status_code == 401
    bearer = f"Bearer {_token(app, 'viewer').secret}"
    assert _me(served, X_User="eve", Authorization=bearer).json()["role"] == "viewer"


def test_only_a_trusted_proxy_names_the_user(app: Sereno, serve: Serve) -> None:
    app.override(proxy_user_header="X-User", proxy_user_role="operator", trusted_proxies=["10.0.0.0/8"])
    served = serve()
    assert _me(served, X_User="ada").status_code == 401
    assert _me(served, X_User="ada", X_Forwarded_For="10.0.0.1").status_code == 401
    with pytest.raises(ConfigurationError, match="trusted_proxies"):
        app.override(trusted_proxies=[])


def test_a_forwarded_request_is_not_from_this_machine(app: Sereno, serve: Serve) -> None:
    """The client behind a proxy may be anywhere, whether its headers are trusted or not."""
    served = serve(is_open=True)
    for trusted in ([], ["127.0.0.1"]):
        app.override(trusted_proxies=trusted)
        for name in FORWARDING_HEADERS:
            assert _me(served, **{name: "127.0.0.1"}).status_code == 401, name
    assert _me(served).status_code == 200


def test_user_headers_are_ignored_without_a_trusted_proxy(bare_served: Served) -> None:
    assert _me(bare_served, X_User="ada", X_Forwarded_User="ada", Remote_User="ada").status_code == 401


def test_the_surrounding_application_authenticates(app: Sereno, serve: Serve) -> None:
    async def authenticate(request: HTTPConnection) -> Principal | None:
        await asyncio.sleep(0)
        name = request.headers.get("x-session")
        return Principal(name, "operator", "r42") if name else None

    served = serve(authenticate=authenticate)
    assert _me(served, X_Session="ada").json() == {"name": "ada", "role": "operator", "tenant": "r42"}
    assert _pause(served, X_Session="ada") == 403
    # Only the result of `authenticate` counts: a valid token is not accepted.
    assert _me(served, Authorization=f"Bearer {_token(app).secret}").status_code == 401


@pytest.mark.slow
def test_a_page_of_another_origin_changes_nothing_through_the_application(serve: Serve) -> None:
    async def authenticate(request: HTTPConnection) -> Principal | None:
        await asyncio.sleep(0)
        return Principal("ada", "admin") if "session" in request.cookies or "authorization" in request.headers else None

    served = serve(authenticate=authenticate)
    assert _pause(served, Cookie="session=1", Origin="http://evil.example") == 403
    assert _pause(served, Cookie="session=1", Sec_Fetch_Site="cross-site") == 403
    assert _pause(served, Authorization="Basic YTpi", Origin="null") == 403
    assert _me(served, Cookie="session=1", Origin="http://evil.example").status_code == 200
    # A browser never sends this header by itself.
    assert _pause(served, Authorization="Bearer x", Origin="http://evil.example") == 200
    assert _pause(served, Cookie="session=1") == 200


def _raw_status(served: Served, *headers: str, request: str = "GET /api/v1/me") -> int:
    port = int(served.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
        raw.sendall("\r\n".join([f"{request} HTTP/1.1", *headers, "Connection: close", "", ""]).encode())
        return int(raw.recv(4000).split()[1])


@pytest.mark.slow
def test_an_invalid_host_or_origin_is_not_authenticated(app: Sereno, serve: Serve) -> None:
    app.override(secret=SECRET)
    assert _raw_status(serve(is_open=True), "Host: [") == 401
    cookie = make_cookie(SECRET.encode(), _token(app).token.id, int(time.time()) + 60)
    assert _pause(serve(), Cookie=f"{COOKIE}={cookie}", Origin="http://[") == 401


@pytest.mark.slow
def test_a_page_of_another_origin_changes_nothing_through_a_proxy(app: Sereno, serve: Serve) -> None:
    app.override(proxy_user_header="X-User", proxy_user_role="operator", trusted_proxies=["127.0.0.1"])
    served = serve()
    assert _pause(served, X_User="ada", Origin="http://evil.example") == 401
    assert _pause(served, X_User="ada", Sec_Fetch_Site="cross-site") == 401
    assert _pause(served, X_User="ada", Sec_Fetch_Site="same-origin") == 200


async def test_an_open_server_refuses_other_machines(app: Sereno) -> None:
    authenticator = Authenticator(app.database, is_open=True)
    for client, is_accepted in (("127.0.0.1", True), ("::1", True), ("10.0.0.7", False), ("unix", False)):
        scope = {"type": "http", "method": "GET", "headers": [(b"host", b"localhost")], "client": (client, 1)}
        assert (await authenticator.who(HTTPConnection(scope)) is not None) is is_accepted


def test_a_stored_response_is_repeated_only_to_the_same_user(app: Sereno, serve: Serve) -> None:
    app.override(proxy_user_header="X-User", proxy_user_role="operator", trusted_proxies=["127.0.0.1"])
    served, made = serve(), _token(app)
    url, key = f"{served.url}/api/v1/queues/q/pause", {"Idempotency-Key": "k"}
    first = httpx.post(url, headers=key | {"Authorization": f"Bearer {made.secret}"}, **PLAIN)
    other = httpx.post(url, headers=key | {"X-User": str(made.token.id)}, **PLAIN)
    assert (first.json()["changed"], other.json()["changed"]) == (True, False)


def test_a_stored_response_is_not_repeated_to_a_user_of_the_same_name(app: Sereno, serve: Serve) -> None:
    """Names are unique within a tenant only."""

    @app.task
    def work() -> None: ...

    url, made = f"{serve().url}/api/v1/jobs", [_token(app, "operator", tenant) for tenant in ("a", "b")]
    headers = [{"Idempotency-Key": "k", "Authorization": f"Bearer {token.secret}"} for token in made]
    first, other = [httpx.post(url, json={"task": "work"}, headers=each, **PLAIN) for each in headers]
    assert (first.status_code, other.status_code) == (201, 201)
    assert first.json()["id"] != other.json()["id"]


def test_an_admin_sees_the_settings_of_a_read_only_server(app: Sereno, serve: Serve) -> None:
    app.override(read_only=True)
    bearer = {"Authorization": f"Bearer {_token(app).secret}"}
    assert httpx.get(f"{serve().url}/api/v1/settings", headers=bearer, **PLAIN).status_code == 200


def test_a_missing_schema_is_reported_as_unavailable(app: Sereno, serve: Serve, connection: psycopg.Connection) -> None:
    served = serve(is_open=True)
    connection.execute("alter schema sereno rename to elsewhere")
    assert httpx.get(f"{served.url}/api/v1/queues", **PLAIN).status_code == 503


def test_an_unreadable_body_is_refused(serve: Serve, subtests: pytest.Subtests) -> None:
    url, headers = f"{serve(is_open=True).url}/api/v1/queues/q/pause", {"Content-Type": "application/json"}
    for body in (b'{"note": "\xff"}', b"9" * 5000, b"[" * 50_000):
        with subtests.test(body=str(body[:20])):
            answer = httpx.post(url, content=body, headers=headers, **PLAIN)
            assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


def test_a_name_that_no_path_can_hold_is_not_found(serve: Serve) -> None:
    answer = httpx.post(f"{serve(is_open=True).url}/api/v1/queues/a%0Ab/pause", **PLAIN)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
