"""`sereno token …`: create, list, revoke."""

import json

import psycopg

from sereno.access.identity import token_hash
from tests.cli.conftest import Command
from tests.facts import one


def test_a_token_is_created_listed_and_revoked(sereno: Command, connection: psycopg.Connection) -> None:
    made = sereno("token", "create", "grafana", "--role", "operator", "--tenant", "r42", "--expires-in", "90d")
    assert made.exit_code == 0, made.output
    secret = made.stdout.strip()
    assert one(connection, "select hash from sereno.tokens") == token_hash(secret)
    assert "not shown again" in made.stderr
    (line,) = json.loads(sereno("token", "list", "-o", "json").stdout)["items"]
    assert (line["name"], line["role"], line["tenant"], line["revoked_at"]) == ("grafana", "operator", "r42", None)
    assert one(connection, "select expires_at - created_at = interval '90 days' from sereno.tokens")
    assert secret not in sereno("token", "list").output
    assert sereno("token", "revoke", "grafana").exit_code == 0
    assert sereno("token", "revoke", "grafana").exit_code == 8
    assert one(connection, "select count(*) from sereno.tokens where revoked_at is null") == 0
    audited = connection.execute("select action, subject from sereno.audit order by id").fetchall()
    assert audited == [("token.create", "token grafana"), ("token.revoke", "token grafana")]


def test_a_token_is_revoked_by_its_id(sereno: Command) -> None:
    made = json.loads(sereno("token", "create", "me", "-o", "json").stdout)
    assert made["secret"].startswith("srn_")
    assert made["token"]["role"] == "viewer"
    result = sereno("token", "revoke", str(made["token"]["id"]))
    assert (result.exit_code, "Revoked the token 'me'" in result.stderr) == (0, True)


def test_invalid_tokens_are_refused(sereno: Command) -> None:
    assert sereno("token", "create", "me").exit_code == 0
    assert sereno("token", "create", "me").exit_code == 8
    assert sereno("token", "create", "x", "--role", "root").exit_code == 2
    assert sereno("token", "create", "").exit_code == 2
    assert sereno("token", "create", "x", "--expires-in", "soon").exit_code == 3
