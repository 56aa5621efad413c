"""The dashboard beside Django over real HTTP: only staff has access, with a Django session."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore

from sereno.access.operations import create
from sereno.contrib.django.project import Project
from tests.facts import one
from tests.plain_http import NO_CERTIFICATES
from tests.serving import Serving

PASSWORD = "correct horse"  # noqa: S105 - of test users
HERE = "/tools/sereno"


@pytest.fixture
def users(shop: Project) -> None:
    User.objects.create_superuser("root", password=PASSWORD)
    User.objects.create_user("ann", password=PASSWORD, is_staff=True)
    User.objects.create_user("bob", password=PASSWORD)


@pytest.fixture
def site(users: None) -> Iterator[str]:
    from tests.contrib.django.shop.asgi import application  # noqa: PLC0415 - it needs the database of the test

    server = Serving(application, log_level="critical", timeout_graceful_shutdown=1)
    yield server.url
    server.stop()


@pytest.fixture
def client(site: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=site, trust_env=False, verify=NO_CERTIFICATES, timeout=30) as made:
        yield made


def sign_in(client: httpx.Client, name: str) -> None:
    """Sign in at the page of Django's admin, as a browser does."""
    found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', client.get("/admin/login/").text)
    assert found is not None
    form = {"username": name, "password": PASSWORD, "csrfmiddlewaretoken": found[1], "next": f"{HERE}/"}
    response = client.post("/admin/login/", data=form)
    assert response.is_redirect == (name != "bob"), "only staff may use the admin"


def role(client: httpx.Client) -> Any:
    response = client.get(f"{HERE}/api/v1/me")
    return response.json()["role"] if response.status_code == 200 else response.status_code


@pytest.mark.slow
@pytest.mark.parametrize(("name", "expected"), [("root", "admin"), ("ann", "operator"), ("bob", 401)])
def test_staff_is_signed_in_by_the_django_session(client: httpx.Client, name: str, expected: Any) -> None:
    assert role(client) == 401
    sign_in(client, name)
    assert role(client) == expected
    page = client.get(f"{HERE}/jobs", headers={"accept": "text/html"})
    assert page.status_code == (307 if name == "bob" else 200)
    for found in re.findall(r'(?:href|src)="([^":]+\.(?:css|js))"', page.text):
        assert client.get(f"{HERE}/{found.removeprefix('./')}").status_code == 200
    assert ("<script" in page.text) == (name != "bob")
    client.post("/admin/logout/", data={"csrfmiddlewaretoken": client.cookies["csrftoken"]})
    assert role(client) == 401


@pytest.mark.slow
def test_a_visitor_is_redirected_to_the_sign_in_page(client: httpx.Client) -> None:
    response = client.get(f"{HERE}/jobs?q=state:dead&x=1", headers={"accept": "text/html,*/*"})
    assert response.headers["location"] == "/admin/login/?next=/tools/sereno/jobs%3Fq%3Dstate%3Adead%26x%3D1"
    assert response.content == b""
    assert client.get(f"{HERE}/api/v1/jobs").status_code == 401, "an API client gets the status"
    assert client.get(HERE).headers["location"] == "sereno/"
    assert client.get("/tools/serenopark").status_code == 404, "Django handles other paths"


def test_forged_cookies_and_headers_are_refused(client: httpx.Client, shop: Project) -> None:
    root = User.objects.get(username="root")
    token = shop.database.run(create("ci", "admin", actor="test")).secret
    forged: list[dict[str, str]] = [
        {"cookie": "sessionid=x"},
        {"cookie": f"sessionid={'a' * 32}"},
        {"cookie": 'sessionid="{\\"_auth_user_id\\": 1}"'},
        {"cookie": "sessionid=' or 1=1 --"},
        {"cookie": "sereno=v1.1.9999999999.AAAA"},
        {"x-forwarded-user": "root", "remote-user": "root", "x-remote-user": "root"},
        {"authorization": f"Bearer {token}"},
    ]
    # A session with a user id, but without the hash that only a sign-in writes.
    half = SessionStore()
    half["_auth_user_id"] = str(root.pk)
    half["_auth_user_backend"] = "django.contrib.auth.backends.ModelBackend"
    half["_auth_user_hash"] = "0" * 64
    half.create()
    forged.append({"cookie": f"sessionid={half.session_key}"})
    for headers in forged:
        assert client.get(f"{HERE}/api/v1/me", headers=headers).status_code == 401, headers


def test_a_session_ends_when_the_password_or_the_staff_flag_changes(client: httpx.Client) -> None:
    sign_in(client, "ann")
    assert role(client) == "operator"
    User.objects.filter(username="ann").update(is_staff=False)
    assert role(client) == 401
    User.objects.filter(username="ann").update(is_staff=True, is_active=False)
    assert role(client) == 401
    ann = User.objects.get(username="ann")
    ann.is_active = True
    ann.save()
    assert role(client) == "operator"
    ann.set_password("another")
    ann.save()
    assert role(client) == 401


def test_a_cross_site_request_changes_nothing(client: httpx.Client, connection: psycopg.Connection) -> None:
    sign_in(client, "root")
    place = f"{HERE}/api/v1/queues/default/pause"
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
        assert client.post(place, json={}, headers=headers).status_code == 403
    assert one(connection, "select count(*) from sereno.pauses") == 0
    assert client.post(place, json={}, headers={"sec-fetch-site": "same-origin"}).is_success
    assert one(connection, "select paused_by from sereno.pauses") == "root"


def test_the_live_stream_is_not_buffered(client: httpx.Client) -> None:
    sign_in(client, "ann")
    with client.stream("GET", f"{HERE}/api/v1/stream", headers={"accept": "text/event-stream"}) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        assert next(lines) == "retry: 2000"
        assert next(line for line in lines if line.startswith("data:"))


def test_an_order_and_its_job_commit_together(client: httpx.Client, connection: psycopg.Connection) -> None:
    assert client.get("/buy/?regret=1").status_code == 200
    assert one(connection, "select count(*) from sereno.jobs") == 0
    job = client.get("/buy/").json()["job"]
    assert str(one(connection, "select id from sereno.jobs")) == job
