"""Each example system starts with one command: its services, from its compose file, as processes of this machine."""

import re
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.deploy.compose_processes import PATIENCE, ROOT, ComposeProcesses
from tests.facts import one
from tests.plain_http import NO_CERTIFICATES

EXAMPLES = ("tenders", "separate_worker", "reminders", "reconciliation", "triggers")
# What only a job of the worker can have written, after a schedule was due, and a call to a stand-in.
FACTS = {
    "tenders": "select count(*) from sereno.deliveries where channel = 'tenders_expo' and state in ('sent', 'delivered')",
    "separate_worker": "select count(*) from separate_worker.leads where followed_at is not null",
    "reminders": "select count(*) from sereno.deliveries where channel = 'email' and state = 'sent'",
    "reconciliation": "select count(*) from reconciliation.files where processed_at is not null",
    "triggers": "select count(*) from triggers.closed_days",
}
# uvicorn ends by the signal that stopped it.
ENDED_WELL = {0, -15}


def deploy(example: str) -> Path:
    return ROOT / "examples" / example / "deploy"


def status(up: ComposeProcesses) -> dict[str, Any]:
    """Return what the server says to the administrator, whose token the migration has printed."""
    (token,) = re.findall(r"^srn_\S+$", up.completed["migrate"].output, re.MULTILINE)
    url = f"http://{up.process('api').address}:8000/sereno" if "api" in up.processes else ""
    url = url or f"http://{up.process('server').address}:8765"
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.get(f"{url}/api/v1/status", headers=headers, timeout=PATIENCE, verify=NO_CERTIFICATES)
    assert answer.status_code == httpx.codes.OK, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_services_of_an_example_start_from_its_compose_file(example: str, tmp_path: Path) -> None:
    files = [deploy(example) / "compose.yaml", deploy(example) / "compose.stand-ins.yaml"]
    with ComposeProcesses(files, example, tmp_path) as up, psycopg.connect(up.database, autocommit=True) as connection:
        up.process("worker").until(lambda: one(connection, FACTS[example]))
        assert status(up)["workers_alive"] == 1
        codes = up.stop()
    assert {code for each in codes.values() for code in each} <= ENDED_WELL, codes
