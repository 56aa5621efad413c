"""`sereno server --shard`: a real process over two databases, one of them in a PostgreSQL that is stopped."""

import json
from pathlib import Path

import httpx
import pytest

from sereno import Sereno
from sereno.access.operations import create
from sereno.database.embedded import EmbeddedPostgres
from tests.cli.conftest import Command
from tests.cli.test_server import Start, start
from tests.facts import TIMEOUT, until
from tests.plain_http import NO_CERTIFICATES

__all__ = ["start"]


def reachable(url: str, secret: str) -> dict[str, bool]:
    headers = {"Authorization": f"Bearer {secret}"}
    answer = httpx.get(f"{url}shards", headers=headers, timeout=TIMEOUT, verify=NO_CERTIFICATES)
    assert answer.status_code == 200, answer.text
    return {each["name"]: each["is_reachable"] for each in answer.json()["items"]}


@pytest.mark.slow
def test_a_stopped_postgresql_does_not_stop_the_server_that_shows_it(app: Sereno, start: Start, tmp_path: Path) -> None:
    secret = app.database.run(create("ann", "viewer", actor="test")).secret
    cluster = EmbeddedPostgres(tmp_path / "second")
    second = Sereno(cluster.start())
    try:
        second.migrate()
        running = start("--shard", f"a={app.url}", "--shard", f"b={second.url}")
        until(lambda: reachable(running.url, secret) == {"a": True, "b": True})
        url = second.url
        second.close()
        cluster.stop()
        until(lambda: reachable(running.url, secret) == {"a": True, "b": False})
        # It also starts while a shard is away.
        again = start(SERENO_SHARDS=json.dumps({"a": app.url, "b": url}))
        assert reachable(again.url, secret) == {"a": True, "b": False}
        assert again.end() == 0
        cluster.start()
        until(lambda: reachable(running.url, secret) == {"a": True, "b": True})
        assert running.end() == 0
    finally:
        second.close()
        cluster.stop()


@pytest.mark.slow
def test_without_a_token_nothing_is_open_on_loopback(app: Sereno, start: Start) -> None:
    running = start("--shard", f"a={app.url}")
    url = running.url.removesuffix("api/v1/")
    assert httpx.get(f"{running.url}shards", timeout=TIMEOUT, verify=NO_CERTIFICATES).status_code == 401
    assert httpx.get(f"{url}shards/a/api/v1/jobs", timeout=TIMEOUT, verify=NO_CERTIFICATES).status_code == 401
    assert running.end() == 0
    assert running.process.stdout is not None
    assert "No one can sign in" in running.process.stdout.read()


@pytest.mark.slow
def test_while_the_first_shard_is_away_the_server_starts_closed(app: Sereno, start: Start) -> None:
    running = start("--shard", "gone=postgresql://127.0.0.1:1/x", "--shard", f"a={app.url}")
    token = app.database.run(create("ann", "admin", actor="test")).secret
    for headers in ({}, {"Authorization": f"Bearer {token}"}):
        answer = httpx.get(f"{running.url}shards", headers=headers, timeout=TIMEOUT, verify=NO_CERTIFICATES)
        assert answer.status_code in (401, 503)
    assert running.end() == 0


def test_a_server_of_shards_without_a_token_listens_on_loopback_only(sereno: Command, app: Sereno) -> None:
    result = sereno("server", "--port", "0", "--host", "0.0.0.0", "--shard", f"a={app.url}")  # noqa: S104 - refused
    assert result.exit_code == 3
    assert "sereno token create" in result.stderr


def test_shards_and_another_database_or_application_exclude_each_other(
    sereno: Command, app: Sereno, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text("from sereno import Sereno\napp = Sereno()\n")
    for others in (("--database-url", app.url), ("-a", "shop:app")):
        result = sereno("server", "--shard", f"a={app.url}", *others)
        assert result.exit_code == 3, others
        assert "--shard excludes" in result.stderr


@pytest.mark.slow
def test_a_database_on_the_command_line_wins_over_the_setting(app: Sereno, start: Start) -> None:
    running = start("--database-url", app.url, SERENO_SHARDS=json.dumps({"a": "postgresql://127.0.0.1:1/x"}))
    assert httpx.get(f"{running.url}jobs", timeout=TIMEOUT, verify=NO_CERTIFICATES).status_code == 200
    assert running.end() == 0


def test_a_shard_without_a_schema_is_named_at_the_start(sereno: Command, app: Sereno, empty_database_url: str) -> None:
    result = sereno("server", "--port", "0", "--shard", f"a={app.url}", "--shard", f"b={empty_database_url}")
    assert result.exit_code != 0
    assert "shard b: " in result.stderr
    assert "sereno migrate" in result.stderr
