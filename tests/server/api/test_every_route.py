"""Every operation of the OpenAPI document with every kind of user: roles are enforced, and tenants are isolated."""

from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest

from sereno import Sereno
from sereno.access.identity import ROLES
from sereno.access.operations import create, revoke
from sereno.channels.email import Email
from tests.server.api.conftest import PLAIN, Ask, Document, Served
from tests.server.api.world import Operation, Things, fill, fill_over_http, operations, requests, send


def _fill(app: Sereno, ask: Ask) -> tuple[Things, Things]:
    both = Things("ann-tenant", "canary-ann"), Things("bob-tenant", "canary-bob")
    fill(app, *both)
    fill_over_http(ask("admin"), *both)
    return both


@pytest.fixture(scope="module")
def tenants(shared_app: Sereno, shared_ask: Ask) -> tuple[Things, Things]:
    return _fill(shared_app, shared_ask)


@pytest.fixture(scope="module")
def ann(tenants: tuple[Things, Things]) -> Things:
    return tenants[0]


@pytest.mark.slow
def test_every_operation_has_a_request_here_and_declares_its_role(document: Document) -> None:
    named = {operation.name: operation for operation in operations(document)}
    known = requests(Things("ann-tenant", "canary-ann"))
    assert sorted(named.keys() - known.keys()) == [], "add its request to tests/server/api/world.py"
    assert sorted(known.keys() - named.keys()) == [], "there is no such operation any more"
    for operation in named.values():
        assert operation.role in (*ROLES, None), operation.name
        assert isinstance(operation.about["x-of-tenants"], bool), operation.name
        # Only the callbacks of providers, which are signed, need no token.
        assert operation.role is not None or operation.path.startswith("/callbacks/"), operation.name


@pytest.fixture(scope="module")
def invalid_credentials(shared_app: Sereno, shared_connection: psycopg.Connection) -> dict[str, dict[str, str]]:
    """Headers without a valid token."""
    run = shared_app.database.run
    revoked, expired = (run(create(name, "admin", expires_in="1h", actor="test")).secret for name in ("gone", "late"))
    run(revoke("gone", actor="test"))
    shared_connection.execute("update sereno.tokens set expires_at = sereno.now() - interval '1 s' where name = 'late'")
    return {
        "no credentials": {},
        "revoked": {"Authorization": f"Bearer {revoked}"},
        "expired": {"Authorization": f"Bearer {expired}"},
        "an unknown token": {"Authorization": "Bearer srn_" + "x" * 32},
        "a malformed token": {"Authorization": "Bearer 12345"},
        "another scheme": {"Authorization": f"Basic {expired}"},
        "a made-up cookie": {"Cookie": "sereno=v2.1.9999999999." + "A" * 16 + "." + "A" * 43},
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "last"), [pytest.param(0, 2, id="some"), pytest.param(2, 7, id="others", marks=pytest.mark.slow)]
)
def test_requests_without_a_valid_token_are_refused(
    document: Document,
    ann: Things,
    shared_served: Served,
    invalid_credentials: dict[str, dict[str, str]],
    first: int,
    last: int,
) -> None:
    for who, headers in list(invalid_credentials.items())[first:last]:
        with httpx.Client(base_url=f"{shared_served.url}/api/v1", headers=headers, **PLAIN) as client:
            for operation in operations(document):
                answer = _request(client, operation, ann)
                if operation.role is None:
                    assert answer.status_code != 401, operation.name
                    continue
                assert answer.status_code == 401, (operation.name, who, answer.text)
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.headers["www-authenticate"] == "Bearer"
                assert not ann.is_in(answer.text)


