"""The OpenAPI document is accurate: every response is as documented, and none is an internal error."""

from typing import Any

import psycopg
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from sereno import Sereno
from tests.server.api.conftest import Ask, Document, Served
from tests.server.api.world import Operation, Things, fill, fill_over_http, operations

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]


@pytest.fixture
def tenant(app: Sereno, ask: Ask, connection: psycopg.Connection) -> str:
    """Create rows for the requests; no generated number is the id of the token in use."""
    connection.execute("select setval(pg_get_serial_sequence('sereno.tokens', 'id'), 3000000000000000000)")
    ann = Things("a", "canary-ann")
    fill(app, ann)
    fill_over_http(ask("admin"), ann)
    return ann.tenant


# `examples` is the number of requests per operation.
@pytest.mark.parametrize(
    "examples", [pytest.param(2, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.storm)]
)
@pytest.mark.parametrize("of_tenant", [False, True], ids=["of all tenants", "of one tenant"])
def test_every_response_is_as_documented(
    served: Served, ask: Ask, document: Document, tenant: str, of_tenant: bool, examples: int
) -> None:
    client = ask("admin", tenant=tenant if of_tenant else None)
    token = {"Authorization": client.headers["authorization"]}
    schema = schemathesis.openapi.from_dict(document)
    failures: list[str] = []
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]  # a document that cannot be read fails here
        if of_tenant and not operation.definition.raw["x-of-tenants"]:
            continue
        try:
            _exercise(operation, examples, f"{served.url}/api/v1", token)
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - all failures are reported, not only the first
            failures.append(f"{operation.label}: {_message(error)}")
    assert failures == [], "\n\n".join(failures)
    assert client.get("/me").status_code == 200, "a request revoked the token, so the test proves nothing"


def _exercise(operation: Any, examples: int, url: str, token: dict[str, str]) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        # Clients remove these segments and the ones before them, which gives another path.
        assume(not {".", ".."} & set((case.path_parameters or {}).values()))
        response = case.call(base_url=url, headers=token, timeout=30)
        case.validate_response(response, checks=CHECKS)

    run()


def _message(error: BaseException) -> str:
    parts = getattr(error, "exceptions", None)
    return "; ".join(map(_message, parts)) if parts else f"{error}"[:900]


def test_every_operation_is_described(document: Document) -> None:
    found: list[Operation] = list(operations(document))
    assert len(found) > 5
    for operation in found:
        assert operation.about.get("summary"), operation.name
        assert operation.about.get("description", "").rstrip().endswith((".", ")")), operation.name
        assert operation.about["tags"], operation.name
    ids = [operation.about["operationId"] for operation in found]
    assert len(set(ids)) == len(ids)
