"""Each example system starts with one command: its services, from its compose file, as processes of this machine."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Expected:
    """What holds when an example runs.

    `fact`: what only a job of the worker can have written, after a call to a stand-in. `method`, `path`, `body` and
    `key`: a request to the API of the example, with the token of the administrator if there is no key.
    """

    fact: str
    method: str = ""
    path: str = ""
    body: Any = None
    key: str = ""


EXPECTED = {
    "tenders": Expected(
        "select count(*) from sereno.deliveries where channel = 'tenders_expo' and state ~ '^(sent|delivered)'",
        "POST",
        "/installations/phone-of-the-test",
        {"push_token": "ExponentPushToken[test]", "platform": "android", "app_version": "2.1.0", "locale": "es-CL"},
    ),
    "separate_worker": Expected(
        "select count(*) from separate_worker.leads where followed_at is not null",
        "POST",
        "/api/leads",
        {"reference": "form-of-the-test", "email": "ada@example.org"},
        "demo-key-of-acme",
    ),
    "reminders": Expected(
        "select count(*) from sereno.deliveries where channel = 'email' and state = 'sent'",
        "GET",
        "/api/notification-deliveries?status=SENT",
    ),
    "reconciliation": Expected("select count(*) from reconciliation.files where processed_at is not null"),
    "triggers": Expected("select count(*) from triggers.stock"),
}
# An example without stand-ins: a schedule that the test runs by the API, instead of waiting for its time.
RUN_BY_HAND = {"triggers": "triggers.stock:norte"}
# uvicorn ends by the signal that stopped it.
ENDED_WELL = {0, -15}


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_services_of_an_example_start_from_its_compose_file(example: str, tmp_path: Path) -> None:
    files, expected = [folder(example) / "compose.yaml"], EXPECTED[example]
    if example not in RUN_BY_HAND:
        files.append(folder(example) / "compose.stand-ins.yaml")
    shipped = files_of(example)
    with ComposeProcesses(files, example, tmp_path) as up, psycopg.connect(up.database, autocommit=True) as connection:
        if example in RUN_BY_HAND:
            sereno(up, f"/schedules/{RUN_BY_HAND[example]}/run", method="POST")
        up.process("worker").until(lambda: one(connection, expected.fact))
        assert sereno(up, "/status")["workers_alive"] == 1
        if expected.path:
            url = f"http://{up.process('api').address}:8000{expected.path}"
            request(url, expected.key or token_of(up), method=expected.method, body=expected.body)
        assert ended_well(up.stop())
    # The file system of a container is read-only.
    assert files_of(example) == shipped


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
        up.process("worker").until(lambda: request(url, "staging-metrics")["lockedBy"])
        assert len(request(url, "staging-metrics")["workers"]) == len(up.processes["worker"]) == 2
        assert ended_well(up.stop())


def files_of(example: str) -> set[Path]:
    return {path for path in folder(example).parent.rglob("*") if "__pycache__" not in path.parts}


def sereno(up: ComposeProcesses, path: str, *, method: str = "GET") -> Any:
    """Call sereno's API, as the administrator."""
    if "server" in up.processes:
        return request(f"http://{up.process('server').address}:8765/api/v1{path}", token_of(up), method=method)
    return request(f"http://{up.process('api').address}:8000/sereno/api/v1{path}", token_of(up), method=method)


def token_of(up: ComposeProcesses) -> str:
    """Return the token that the migration has printed."""
    (token,) = re.findall(r"^srn_\S+$", up.completed["migrate"].output, re.MULTILINE)
    return str(token)


def request(url: str, token: str, *, method: str = "GET", body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.request(method, url, json=body, headers=headers, timeout=PATIENCE, verify=NO_CERTIFICATES)
    assert answer.is_success, answer.text
    return answer.json()


def ended_well(codes: Mapping[str, list[int]]) -> bool:
    found = {code for each in codes.values() for code in each}
    assert found <= ENDED_WELL, codes
    return bool(found)
