"""Sign-in needs a valid token, and redirects lead only to pages of this server."""

from collections.abc import Callable, Iterator
from urllib.parse import urljoin, urlsplit

import httpx
import psycopg
import pytest
from playwright.sync_api import expect
from starlette.requests import HTTPConnection

from sereno import Sereno
from sereno.access.identity import Principal
from sereno.access.operations import create, revoke
from sereno.server.shared.authenticator import COOKIE, SECURE_COOKIE, SIGNED_IN_SECONDS
from sereno.server.web.sign_in import MOST_TRIES, TRIES_SECONDS, SignInAttempts
from tests.server.api.conftest import Served
from tests.server.web.visit import InspectPage, Visits

OTHER_TARGETS = [
    "//evil.example",
    "///evil.example",
    "////evil.example/%2e%2e",
    "/\\evil.example",
    "\\\\evil.example",
    "\\/evil.example",
    "/\t/evil.example",
    "\t//evil.example",
    "\n//evil.example",
    "/%09/evil.example",
    "//evil.example/..;/",
    "https://evil.example/",
    "https:evil.example",
    "https:/evil.example",
    "hTTps:\\\\evil.example",
    "http://127.0.0.1:1/",
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "java\nscript:alert(1)",
    "javascript&colon;alert(1)//../",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:x",
    "file:///etc/passwd",
    "//[",
    "//[::1",
    "http://[",
    "//user@evil.example",
    "@evil.example/x",
    "%2f%2fevil.example",
    "%2F%2Fevil.example/x",
    "%5c%5cevil.example",
    "..",
    "../",
    "../../elsewhere",
    "./../elsewhere",
    "jobs/../../elsewhere",
    "jobs/%2e%2e/%2e%2e/elsewhere",
    "%2e%2e/elsewhere",
    ".%2e/elsewhere",
    "%2e%2e%2felsewhere",
    "jobs/..\\..\\elsewhere",
    "\u2028//evil.example",
    "\u202e//evil.example",
    "\u3002\u3002/evil.example",
    "\uff0f\uff0fevil.example",
    "\x00//evil.example",
    "jobs\r\nSet-Cookie: x=y",
]
OWN_PAGES = [
    "",
    "jobs",
    "jobs?q=state%3Adead+tenant%3Ar-1&job=5",
    "schedule?key=a%2Fb%2F..%2Fc",
    "jobs?q=//evil.example",
]


@pytest.fixture
def secret(app: Sereno) -> str:
    return app.database.run(create("ann", "operator", actor="test")).secret


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=30, trust_env=False) as made:
        yield made


def _sign_in(client: httpx.Client, secret: str, **more: str) -> httpx.Response:
    return client.post("/sign-in", data={"token": secret, **more})


@pytest.mark.quick
def test_a_sign_in_leads_to_the_requested_page(
    browse: Visits, secret: str, site: Served, inspect_page: InspectPage
) -> None:
    page = browse("?range=6h", role=None)
    expect(page).to_have_title("Sign in · sereno")
    inspect_page(page, "sign-in")
    expect(page.get_by_label("Token")).to_be_focused()
    page.get_by_label("Token").fill(f"  {secret} ")
    page.keyboard.press("Enter")
    expect(page).to_have_title("Now · sereno")
    assert page.url == f"{site.url}/?range=6h"
    expect(page.locator("aside .who")).to_have_text("ann · operator")


@pytest.mark.slow
def test_a_wrong_token_gets_a_message(browse: Visits, inspect_page: InspectPage) -> None:
    page = browse("sign-in", role=None, dark=True, width=375)
    page.get_by_label("Token").fill("srn_" + "x" * 32)
    browse.forgive("status of 403")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("This token is invalid")
    expect(page.get_by_label("Token")).to_have_value("")
    inspect_page(page, "sign-in-wrong")


def test_revoked_and_expired_tokens_are_refused(
    app: Sereno, client: httpx.Client, connection: psycopg.Connection
) -> None:
    gone = app.database.run(create("gone", "admin", actor="test")).secret
    late = app.database.run(create("late", "admin", expires_in="1h", actor="test")).secret
    app.database.run(revoke("gone", actor="test"))
    connection.execute("update sereno.tokens set expires_at = sereno.now() - interval '1 s' where name = 'late'")
    for token in (gone, late, "", "srn_", "x" * 3000, "' or 1=1 --", "srn_" + "é" * 32):
        answer = _sign_in(client, token)
        assert answer.status_code == 403, token
        assert COOKIE not in answer.cookies
        assert token[4:] == "" or token not in answer.text
    assert client.get("/").headers["location"] == "./sign-in?next="


