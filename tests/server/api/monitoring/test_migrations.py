"""The state of the schema over HTTP: it can be read, but not changed."""

import psycopg

from sereno import Sereno
from sereno.database.migrate import migrations
from tests.server.api.conftest import Ask


def test_applied_and_pending_migrations_are_shown(app: Sereno, ask: Ask, connection: psycopg.Connection) -> None:
    client, known = ask("viewer"), migrations()
    found = client.get("/migrations").json()
    assert (found["schema"], found["is_current"], found["pending"], found["remedy"]) == ("sereno", True, 0, None)
    assert [(line["number"], line["name"]) for line in found["migrations"]] == [
        (each.number, each.name) for each in known
    ]
    assert {line["state"] for line in found["migrations"]} == {"applied"}
    last = known[-1].number
    connection.execute("delete from sereno.migrations where number = %s", [last])
    behind = client.get("/migrations").json()
    assert (behind["is_current"], behind["pending"], behind["migrations"][-1]["state"]) == (False, 1, "pending")
    assert "sereno migrate" in behind["remedy"]
    connection.execute("insert into sereno.migrations (number, name, checksum) values (%s, 'x', 'y')", [last])
    connection.execute("insert into sereno.migrations (number, name, checksum) values (9999, 'later', 'y')")
    changed = client.get("/migrations").json()
    assert [line["state"] for line in changed["migrations"][-2:]] == ["changed", "unknown"]
    assert (changed["is_current"], changed["migrations"][-1]["name"]) == (False, None)
    assert "never edited" in changed["remedy"]


def test_migrations_cannot_be_applied_over_http(bare_ask: Ask) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert bare_ask("admin").request(method, "/migrations").status_code == 405
    assert bare_ask("viewer", tenant="ann").get("/migrations").status_code == 403
