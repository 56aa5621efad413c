"""Health probes: yes or no, and nothing else, without a token."""

from collections.abc import Callable

import httpx
import psycopg

from tests.facts import until
from tests.server.api.conftest import Served


def test_livez_needs_no_token(served: Served) -> None:
    for path in ("livez", "readyz"):
        answer = httpx.get(f"{served.url}/{path}", timeout=30)
        assert (answer.status_code, answer.text) == (200, "ok\n")


def test_without_a_database_it_is_live_and_not_ready(
    serve: Callable[..., Served], connection: psycopg.Connection
) -> None:
    served = serve()
    assert httpx.get(f"{served.url}/readyz", timeout=30).status_code == 200
    with connection.transaction():
        connection.execute("lock table sereno.migrations in access exclusive mode")
        until(lambda: httpx.get(f"{served.url}/readyz", timeout=30).status_code == 503)
        assert httpx.get(f"{served.url}/livez", timeout=30).status_code == 200
    until(lambda: httpx.get(f"{served.url}/readyz", timeout=30).status_code == 200)
