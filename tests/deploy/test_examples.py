"""Each example system starts with one command: its services, from its compose file, as processes of this machine."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.deploy.compose_processes import PATIENCE, ComposeProcesses
from tests.deploy.test_example_files import EXAMPLES, folder
from tests.facts import one
from tests.plain_http import NO_CERTIFICATES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# What only a job of the worker can have written, after a call to a stand-in; the schedule is that of the example.
FACTS = {
    "tenders": "select count(*) from sereno.deliveries where channel = 'tenders_expo' and state in ('sent', 'delivered')",
    "separate_worker": "select count(*) from separate_worker.leads where followed_at is not null",
    "reminders": "select count(*) from sereno.deliveries where channel = 'email' and state = 'sent'",
    "reconciliation": "select count(*) from reconciliation.files where processed_at is not null",
    "triggers": "select count(*) from triggers.stock",
}
# Of the examples without stand-ins: a schedule that the test runs by the API, instead of waiting for its time.
RUN_BY_HAND = {"triggers": "triggers.stock:norte"}
# uvicorn ends by the signal that stopped it.
ENDED_WELL = {0, -15}


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_services_of_an_example_start_from_its_compose_file(example: str, tmp_path: Path) -> None:
    files = [folder(example) / "compose.yaml"]
    if example not in RUN_BY_HAND:
        files.append(folder(example) / "compose.stand-ins.yaml")
    shipped = {path for path in folder(example).parent.rglob("*") if "__pycache__" not in path.parts}
    with ComposeProcesses(files, example, tmp_path) as up, psycopg.connect(up.database, autocommit=True) as connection:
        if example in RUN_BY_HAND:
            api(up, f"/schedules/{RUN_BY_HAND[example]}/run", method="POST")
        up.process("worker").until(lambda: one(connection, FACTS[example]))
        assert api(up, "/status")["workers_alive"] == 1
        assert ended_well(up.stop())
    # The file system of a container is read-only.
    assert shipped == {path for path in folder(example).parent.rglob("*") if "__pycache__" not in path.parts}


def test_staging_has_two_workers_and_an_api_that_runs_no_jobs(tmp_path: Path) -> None:
    secrets = {name: f"staging-{name}" for name in ("DATABASE", "MIGRATE", "WORKER", "SERVER")}
    variables = {f"{name}_PASSWORD": secret for name, secret in secrets.items()} | {
        "SERENO_SECRET": "s" * 32,
        "SEPARATE_WORKER_METRICS_TOKEN": "staging-metrics",
        "SEPARATE_WORKER_CRM_URL": "http://127.0.0.1:9",
    }
    file = folder("separate_worker") / "docker-compose.staging.yml"
    with ComposeProcesses([file], "separate_worker", tmp_path, variables) as up:
        url = f"http://{up.process('api').address}:8000/api/integrations/jobs/metrics"
        assert httpx.get(url, verify=NO_CERTIFICATES).status_code == httpx.codes.UNAUTHORIZED
        # One of both leads.
        up.process("worker").until(lambda: get(url, "staging-metrics")["lockedBy"])
        assert len(get(url, "staging-metrics")["workers"]) == len(up.processes["worker"]) == 2
        assert ended_well(up.stop())


def api(up: ComposeProcesses, path: str, *, method: str = "GET") -> Any:
    """Call sereno's API as the administrator, whose token the migration has printed."""
    (token,) = re.findall(r"^srn_\S+$", up.completed["migrate"].output, re.MULTILINE)
    if "api" in up.processes:
        return get(f"http://{up.process('api').address}:8000/sereno/api/v1{path}", token, method=method)
    return get(f"http://{up.process('server').address}:8765/api/v1{path}", token, method=method)


def get(url: str, token: str, *, method: str = "GET") -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.request(method, url, headers=headers, timeout=PATIENCE, verify=NO_CERTIFICATES)
    assert answer.is_success, answer.text
    return answer.json()


def ended_well(codes: Mapping[str, list[int]]) -> bool:
    found = {code for each in codes.values() for code in each}
    assert found <= ENDED_WELL, codes
    return bool(found)