def test_a_signed_in_user_is_redirected(client: httpx.Client, secret: str) -> None:
    assert _sign_in(client, secret).status_code == 303
    answer = client.get("/sign-in", params={"next": "jobs?q=x"})
    assert (answer.status_code, answer.headers["location"]) == (303, "./jobs?q=x")


@pytest.mark.slow
def test_a_revoked_token_ends_the_sign_in(
    app: Sereno, client: httpx.Client, secret: str, serve: Callable[..., Served]
) -> None:
    _sign_in(client, secret)
    assert client.get("/").status_code == 200
    app.database.run(revoke("ann", actor="test"))
    # Another server, which has not cached the token.
    other = serve()
    cookie = {"Cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
    assert httpx.get(f"{other.url}/", headers=cookie, timeout=30, trust_env=False).status_code == 303


@pytest.mark.slow
def test_the_cookie_is_for_this_host_only(client: httpx.Client, secret: str) -> None:
    cookie = _sign_in(client, secret).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert f"max-age={SIGNED_IN_SECONDS}" in cookie
    assert "secure" not in cookie, "over HTTP, a browser drops a secure cookie"
    assert "domain" not in cookie
    assert secret.lower() not in cookie


def test_over_tls_the_cookie_is_secure(app: Sereno, client: httpx.Client, secret: str) -> None:
    """A trusted proxy reports TLS; the header of other clients is ignored."""
    for trusted, is_secure in ((None, False), (["10.0.0.0/8"], False), (["127.0.0.1"], True)):
        app.override(trusted_proxies=trusted)
        signed_in = client.post("/sign-in", data={"token": secret}, headers={"X-Forwarded-Proto": "https"})
        assert ("secure" in signed_in.headers["set-cookie"].lower()) is is_secure, trusted


def test_over_tls_only_a_host_prefixed_cookie_is_accepted(app: Sereno, client: httpx.Client, secret: str) -> None:
    """Another host of the same domain, or a page without TLS, can set any cookie except one with __Host-."""
    app.override(trusted_proxies=["127.0.0.1"])
    over_tls = {"X-Forwarded-Proto": "https"}
    cookies = {}
    for name, headers in ((COOKIE, {}), (SECURE_COOKIE, over_tls)):
        cookie = client.post("/sign-in", data={"token": secret}, headers=headers).headers["set-cookie"]
        client.cookies.clear()
        assert cookie.startswith(f"{name}=v2.")
        cookies[name] = cookie.partition("=")[2].partition(";")[0]
        parts = {part.strip().lower() for part in cookie.split(";")}
        assert {"path=/", "httponly"} <= parts
        assert not any(part.startswith("domain") for part in parts)
    for headers, right, wrong in (({}, COOKIE, SECURE_COOKIE), (over_tls, SECURE_COOKIE, COOKIE)):
        for value in cookies.values():
            assert client.get("/api/v1/me", headers=headers | {"Cookie": f"{right}={value}"}).status_code == 200
            assert client.get("/api/v1/me", headers=headers | {"Cookie": f"{wrong}={value}"}).status_code == 401
    signed_out = client.post("/sign-out", headers=over_tls | {"Cookie": f"{SECURE_COOKIE}={cookies[SECURE_COOKIE]}"})
    cookie = signed_out.headers["set-cookie"]
    assert cookie.startswith(f'{SECURE_COOKIE}=""')
    assert {"Path=/", "Secure", "Max-Age=0"} <= {part.strip() for part in cookie.split(";")}


def test_the_scheme_is_part_of_the_origin(app: Sereno, client: httpx.Client, secret: str) -> None:
    host = str(client.base_url).removeprefix("http://")

    def status(scheme: str, **headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return client.post(
            "/sign-in", data={"token": secret}, headers={"Origin": f"{scheme}://{host}", **named}
        ).status_code

    assert [status(scheme) for scheme in ("http", "https")] == [303, 403]
    # The header of an untrusted client changes nothing.
    assert status("https", X_Forwarded_Proto="https") == 403
    app.override(trusted_proxies=["127.0.0.1"])
    assert [status(scheme, X_Forwarded_Proto="https") for scheme in ("http", "https")] == [403, 303]
    # The public URL decides about the origin.
    app.override(trusted_proxies=[], public_url=f"https://{host}/sereno")
    assert [status(scheme) for scheme in ("http", "https")] == [403, 303]
    app.override(public_url="https://elsewhere.example.org")
    assert [status(scheme) for scheme in ("http", "https")] == [303, 403]


@pytest.mark.slow
def test_redirects_to_other_hosts_are_refused(client: httpx.Client, secret: str) -> None:
    for wanted in OTHER_TARGETS:
        for answer in (_sign_in(client, secret, next=wanted), client.get("/sign-in", params={"next": wanted})):
            assert answer.status_code == 303, wanted
            assert answer.headers["location"] == "./", wanted


def test_redirects_to_own_pages_work(client: httpx.Client, secret: str) -> None:
    for wanted in OWN_PAGES:
        answer = _sign_in(client, secret, next=wanted)
        assert answer.headers["location"] == f"./{wanted}"
        target = urlsplit(urljoin(f"{client.base_url}/deep/sign-in", answer.headers["location"]))
        assert (target.hostname, target.path.startswith("/deep/")) == ("127.0.0.1", True)


def test_the_requested_page_is_escaped(client: httpx.Client) -> None:
    answer = client.get("/sign-in", params={"next": '"><script>alert(1)</script>'})
    assert "<script>alert" not in answer.text
    assert "&lt;script&gt;" in answer.text


def test_wrong_tokens_are_limited(client: httpx.Client, secret: str) -> None:
    for _ in range(MOST_TRIES):
        assert _sign_in(client, "srn_" + "x" * 32).status_code == 403
    answer = _sign_in(client, "srn_" + "x" * 32)
    assert answer.status_code == 429
    assert "too many wrong tokens" in answer.text
    assert COOKIE not in answer.cookies


@pytest.mark.slow
def test_a_valid_token_works_while_others_guess_from_the_same_address(client: httpx.Client, secret: str) -> None:
    for _ in range(MOST_TRIES + 1):
        _sign_in(client, "srn_" + "x" * 32)
    assert _sign_in(client, "srn_" + "x" * 32).status_code == 429
    assert _sign_in(client, secret).status_code == 303
    assert client.get("/").status_code == 200


def _guess(client: httpx.Client, forwarded_for: str) -> int:
    return client.post("/sign-in", data={"token": "x"}, headers={"X-Forwarded-For": forwarded_for}).status_code


def test_a_client_cannot_choose_the_counted_address(client: httpx.Client) -> None:
    assert [_guess(client, f"203.0.113.{last}") for last in range(MOST_TRIES + 1)] == [403] * MOST_TRIES + [429]


def test_behind_a_trusted_proxy_each_client_has_its_own_count(app: Sereno, client: httpx.Client) -> None:
    app.override(trusted_proxies=["127.0.0.1", "10.1.0.0/16"])
    # Addresses before those that the proxies appended were written by the client.
    written = [f"198.51.100.{last}, 203.0.113.7, 10.1.2.3" for last in range(MOST_TRIES + 1)]
    assert [_guess(client, each) for each in written] == [403] * MOST_TRIES + [429]
    for another in ("203.0.113.8", "203.0.113.9:4711", "[2001:db8::1]:4711", "unknown", "203.0.113.7, unknown"):
        assert _guess(client, another) == 403, another


def test_the_addresses_of_one_network_of_ipv6_are_one_client(app: Sereno, client: httpx.Client) -> None:
    """One client has 2^64 addresses."""
    app.override(trusted_proxies=["127.0.0.1"])
    written = [f"2001:db8:0:7::{last:x}" for last in range(MOST_TRIES + 1)]
    assert [_guess(client, each) for each in written] == [403] * MOST_TRIES + [429]
    assert _guess(client, "2001:db8:0:8::1") == 403
    assert [_guess(client, "::ffff:203.0.113.7") for _ in range(MOST_TRIES)] == [403] * MOST_TRIES
    assert [_guess(client, address) for address in ("203.0.113.7", "::ffff:203.0.113.8")] == [429, 403]


def test_attempts_expire_after_a_minute() -> None:
    tries = SignInAttempts()
    for second in range(MOST_TRIES):
        assert tries.wait("10.0.0.1", second) is None
        tries.failed("10.0.0.1", second)
    assert tries.wait("10.0.0.1", MOST_TRIES - 0.5) == 51
    assert tries.wait("10.0.0.2", MOST_TRIES) is None
    assert tries.wait("10.0.0.1", TRIES_SECONDS + 1) is None


def test_a_page_of_another_origin_can_neither_sign_in_nor_out(client: httpx.Client, secret: str) -> None:
    _sign_in(client, secret)
    origins = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Site", "same-site"), ("Origin", "https://evil.example")]
    for name, value in [*origins, ("Origin", "null")]:
        for path in ("/sign-in", "/sign-out"):
            answer = client.post(path, data={"token": secret}, headers={name: value})
            assert answer.status_code == 403, (path, value)
            assert "set-cookie" not in answer.headers


@pytest.mark.slow
def test_signing_out_removes_the_cookie(browse: Visits, secret: str, site: Served) -> None:
    page = browse("")
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_title("Sign in · sereno")
    assert [each for each in page.context.cookies() if each.get("name") == COOKIE] == []
    page.goto(f"{site.url}/")
    expect(page).to_have_title("Sign in · sereno")


@pytest.mark.slow
def test_a_copy_of_the_cookie_is_invalid_after_signing_out(
    app: Sereno, client: httpx.Client, secret: str, serve: Callable[..., Served], connection: psycopg.Connection
) -> None:
    app.override(secret="s" * 40)
    copies = []
    for _ in range(2):
        _sign_in(client, secret)
        copies.append({"Cookie": f"{COOKIE}={client.cookies[COOKIE]}"})
    servers = [str(client.base_url), serve().url]
    client.cookies.clear()

    def status(url: str, copy: dict[str, str]) -> int:
        return httpx.get(f"{url}/api/v1/me", headers=copy, timeout=30, trust_env=False).status_code

    assert status(servers[0], copies[0]) == 200
    signed_out = client.post("/sign-out", headers=copies[0])
    assert (signed_out.status_code, signed_out.headers["location"]) == (303, "./sign-in")
    # At this server, at another one, and at one that starts later.
    assert [status(url, copies[0]) for url in (*servers, serve().url)] == [401, 401, 401]
    # Another sign-in with the same token stays valid.
    assert [status(url, copies[1]) for url in servers] == [200, 200]
    # A forged cookie writes nothing.
    client.post("/sign-out", headers={"Cookie": f"{COOKIE}=v2.1.9999999999.{'A' * 16}.{'A' * 43}"})
    assert connection.execute("select count(*) from sereno.sign_outs").fetchone() == (1,)


@pytest.mark.slow
def test_a_read_only_server_signs_out_without_writing(
    app: Sereno, client: httpx.Client, secret: str, connection: psycopg.Connection
) -> None:
    _sign_in(client, secret)
    app.override(read_only=True)
    copy = {"Cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
    assert client.post("/sign-out").status_code == 303
    assert client.get("/api/v1/me", headers=copy).status_code == 401
    assert connection.execute("select count(*) from sereno.sign_outs").fetchone() == (0,)


@pytest.mark.slow
def test_a_mounted_server_uses_the_sign_in_of_its_application(serve: Callable[..., Served]) -> None:
    """The application has its own sign-in, so the server's is not offered; its users have their roles."""

    async def authenticate(request: HTTPConnection) -> Principal | None:
        name = request.headers.get("x-their-user")
        return Principal(name, "viewer", tenant=request.headers.get("x-their-tenant")) if name else None

    served = serve(authenticate=authenticate)
    with httpx.Client(base_url=served.url, trust_env=False, timeout=30) as client:
        answer = client.get("/")
        assert answer.status_code == 401
        assert "Sign in to the surrounding application first." in answer.text
        known = client.get("/", headers={"X-Their-User": "<b>ann"})
        assert known.status_code == 200
        assert "&lt;b&gt;ann · viewer" in known.text
        assert "sign-out" not in known.text
        theirs = client.get("/", headers={"X-Their-User": "bob", "X-Their-Tenant": "r 42&x"})
        assert theirs.headers["location"] == "./tenant?name=r+42%26x"
