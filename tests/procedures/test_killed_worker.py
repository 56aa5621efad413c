"""A worker killed in the middle of a call: its statement ends with it, and another worker calls again, once."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from sereno.testing.process import kill_all
from tests.facts import one, state, until
from tests.procedures.conftest import Allow, Login, result
from tests.warm_process import WarmProcess

ROOT = Path(__file__).parents[2]
APP = """
from sereno import Backoff, Sereno

app = Sereno()
app.procedure("reporting.waits", retry=Backoff(0))
"""
# The connection that calls, and the one that renews the lease.
CONNECTED = (
    "select count(*) from pg_stat_activity where datname = current_database() "
    "and application_name in ('sereno procedure', 'sereno supervisor')"
)

Start = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture
def start(database_url: str, login: Login, tmp_path: Path) -> Iterator[Start]:
    """Start real workers; those still alive are killed afterwards."""
    (tmp_path / "shop.py").write_text(APP)
    started: list[subprocess.Popen[bytes]] = []
    environment = {
        **os.environ,
        "SERENO_DATABASE_URL": database_url,
        "SERENO_PROCEDURE_URL": login.url,
        "SERENO_HEARTBEAT": "1",
        "SERENO_LEASE": "600",
        "PYTHONPATH": str(ROOT / "src"),
    }

    def one_more() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "sereno", "worker", "shop.py:app"]
        started.append(
            WarmProcess(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
        )
        return started[-1]

    yield one_more
    for process in started:
        kill_all(process)


@pytest.mark.slow
@pytest.mark.quick
async def test_a_call_of_a_killed_worker_is_repeated_once(
    reporting: Sereno, connection: psycopg.Connection, allow: Allow, login: Login, start: Start
) -> None:
    """A second call cannot get the lock while the first one runs: the job would be dead then."""
    connection.execute(
        "create table reporting.ran (attempt integer); create table reporting.release (n integer);"
        f"grant insert, select on reporting.ran, reporting.release to {login.name};"
        "create procedure reporting.waits(attempt integer) language plpgsql as $$ begin "
        "if not pg_try_advisory_lock(1) then raise exception 'two at once'; end if; "
        "insert into ran values (attempt); commit; "
        "while not exists (select from release) loop commit; perform pg_sleep(0.05); end loop; end $$"
    )
    await allow("reporting.waits", given={"attempt": "attempt"}, timeout="10m")
    job = reporting.procedure("reporting.waits").enqueue()
    first = start()
    until(lambda: one(connection, "select count(*) from reporting.ran") == 1)
    kill_all(first)
    until(lambda: one(connection, CONNECTED) == 0)
    # The lease of the next worker is long, however slow the machine is.
    connection.execute("update sereno.sessions set lease_until = sereno.now() where state = 'alive'")
    start()
    until(lambda: one(connection, "select count(*) from reporting.ran") == 2)
    connection.execute("insert into reporting.release values (1)")
    until(lambda: state(connection, job.id) == "succeeded")
    assert connection.execute("select attempt from reporting.ran order by 1").fetchall() == [(1,), (2,)]
    assert connection.execute("select attempt, crashes, failures from sereno.history").fetchall() == [(2, 1, 0)]
    assert connection.execute("select attempt from sereno.procedure_runs").fetchall() == [(2,)]
    assert result(connection, job.id)["rows"] == []
