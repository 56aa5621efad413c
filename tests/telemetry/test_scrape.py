"""A scrape of a real worker has the counts of results, and the deliveries by channel and state."""

import asyncio
import json
import urllib.request
from pathlib import Path

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sereno.testing.expo import ExpoProvider
from tests.acceptance.conftest import WorkerProcess
from tests.facts import TIMEOUT, until

APP = "tests.telemetry.scraped_app:app"
WORDS = ("--health-port", "0", "--queue", "default=2", "--queue", "notifications=2")
Sums = dict[tuple[str, str], float]


def get(process: WorkerProcess, path: str) -> str:
    """Return a response of the health port."""
    line = next(line for line in process.log_text().splitlines() if "health.started" in line)
    address = json.loads(line)["msg"].split()[1].removesuffix("/livez")
    with urllib.request.urlopen(f"{address}{path}", timeout=TIMEOUT) as response:  # noqa: S310 - our own address
        return str(response.read().decode())


def scraped(process: WorkerProcess, name: str, first: str, second: str, suffix: str = "_total") -> Sums:
    """Return the values of a counter by two labels; of a gauge with an empty suffix."""
    families = {each.name: each for each in text_string_to_metric_families(get(process, "/metrics"))}
    family = families.get(name)
    samples = [] if family is None else [sample for sample in family.samples if sample.name == f"{name}{suffix}"]
    return {(sample.labels[first], sample.labels[second]): sample.value for sample in samples}


def enqueue(connection: psycopg.Connection) -> None:
    """Notify four users, two of whom have invalid addresses and one none, and enqueue jobs that return counts."""
    for user in ("reached", "gone", "later", "none"):
        connection.execute("select sereno.put_recipient(%s)", [user])
        if user != "none":
            connection.execute("select sereno.put_address(%s, 'expo', %s)", [user, f"ExponentPushToken[{user}]"])
    connection.execute(
        "select sereno.notify('order.ready', '{\"number\": 7}', \"to\" => '{reached, gone, later, none}'::text[])"
    )
    for task, args in (
        ("ingest", {"found": 12, "new": 3}),
        # A counter cannot fall.
        ("ingest", {"found": 5, "new": -2}),
        ("ingest_in_transaction", {"found": 7}),
        ("ingest_alone", {"found": 4}),
        ("plain", {"found": 9}),
    ):
        connection.execute("select sereno.enqueue(%s, %s::jsonb)", [task, json.dumps(args)])


@pytest.mark.slow
async def test_a_scrape_has_counts_of_results_and_deliveries_by_state(
    database_url: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    (log := tmp_path / "handlers").touch()
    async with ExpoProvider() as expo:
        expo.tickets["ExponentPushToken[gone]"] = expo.receipts_of["ExponentPushToken[later]"] = "DeviceNotRegistered"
        process = WorkerProcess(database_url, log, *WORDS, app=APP, TEST_EXPO=expo.url)
        try:
            await asyncio.to_thread(process.wait_started)
            enqueue(connection)
            results = {
                ("ingest", "found"): 17.0,
                ("ingest", "new"): 3.0,
                ("ingest_in_transaction", "found"): 7.0,
                ("ingest_in_transaction", "new"): 1.0,
                ("ingest_alone", "found"): 4.0,
            }
            await asyncio.to_thread(until, lambda: scraped(process, "sereno_result", "task", "field") == results)
            deliveries = {
                ("expo", "sent"): 2.0,
                ("expo", "delivered"): 1.0,
                ("expo", "invalid"): 2.0,
                ("expo", "skipped"): 1.0,
                ("in_app", "sent"): 4.0,
                ("in_app", "delivered"): 4.0,
            }
            await asyncio.to_thread(
                until, lambda: scraped(process, "sereno_deliveries", "channel", "state") == deliveries
            )
        finally:
            process.kill()


@pytest.mark.slow
def test_a_worker_shows_the_gauges_of_the_database_and_the_wanted_workers(
    database_url: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("select sereno.enqueue('work', queue => 'unserved') from generate_series(1, 30)")
    (log := tmp_path / "handlers").touch()
    process = WorkerProcess(
        database_url, log, "--health-port", "0", app=APP, TEST_EXPO="http://127.0.0.1:1", SERENO_GAUGE_INTERVAL="1"
    )
    try:
        process.wait_started()
        ready = {("unserved", "ready"): 30.0}
        until(lambda: scraped(process, "sereno_jobs", "queue", "state", suffix="") == ready)
        assert json.loads(get(process, "/autoscale?queue=unserved&slots=10"))["wanted_workers"] == 3
    finally:
        process.kill()
