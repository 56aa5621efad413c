"""Workers that die as a whole: supervisor, children and isolated processes at once."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.facts import one, state, until
from tests.faults import family_app
from tests.faults.family_app import innocent, kills_its_family

ROOT = Path(__file__).parents[2]
MOST_LIVES = 6

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="who is whose parent is read from /proc")


@pytest.fixture
def started(database_url: str, tmp_path: Path) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """A worker is added by `start`; whatever is left of it is ended afterwards."""
    family_app.app.override(database_url=database_url)
    workers: list[subprocess.Popen[bytes]] = []
    yield workers
    family_app.app.close()
    for process in workers:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def start(workers: list["subprocess.Popen[bytes]"], database_url: str, tmp_path: Path) -> "subprocess.Popen[bytes]":
    environment = {
        **os.environ,
        "SERENO_DATABASE_URL": database_url,
        "SERENO_LEASE": "600",
        "LEDGER": str(tmp_path / "ledger"),
        "SPARED": str(os.getpid()),
    }
    command = [sys.executable, "-m", "sereno", "worker", "tests.faults.family_app:app"]
    workers.append(subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL))
    return workers[-1]


@pytest.mark.acceptance
@pytest.mark.timeout(600)
def test_a_job_that_kills_whole_workers_is_dead_after_three_of_them(
    database_url: str, connection: psycopg.Connection, started: list["subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    poison = kills_its_family.enqueue()
    others = [innocent.enqueue() for _ in range(5)]
    for _ in range(MOST_LIVES):
        worker = start(started, database_url, tmp_path)
        until(lambda: worker.poll() is not None or state(connection, poison.id) == "dead", patience=120)  # noqa: B023
        if worker.poll() is None:
            break
        # Nobody is left to say that it died; its lease would run out.
        connection.execute("update sereno.sessions set lease_until = sereno.now() where state = 'alive'")
    until(lambda: all(state(connection, job.id) == "succeeded" for job in others))
    assert (tmp_path / "ledger").read_text().split() == ["1", "2", "3"]
    found = connection.execute("select crashes, reason from sereno.history_dead").fetchall()
    assert found == [(3, "crash loop: its worker died while it ran alone, 3 times")]
    # Began beside it, and once more as suspects beside it; on their last life they run with no other suspect.
    assert one(connection, "select max(crashes) from sereno.history_done") <= 2
