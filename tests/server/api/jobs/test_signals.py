"""Signals over HTTP."""

import psycopg

from tests.facts import one
from tests.server.api.conftest import Ask


def test_an_operator_sends_a_signal_once_per_idempotency_key(ask: Ask, connection: psycopg.Connection) -> None:
    client, key = ask("operator"), {"Idempotency-Key": "payment 7"}
    sent = client.post("/signals", json={"name": "paid:42", "value": {"amount": 7}}, headers=key)
    assert (sent.status_code, sent.json()) == (201, {"id": 1})
    again = client.post("/signals", json={"name": "paid:42", "value": {"amount": 7}}, headers=key)
    assert again.json() == {"id": 1}
    assert connection.execute("select name, tenant, value from sereno.signals").fetchall() == [
        ("paid:42", None, {"amount": 7})
    ]
    assert one(connection, "select actor from sereno.audit where action = 'signal.send'").startswith("operator")


def test_a_token_of_a_tenant_sends_no_signals(ask: Ask, connection: psycopg.Connection) -> None:
    """A function trusts its signals like calls of its own application."""
    refused = ask("admin", tenant="a").post("/signals", json={"name": "paid", "tenant": "a"})
    assert refused.status_code == 403
    assert one(connection, "select count(*) from sereno.signals") == 0
    assert ask("operator").post("/signals", json={"name": "paid", "tenant": "a"}).status_code == 201
    assert connection.execute("select tenant from sereno.signals").fetchall() == [("a",)]


def test_a_signal_that_cannot_be_stored_is_refused(ask: Ask, connection: psycopg.Connection) -> None:
    for body in ({"name": ""}, {"name": "x" * 201}, {"name": "nul\x00"}, {"name": "paid", "value": "a\x00b"}):
        assert ask("operator").post("/signals", json=body).status_code in (400, 422), body
    assert one(connection, "select count(*) from sereno.signals") == 0
