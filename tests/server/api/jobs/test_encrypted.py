"""Jobs with encrypted arguments over HTTP."""

import json

import psycopg
import pytest

from sereno import Sereno
from sereno.jobs.encryption import MARK, new_key
from sereno.jobs.transitions import cancel
from tests.facts import one
from tests.jobs.job_steps import do
from tests.server.api.conftest import Served, clients_of

CARD = "4111 1111 1111 1234"


@pytest.mark.parametrize("keys", [[new_key("2026b")], None])
def test_the_server_encrypts_or_refuses(
    database_url: str, connection: psycopg.Connection, keys: list[str] | None
) -> None:
    app = Sereno(database_url, encryption_keys=keys)

    @app.task(encrypt=["document"])
    def check(document: str, page: int) -> None: ...

    served = Served(app)
    with clients_of(app, served) as ask:
        client = ask("operator")
        made = client.post("/jobs", json={"task": "check", "arguments": {"document": CARD, "page": 1}})
        if keys is None:
            assert made.status_code == 422
            assert "there is no key: create one with `sereno key new`" in made.json()["detail"]
            assert one(connection, "select count(*) from sereno.jobs") == 0
        else:
            assert made.status_code == 201, made.text
            job = made.json()["id"]
            do(connection, cancel([job], "not needed"))
            shown = client.get(f"/jobs/{job}").json()["job"]
            assert shown["args"]["document"][MARK].startswith("2026b:")
            assert shown["requires"] == {"key": "2026b"}
            other = client.post(f"/jobs/{job}/retry", json={"arguments": shown["args"] | {"page": 2}})
            assert other.status_code == 201, other.text
            raw = one(connection, "select args from sereno.jobs")
            assert raw["document"] != shown["args"]["document"]
            assert check.definition.arguments.decode(json.dumps(raw).encode()) == (CARD, 2)
            # The value is not quoted when it is refused.
            wrong = client.post("/jobs", json={"task": "check", "arguments": {"document": [CARD], "page": 1}})
            assert (wrong.status_code, CARD in wrong.text) == (422, False)
        leaks = "select count(*) from sereno.jobs, sereno.audit where jobs::text || audit::text like %s"
        assert one(connection, leaks, f"%{CARD}%") == 0
    served.stop()
    app.close()
