"""Everything through PgBouncer in transaction mode, pool of two: no prepared statement, no LISTEN, no session state."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from sereno import Sereno
from tests.acceptance.conftest import WorkerProcess, lines
from tests.facts import advance, auntil, one, state, until

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = [pytest.mark.quick, pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed")]


@pytest.fixture
def pooled_url(database_url: str) -> Iterator[str]:
    """Start a PgBouncer in front of the test's database, on a socket in its own directory."""
    assert PGBOUNCER is not None
    parts = urlsplit(database_url)
    query = parse_qs(parts.query)
    host, name = query["host"][0], parts.path.lstrip("/")
    # It refuses to run as root, and only the server's own user can open the server's socket.
    owner = pwd.getpwuid(Path(host).stat().st_uid).pw_name
    directory = Path(tempfile.mkdtemp(prefix="sereno-pgbouncer-"))
    directory.chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(directory, owner)
    (directory / "users").write_text('"postgres" ""\n')
    (directory / "ini").write_text(
        f"[databases]\n{name} = host={host} port={query.get('port', ['5432'])[0]} dbname={name} user=postgres\n"
        f"[pgbouncer]\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = {directory}\nauth_type = trust\n"
        f"auth_file = {directory}/users\npool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 200\n"
        f"ignore_startup_parameters = extra_float_digits\n"
    )
    for file in ("users", "ini"):
        (directory / file).chmod(0o644)
    arguments = [PGBOUNCER, "-q", str(directory / "ini")]
    if os.geteuid() == 0:
        arguments[1:1] = ["-u", owner]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log)
    url = f"postgresql://postgres@/{name}?host={directory}&port=6432"

    def is_ready() -> bool:
        assert process.poll() is None, (directory / "log").read_text()
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    until(is_ready)
    yield url
    process.terminate()
    process.wait(timeout=60)
    shutil.rmtree(directory)


@pytest.mark.slow
async def test_plain_keyed_and_failing_jobs_run_through_a_transaction_pooler(
    pooled_url: str, connection: psycopg.Connection
) -> None:
    app = Sereno(pooled_url, transaction_pooler=True, poll=0.1)

    @app.task
    async def work(n: int) -> None: ...

    @app.task
    async def fails() -> None:
        raise ValueError("once")

    async with app.working():
        jobs = await app.aenqueue_many([work.job(n) for n in range(500)])
        keyed = await work.using(unique_key="k").aenqueue(1)
        failing = await fails.aenqueue()
        await auntil(lambda: one(connection, "select count(*) from sereno.history where state = 'succeeded'") == 501)
        await auntil(lambda: one(connection, "select failures from sereno.jobs where id = %s", failing.id) == 1)
    assert {state(connection, job.id) for job in [*jobs, keyed]} == {"succeeded"}
    # Planner settings are local to a transaction: none of them stays on the shared server connections.
    with psycopg.connect(pooled_url, autocommit=True, prepare_threshold=None) as other:
        assert {one(other, "show enable_sort") for _ in range(10)} == {"on"}


@pytest.mark.slow
def test_a_worker_process_runs_jobs_through_a_transaction_pooler(
    pooled_url: str, worker: Callable[..., WorkerProcess], connection: psycopg.Connection, log: Path
) -> None:
    process = worker("--processes", "2", url=pooled_url, SERENO_TRANSACTION_POOLER="true", SERENO_POLL="0.2")
    connection.execute("select sereno.enqueue('quick', jsonb_build_object('n', n)) from generate_series(0, 99) as n")
    until(lambda: one(connection, "select count(*) from sereno.history") == 100)
    assert sorted(int(line[0]) for line in lines(log, "quick")) == list(range(100))
    assert process.end() == 0


@pytest.mark.slow
def test_schedules_fire_through_a_transaction_pooler(
    pooled_url: str, worker: Callable[..., WorkerProcess], connection: psycopg.Connection
) -> None:
    """5000 schedules fire at once, so that the scheduler opens its second connection."""
    process = worker(url=pooled_url, SERENO_TRANSACTION_POOLER="true", SERENO_POLL="0.2")
    connection.execute(
        "select sereno.schedule('k' || n, 'quick', jsonb_build_object('n', n), every => '1 hour') "
        "from generate_series(1, 5000) as n"
    )
    until(lambda: one(connection, "select count(*) from sereno.schedules where planned") == 5000)
    advance(connection, 3601)
    until(lambda: one(connection, "select count(*) from sereno.history where state = 'succeeded'") == 5000)
    assert one(connection, "select count(*) from sereno.fires") == 5000
    assert process.end() == 0
