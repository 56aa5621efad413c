"""`sereno worker list`: the sessions of workers as JSON."""

import json

import psycopg
from click.testing import CliRunner

from sereno.cli.services.worker_list import list_workers
from tests.jobs.test_requirements import capable
from tests.manual_worker import ManualWorker


def test_workers_are_listed_as_json(manual: ManualWorker, database_url: str) -> None:
    session = manual.worker(queues={"default": 3})
    result = CliRunner().invoke(list_workers, ["--database-url", database_url, "-o", "json"])
    assert result.exit_code == 0, result.output
    (item,) = json.loads(result.stdout)["items"]
    assert (item["id"], item["state"], item["host"], item["queues"]) == (session, "alive", "somewhere", {"default": 3})


def test_the_release_of_each_worker_is_listed(connection: psycopg.Connection, database_url: str) -> None:
    capable(connection, None, release="2026.11.2")
    capable(connection, None)
    result = CliRunner().invoke(list_workers, ["--database-url", database_url, "-o", "json"])
    assert {item["release"] for item in json.loads(result.stdout)["items"]} == {"2026.11.2", None}
