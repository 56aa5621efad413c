"""Every page with every kind of user: roles are enforced, and tenants are isolated. All tests share their rows."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from sereno import Sereno
from sereno.access.identity import ROLES
from tests.server.api.conftest import Ask, Served
from tests.server.api.world import Things, fill, fill_over_http
from tests.server.web.shared_site import app, ask, connection, database_url, served
from tests.server.web.world import RegisteredPage, addresses, pages

__all__ = ["app", "ask", "connection", "database_url", "served"]

# Pages that have to show a tenant's own rows; otherwise the tests would prove nothing.
SHOWN_TO_TENANTS = {"/jobs", "/schedules", "/schedule"}


@pytest.fixture(scope="module")
def ann() -> Things:
    return Things("ann-tenant", "canary-ann")


@pytest.fixture(scope="module")
def bob() -> Things:
    return Things("bob-tenant", "canary-bob")


@pytest.fixture(scope="module")
def registered(app: Sereno, ann: Things, bob: Things, ask: Ask) -> list[RegisteredPage]:
    """The pages of a server with rows of both tenants."""
    fill(app, ann, bob)
    fill_over_http(ask("admin"), ann, bob)
    return pages(app)


def page_client(ask: Ask, served: Served, role: str | None, tenant: str | None = None) -> httpx.Client:
    """Return a client for the pages instead of the API."""
    client = ask(role, tenant)
    client.base_url = httpx.URL(served.url)
    return client


@pytest.mark.slow
def test_requests_without_a_token_are_redirected_to_sign_in(
    registered: list[RegisteredPage], ann: Things, ask: Ask, served: Served
) -> None:
    anonymous = page_client(ask, served, None)
    for page in registered:
        for address, _ in addresses(page, ann):
            answer = anonymous.get(address)
            assert ann.canary not in answer.text
            if page.is_open:
                assert answer.status_code == 200, address
                continue
            assert answer.status_code == 303, (address, answer.text)
            target = urlsplit(answer.headers["location"])
            assert target.path == "./sign-in"
            assert parse_qs(target.query, keep_blank_values=True)["next"] == [address.lstrip("/")]


@pytest.mark.parametrize("all_roles", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_roles_are_enforced(
    registered: list[RegisteredPage], ann: Things, ask: Ask, served: Served, all_roles: bool
) -> None:
    """With each role, or with the lowest that a page allows and those that it refuses."""
    for role in ROLES:
        client = page_client(ask, served, role)
        for page in registered:
            for address, _ in addresses(page, ann):
                is_allowed = ROLES.index(role) >= ROLES.index(page.role)
                if is_allowed and role != page.role and not all_roles:
                    continue
                answer = client.get(address)
                if page.is_open:
                    continue
                hint = "add its query to tests/server/web/world.py" if is_allowed else ""
                assert answer.status_code == (200 if is_allowed else 403), (role, address, hint, answer.text[:3000])
                assert answer.headers["content-type"] == "text/html; charset=utf-8"
                assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_no_page_contains_data_of_another_tenant(
    registered: list[RegisteredPage], ann: Things, bob: Things, ask: Ask, served: Served
) -> None:
    for role in ROLES:
        client = page_client(ask, served, role, tenant=bob.tenant)
        for page in registered:
            for address, query in addresses(page, ann):
                answer = client.get(address)
                assert answer.status_code < 500, (address, answer.text)
                assert not ann.is_in(_without(answer.text + str(dict(answer.headers)), query)), (address, answer.text)
                if not page.is_of_tenants and not page.is_open:
                    assert answer.status_code == 403, address


@pytest.mark.slow
def test_rows_of_another_tenant_are_treated_as_missing(
    registered: list[RegisteredPage], ann: Things, bob: Things, ask: Ask, served: Served
) -> None:
    nothing = Things(ann.tenant, "canary-zoe", 7_000_001, 7_000_002, 7_000_003, 7_000_004, 7_000_005)
    client = page_client(ask, served, "admin", tenant=bob.tenant)
    for page in registered:
        theirs, missing = (list(addresses(page, things)) for things in (ann, nothing))
        for (one, _), (other, _) in zip(theirs, missing, strict=True):
            assert client.get(one).status_code == client.get(other).status_code, one


@pytest.mark.slow
def test_a_tenant_sees_its_own_rows(registered: list[RegisteredPage], ann: Things, ask: Ask, served: Served) -> None:
    client = page_client(ask, served, "viewer", tenant=ann.tenant)
    seen = set()
    for page in registered:
        if page.is_of_tenants:
            for address, query in addresses(page, ann):
                answer = client.get(address)
                assert answer.status_code in (200, 303), (address, answer.text)
                seen |= {page.path} if ann.canary in _without(answer.text, query) else set()
    assert SHOWN_TO_TENANTS - seen == set()


@pytest.mark.slow
def test_invalid_queries_cause_no_internal_error(
    registered: list[RegisteredPage], ann: Things, ask: Ask, served: Served
) -> None:
    client = page_client(ask, served, "admin")
    names = ("after", "before", "event", "from", "id", "job", "key", "name", "q", "range", "span", "state", "tenant")
    for page in registered:
        for value in ("", "0", "-1", "9" * 40, "1e9", "\x00", "'", '"', "%", "state:", "é" * 500):
            answer = client.get(page.path, params=dict.fromkeys(names, value))
            assert answer.status_code < 500, (page.path, value[:20], answer.text[:3000])


def _without(text: str, query: dict[str, Any]) -> str:
    """Return the page without the values of the request, plain and URL-encoded."""
    values = [str(value) for value in query.values()]
    for sent in sorted([*values, *(value.partition(":")[2] for value in values)], key=len, reverse=True):
        for form in (sent, str(httpx.QueryParams({"x": sent}))[2:]):
            text = text.replace(form, "…") if form else text
    return text
