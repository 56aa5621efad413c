"""A promoted standby whose clock is behind or ahead of the old primary's: jobs and schedules continue by its clock."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import assert_sound
from tests.facts import until
from tests.faults.failover_processes import Processes
from tests.faults.test_failover import APP, prepare
from tests.replication import BIN, ReplicatedServers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BIN / "pg_basebackup").exists(), reason="PostgreSQL with pg_basebackup is not installed"),
]


@pytest.fixture
def servers() -> Iterator[ReplicatedServers]:
    with ReplicatedServers(("a", "b")) as started:
        prepare(started["a"])
        yield started


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seconds", [-5, 5])
def test_work_continues_by_the_clock_of_the_new_primary(
    servers: ReplicatedServers, tmp_path: Path, seconds: int
) -> None:
    processes = Processes(servers.url(), tmp_path)
    fired = "select count(*) from sereno.history where task = 'fired'"
    try:
        worker = processes.start("sereno", "worker", APP)
        servers["a"].one("select sereno.schedule('every second', 'fired', every => '1 second')")
        until(lambda: servers["a"].one(fired) > 1, timeout=60)
        session = servers["a"].one("select max(id) from sereno.sessions where state = 'alive'")
        servers["a"].kill()
        servers["b"].promote()
        with servers["b"].connect() as connection:
            connection.execute("insert into sereno.clock (ahead) values (make_interval(secs => %s))", [seconds])
        done = servers["b"].one("select count(*) from sereno.history where task = 'fired'")
        until(
            lambda: servers["b"].one("select count(*) from sereno.history where task = 'fired'") > done + 2, timeout=60
        )
        job = servers["b"].one("select sereno.enqueue('effect', '{\"n\": 1}')")
        until(lambda: servers["b"].one(f"select state from sereno.history where id = {job}") == "succeeded")
        # The rest of the lease is longer than the difference.
        assert servers["b"].one(f"select state from sereno.sessions where id = {session}") == "alive"
        assert '"session.lost"' not in processes.text(worker)
    finally:
        processes.stop()
    with servers["b"].connect() as connection:
        assert_sound(connection)
