"""Health probes need no token and reveal only whether the server is live and ready."""

from collections.abc import Callable

import httpx
import psycopg
import pytest

from tests.facts import until
from tests.server.api.conftest import PLAIN, Served


def test_probes_need_no_token(bare_served: Served) -> None:
    for path in ("livez", "readyz"):
        answer = httpx.get(f"{bare_served.url}/{path}", **PLAIN)
        assert (answer.status_code, answer.text) == (200, "ok\n")


@pytest.mark.slow
def test_a_server_without_its_database_is_live_but_not_ready(
    serve: Callable[..., Served], connection: psycopg.Connection
) -> None:
    served = serve()
    assert httpx.get(f"{served.url}/readyz", **PLAIN).status_code == 200
    with connection.transaction():
        connection.execute("lock table sereno.migrations in access exclusive mode")
        until(lambda: httpx.get(f"{served.url}/readyz", **PLAIN).status_code == 503)
        assert httpx.get(f"{served.url}/livez", **PLAIN).status_code == 200
    until(lambda: httpx.get(f"{served.url}/readyz", **PLAIN).status_code == 200)
