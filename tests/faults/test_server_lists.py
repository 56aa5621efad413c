"""Addresses with several servers, in every place that takes an address: the primary is found, wherever it is listed."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from sereno import Sereno
from sereno.database.connect import connect, open_async
from sereno.database.servers import servers_of
from sereno.procedures.targets.address import Targets
from sereno.settings import Settings
from tests.acceptance.conftest import assert_sound
from tests.facts import until
from tests.faults.failover_processes import Processes
from tests.faults.test_failover import APP, prepare
from tests.replication import BIN, PASSWORD, ReplicatedServers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BIN / "pg_basebackup").exists(), reason="PostgreSQL with pg_basebackup is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="a full backlog refuses connections elsewhere"),
]


@pytest.fixture
def servers() -> Iterator[ReplicatedServers]:
    """Return a primary `a` and its synchronous standby `b`, with the schema."""
    with ReplicatedServers(("a", "b")) as started:
        prepare(started["a"])
        yield started


def test_every_place_finds_the_primary_behind_a_standby(
    servers: ReplicatedServers, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    port = servers["a"].port
    for url in (servers.url("b", "a"), servers.keywords("b", "a")):
        with subtests.test("sync", url=url), connect(url, Settings(), "test") as connection:
            assert connection.info.port == port
        with subtests.test("async", url=url):

            async def opened(url: str = url) -> int:
                async with await open_async(url, Settings(), "test") as connection:
                    return connection.info.port

            assert asyncio.run(opened()) == port
        with subtests.test("an application", url=url), closing(Sereno(url)) as app:
            work = app.task(name="work")(_work)
            work.enqueue()
            assert "work" in [task.name for task in app.registry]
        with subtests.test("a command", url=url):
            done = Processes(url, tmp_path).command("status")
            assert done.returncode == 0, done.stderr
            assert PASSWORD not in done.stdout + done.stderr
        with (
            subtests.test("programs of the archive", url=url),
            psycopg.connect(servers_of(url).conninfo()) as connection,
        ):
            assert connection.info.port == port
        with subtests.test("procedures", url=url):
            settings = Settings(procedure_url=url, procedure_targets={"other": url})
            targets = Targets(settings, servers.url)

            async def called(targets: Targets = targets) -> list[bool]:
                found = []
                for name in ("here", "other"):
                    async with targets.find(name).open() as session:
                        found.append(bool(session))
                return found

            assert asyncio.run(called()) == [True, True]
    assert servers["a"].one("select count(*) from sereno.jobs") == 2


def _work() -> None: ...


@pytest.mark.timeout(180)
def test_a_server_that_drops_packets_costs_no_lease(servers: ReplicatedServers, tmp_path: Path) -> None:
    """It is the first of the address, and takes connections without an answer. The session outlives the fail-over."""
    with socket.create_server(("127.0.0.1", 0), backlog=1) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{servers['b'].port},127.0.0.1:{servers['a'].port}"
        processes = Processes(f"postgresql://postgres:{PASSWORD}@{hosts}/postgres", tmp_path)
        try:
            worker = processes.start("sereno", "worker", APP, SERENO_SCHEDULER="false", SERENO_LEASE="30")
            log = tmp_path / "handlers.log"
            job = servers["a"].one("select sereno.enqueue('held', '{\"n\": 1}')")
            until(lambda: log.exists() and "start 1 1" in log.read_text(), timeout=60)
            servers["a"].kill()
            servers["b"].promote()
            log.with_suffix(".go").touch()
            until(lambda: servers["b"].one(f"select state from sereno.history where id = {job}"), timeout=60)
            assert log.read_text().splitlines() == ["start 1 1", "end 1 1"]
            assert '"session.lost"' not in processes.text(worker)
        finally:
            processes.stop()
    with servers["b"].connect() as connection:
        assert_sound(connection)