def test_requests_without_the_role_are_refused(
    document: Document, ann: Things, shared_ask: Ask, shared_connection: psycopg.Connection
) -> None:
    clients = {role: shared_ask(role) for role in ROLES}
    of_tenant = {role: shared_ask(role, tenant=ann.tenant) for role in ROLES}
    before = _rows(shared_connection)
    for operation in operations(document):
        if operation.role is None:
            continue
        lower = ROLES[: ROLES.index(operation.role)]
        refused = [clients[role] for role in lower] + [of_tenant[role] for role in lower]
        refused += [] if operation.is_of_tenants else list(of_tenant.values())
        for client in refused:
            answer = _request(client, operation, ann)
            assert answer.status_code == 403, (operation.name, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            assert ann.canary not in answer.text
    assert _rows(shared_connection) == before, "a user without the role has changed something"


@pytest.mark.slow
def test_requests_with_the_role_are_accepted(document: Document, app: Sereno, ask: Ask) -> None:
    """The lowest sufficient role succeeds; higher ones are authorized, even if the row is gone by then."""
    app.override(public_url="https://post.example.com")
    app.confirm_addresses(Email(host="127.0.0.1", sender="post@example.com"))
    app.database.run(app.notifications.declare())
    ann, _ = _fill(app, ask)
    clients = {role: ask(role) for role in ROLES}
    for operation in operations(document):
        lowest = 0 if operation.role is None else ROLES.index(operation.role)
        first, *others = [_request(clients[role], operation, ann) for role in ROLES[lowest:]]
        assert first.is_success, (operation.name, first.status_code, first.text)
        for answer in others:
            assert answer.status_code not in (401, 403), (operation.name, answer.text)
            assert str(answer.status_code) in operation.about["responses"], (operation.name, answer.text)


def test_no_response_contains_data_of_another_tenant(
    document: Document, tenants: tuple[Things, Things], shared_ask: Ask, shared_connection: psycopg.Connection
) -> None:
    ann, bob = tenants[0], shared_ask("admin", tenant=tenants[1].tenant)
    before = _rows(shared_connection)
    for operation in operations(document):
        if not operation.is_of_tenants:
            continue
        for request in _request_variants(operation, requests(ann)[operation.name], ann, document):
            answer = send(bob, operation, request)
            assert answer.status_code < 500, (operation.name, answer.text)
            response = _without(answer.text + str(dict(answer.headers)), request)
            assert not ann.is_in(response), (operation.name, request, answer.text)
    after = _rows(shared_connection)
    lost = {table: rows - after[table] for table, rows in before.items()}
    assert {table: rows for table, rows in lost.items() if any(map(ann.is_in, rows))} == {}, "bob changed rows of ann"


@pytest.mark.slow
def test_rows_of_another_tenant_are_treated_as_missing(
    document: Document, tenants: tuple[Things, Things], shared_ask: Ask
) -> None:
    """Only an operation that writes a key reveals that the key exists."""
    ann, bob = tenants[0], shared_ask("admin", tenant=tenants[1].tenant)
    absent = Things(ann.tenant, "canary-zoe", 7_000_001, 7_000_002, 7_000_003, 7_000_004, 7_000_005)
    for operation in operations(document):
        if operation.is_of_tenants and operation.role and operation.method != "PUT" and "{" in operation.path:
            theirs, missing = (_request(bob, operation, things) for things in (ann, absent))
            assert theirs.status_code == missing.status_code, (operation.name, theirs.text, missing.text)


@pytest.mark.slow
def test_a_tenant_sees_its_own_rows(document: Document, ann: Things, shared_ask: Ask) -> None:
    """Otherwise the tests above would prove nothing."""
    client = shared_ask("admin", tenant=ann.tenant)
    seen = []
    for operation in operations(document):
        if operation.is_of_tenants and operation.method == "GET":
            answer = _request(client, operation, ann)
            assert answer.is_success, (operation.name, answer.text)
            seen += [operation.name] if ann.canary in _without(answer.text, requests(ann)[operation.name]) else []
    assert {
        "GET /jobs", "GET /jobs/{job_id}", "GET /pauses", "GET /schedules", "GET /schedules/{key}", "GET /tokens",
        "GET /events", "GET /events/{event_id}", "GET /deliveries", "GET /recipients", "GET /recipients/{key}",
    } <= set(seen)  # fmt: skip


def _request(client: httpx.Client, operation: Operation, things: Things) -> httpx.Response:
    return send(client, operation, requests(things)[operation.name])


def _request_variants(
    operation: Operation, request: dict[str, Any], things: Things, document: Document
) -> Iterator[dict[str, Any]]:
    """Yield the request as it is, without its tenant, and with the tenant in each place that accepts one."""
    yield request
    params = request.get("params", {})
    if "tenant" in params:
        yield request | {"params": {name: value for name, value in params.items() if name != "tenant"}}
    elif operation.takes_in_query("tenant"):
        yield request | {"params": params | {"tenant": things.tenant}}
    if "json" in request and "tenant" in _body_fields(operation, document):
        yield request | {"json": request["json"] | {"tenant": things.tenant}}


def _body_fields(operation: Operation, document: Document) -> set[str]:
    schema = operation.about["requestBody"]["content"]["application/json"]["schema"]
    options = [schema, *schema.get("anyOf", ())]
    names = [each["$ref"].rpartition("/")[2] for each in options if "$ref" in each]
    return {field for name in names for field in document["components"]["schemas"][name]["properties"]}


def _without(text: str, request: Any) -> str:
    """Return the text of a response without the values of its request."""
    for sent in sorted(_texts(request), key=len, reverse=True):
        text = text.replace(sent, "…")
    return text


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _rows(connection: psycopg.Connection) -> dict[str, set[str]]:
    """Return the state of the database, without rows about the requests themselves."""
    tables = connection.execute(
        "select relname from pg_class join pg_namespace n on n.oid = relnamespace "
        "where nspname = 'sereno' and relkind = 'r' and relname not in ('tokens', 'answers')"
    ).fetchall()
    return {
        table: {str(row[0]) for row in connection.execute(f"select t::text from sereno.{table} t".encode())}
        for (table,) in tables
    }
