"""Pages of listed origins can read inboxes with an inbox token, and nothing else."""

import re

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from sereno import Sereno
from sereno.errors import ConfigurationError
from sereno.server import asgi
from sereno.server.api.cors import PREFERENCES
from sereno.settings import Settings, load
from tests.server.api.conftest import PLAIN, Ask, Document, Served
from tests.server.api.world import Things, operations, requests
from tests.server.web.running_server import running

SHOP, OTHER_ORIGIN = "https://shop.example.com", "https://evil.example.com"
PREFLIGHT = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
ALLOWED = "access-control-allow-origin"
INBOX = ("/api/v1/inbox", "/api/v1/inbox/unread", "/api/v1/inbox/mark", "/api/v1/inbox/stream")


@pytest.fixture
def token(app: Sereno) -> str:
    app.override(secret="s" * 32, inbox_origins=[SHOP])
    return app.inbox.token("ada")


def send(served: Served, method: str, path: str, origin: str, **headers: str) -> httpx.Response:
    sent_headers = {"Origin": origin} | {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.request(method, f"{served.url}{path}", headers=sent_headers, **PLAIN)


def test_a_listed_origin_can_read_an_inbox(served: Served, token: str) -> None:
    for path in INBOX:
        preflight = send(served, "OPTIONS", path, SHOP, **PREFLIGHT)
        assert preflight.status_code == 204
        assert preflight.headers[ALLOWED] == SHOP
        assert preflight.headers["access-control-allow-methods"] == "GET, POST"
        assert preflight.headers["access-control-allow-headers"] == "Authorization, Content-Type"
        assert preflight.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in preflight.headers
    found = send(served, "GET", "/api/v1/inbox/unread", SHOP, Authorization=f"Bearer {token}")
    assert (found.json(), found.headers[ALLOWED]) == ({"count": 0}, SHOP)
    assert "access-control-allow-credentials" not in found.headers
    # Errors are readable, too: then the page requests a new token from its own server.
    ended = send(served, "GET", "/api/v1/inbox", SHOP, Authorization="Bearer sri_ended")
    assert (ended.status_code, ended.headers[ALLOWED]) == (401, SHOP)


def test_an_origin_that_is_not_listed_cannot_read_an_inbox(served: Served, token: str) -> None:
    other_origins = (
        OTHER_ORIGIN,
        "null",
        f"{SHOP}.evil.example",
        "http://shop.example.com",
        f"{SHOP}:8443",
        SHOP.upper(),
        f"{SHOP}/",
    )
    for origin in other_origins:
        for path in INBOX:
            refused = send(served, "OPTIONS", path, origin, **PREFLIGHT)
            assert refused.status_code == 405, origin
            assert not [name for name in refused.headers if name.startswith("access-control-")]
        found = send(served, "GET", "/api/v1/inbox/unread", origin, Authorization=f"Bearer {token}")
        assert ALLOWED not in found.headers
        assert "Origin" in found.headers["vary"]


@pytest.mark.slow
def test_a_mounted_server_allows_the_same_origins(app: Sereno, token: str) -> None:
    with running(Starlette(routes=[Mount("/tools/sereno", asgi(app))])) as root:
        headers = {"Origin": SHOP, "Authorization": f"Bearer {token}"}
        for path in INBOX:
            url = f"{root}/tools/sereno{path}"
            preflight = httpx.options(url, headers={"Origin": SHOP, **PREFLIGHT}, **PLAIN)
            assert (preflight.status_code, preflight.headers[ALLOWED]) == (204, SHOP)
            assert httpx.get(url, headers=headers, **PLAIN).headers[ALLOWED] == SHOP
        other = httpx.get(f"{root}/tools/sereno/api/v1/jobs", headers=headers, **PLAIN)
        assert ALLOWED not in other.headers


def test_by_default_no_other_origin_is_allowed(app: Sereno, served: Served) -> None:
    app.override(secret="s" * 32)
    token = app.inbox.token("ada")
    assert send(served, "OPTIONS", INBOX[0], SHOP, **PREFLIGHT).status_code == 405
    assert ALLOWED not in send(served, "GET", INBOX[0], SHOP, Authorization=f"Bearer {token}").headers


@pytest.mark.usefixtures("token")
def test_other_origins_are_allowed_with_inbox_tokens_only(served: Served, ask: Ask) -> None:
    """API tokens and other sign-ins are not accepted, so a page of another origin can read one inbox only."""
    admin = ask("admin")
    for headers in (dict(admin.headers), {}):
        answer = httpx.get(f"{served.url}/api/v1/inbox?recipient=ada", headers=headers | {"Origin": SHOP}, **PLAIN)
        assert ALLOWED not in answer.headers


@pytest.mark.slow
def test_no_other_route_allows_another_origin(served: Served, token: str, document: Document) -> None:
    things = Things("ann-tenant", "canary-ann")
    paths = {
        f"/api/v1{operation.path.format(**requests(things)[operation.name].get('path', {}))}"
        for operation in operations(document)
    }
    pages = ("/", "/jobs", "/sign-in", "/livez", "/api/v1/openapi.json", "/inbox", "/nowhere")
    # The stream of a job: see tests/server/api/jobs/test_job_token.py.
    streams = {path for path in paths if re.fullmatch(r"/api/v1/jobs/\d+/stream", path)}
    # The preference centre has tokens of its own: see test_preference_centre.py.
    theirs = {PREFERENCES, f"{PREFERENCES}/addresses"}
    others = [*sorted(paths - set(INBOX) - streams - theirs), *pages]
    assert len(others) > 60
    assert set(INBOX) <= paths
    with httpx.Client(base_url=served.url, headers={"Origin": SHOP}, **PLAIN) as client:
        for path in others + [f"{each}/" for each in INBOX] + [f"/x{each}" for each in INBOX]:
            for method, more in (("OPTIONS", PREFLIGHT), ("GET", {"Authorization": f"Bearer {token}"})):
                answer = client.request(method, path, headers=more)
                assert not [name for name in answer.headers if name.startswith("access-control-")], (method, path)


def test_any_page_can_load_the_inbox_script(bare_served: Served) -> None:
    first = send(bare_served, "GET", "/inbox.js", OTHER_ORIGIN)
    assert first.status_code == 200
    assert first.headers["content-type"] == "text/javascript; charset=utf-8"
    assert first.headers[ALLOWED] == "*"
    assert first.headers["cross-origin-resource-policy"] == "cross-origin"
    assert first.headers["cache-control"] == "public, max-age=300"
    assert first.headers["content-encoding"] == "gzip"
    again = send(bare_served, "GET", "/inbox.js", OTHER_ORIGIN, If_None_Match=f'"x", {first.headers["etag"]}')
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert again.headers[ALLOWED] == "*"
    assert send(bare_served, "POST", "/inbox.js", OTHER_ORIGIN).status_code == 405


def test_origins_in_settings_are_written_as_browsers_send_them() -> None:
    good = [SHOP, "http://127.0.0.1:8000", "http://[::1]:3000", "https://xn--caf-dma.example"]
    assert Settings(inbox_origins=good).inbox_origins == good
    found, _ = load(environment={"SERENO_INBOX_ORIGINS": f"{SHOP}, http://localhost:3000"})
    assert found.inbox_origins == [SHOP, "http://localhost:3000"]
    for wrong in ("*", "null", f"{SHOP}/", f"{SHOP}/x", "shop.example.com", SHOP.upper(), f"{SHOP}:443", "http://a:80"):
        with pytest.raises(ConfigurationError, match="inbox_origins"):
            Settings(inbox_origins=[wrong])
