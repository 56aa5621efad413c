"""A primary is killed and its synchronous standby promoted: everything continues without a restart, nothing is lost."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest

from sereno import DatabaseUnavailable, Sereno
from sereno.database.migrate import migrate
from tests.acceptance.conftest import assert_sound
from tests.facts import one, until
from tests.faults.failover_processes import Journal, Processes, assert_journal_holds
from tests.plain_http import NO_CERTIFICATES
from tests.replication import BIN, ReplicatedServers, Server, free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BIN / "pg_basebackup").exists(), reason="PostgreSQL with pg_basebackup is not installed"),
]

APP = "tests.faults.failover_app:app"


@pytest.fixture
def servers() -> Iterator[ReplicatedServers]:
    """Return a primary `a`, its synchronous standby `b` and its asynchronous standby `c`, with the schema."""
    with ReplicatedServers() as started:
        prepare(started["a"])
        yield started


def prepare(primary: Server) -> None:
    with primary.connect() as connection:
        migrate(connection)
        connection.execute("create table effects (n bigint)")


@pytest.fixture
def processes(servers: ReplicatedServers, tmp_path: Path) -> Iterator[Processes]:
    started = Processes(servers.url(), tmp_path)
    yield started
    started.stop()


def is_ready(port: int) -> bool:
    """Return whether the server reaches its database."""
    try:
        found = httpx.get(f"http://127.0.0.1:{port}/readyz", verify=NO_CERTIFICATES, timeout=30)
    except httpx.ConnectError:
        # It has not started yet.
        return False
    return found.status_code == HTTPStatus.OK


def settled(primary: Server) -> int:
    return int(primary.one("select count(*) from sereno.history where task = 'effect' and state = 'succeeded'"))


def fail_over(servers: ReplicatedServers, old: str, new: str) -> None:
    """Kill the primary at once, promote its synchronous standby, and let the third server follow it."""
    servers[old].kill()
    servers[new].promote()
    servers["c"].follow_instead(servers[new])


@pytest.mark.timeout(300)
def test_a_killed_primary_loses_nothing_that_was_accepted(
    servers: ReplicatedServers, processes: Processes, tmp_path: Path
) -> None:
    """Workers, a scheduler, a server and an enqueuing process continue by themselves, over there and back again."""
    journal, stop, port = Journal(tmp_path / "journal"), tmp_path / "stop", free_port()
    processes.start("sereno", "worker", APP, "--processes", "2", SERENO_SCHEDULER="false")
    processes.start("sereno", "worker", APP, SERENO_SCHEDULER="false")
    processes.start("sereno", "scheduler")
    server = processes.start("sereno", "server", SERENO_SERVER_PORT=str(port))
    with servers["a"].connect() as connection:
        connection.execute("select sereno.schedule('every second', 'fired', every => '1 second')")
    enqueuer = processes.start("tests.faults.failover_app", str(journal.path), str(stop))
    until(journal.grows(), timeout=60)
    until(lambda: settled(servers["a"]) > 10 and is_ready(port), timeout=60)
    for old, new in (("a", "b"), ("b", "a")):
        fail_over(servers, old, new)
        primary = servers[new]
        done, fires = settled(primary), primary.one("select count(*) from sereno.fires")
        until(journal.grows(), timeout=60)
        until(lambda: settled(primary) > done + 20, timeout=60)  # noqa: B023
        until(lambda: primary.one("select count(*) from sereno.fires") > fires + 1, timeout=60)  # noqa: B023
        until(lambda: is_ready(port), timeout=60)
        processes.assert_running()
        servers[old].follow(primary)
        until(lambda: primary.one("select count(*) from pg_stat_replication where state = 'streaming'") == 2)  # noqa: B023
        primary.set(synchronous_standby_names=old)
        # What was accepted before is on the standby, too, when the next primary is killed; the server applies the
        # setting a moment after it was changed.
        until(journal.grows(), timeout=60)
        position = primary.one("select pg_current_wal_lsn()")
        until(lambda: primary.has_received(old, position))  # noqa: B023
    stop.touch()
    assert enqueuer.wait(timeout=60) == 0
    with servers["a"].connect() as connection:
        until(lambda: one(connection, "select count(*) from sereno.jobs where task = 'effect'") == 0, timeout=60)
        assert_journal_holds(journal, connection)
        assert_sound(connection)
    checked = processes.command("verify", "--all")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert server.poll() is None


@pytest.mark.timeout(120)
def test_an_old_primary_that_was_started_again_is_not_used(
    servers: ReplicatedServers, processes: Processes, tmp_path: Path
) -> None:
    """It accepts writes, and it is the first of the address. A process that starts then asks all servers before."""
    fail_over(servers, "a", "b")
    servers["a"].start({"synchronous_standby_names": ""})
    assert servers["a"].one("show transaction_read_only") == servers["b"].one("show transaction_read_only") == "off"
    for url in (servers.url(), servers.keywords()):
        started = Processes(url, tmp_path / url[:4])
        (tmp_path / url[:4]).mkdir()
        enqueued = started.command("job", "enqueue", "effect", '{"n": 1}', "--app", APP)
        assert enqueued.returncode == 0, enqueued.stdout + enqueued.stderr
    assert servers["b"].one("select count(*) from sereno.jobs") == 2
    assert servers["a"].one("select count(*) from sereno.jobs") == 0
    checked = processes.command("doctor")
    assert f"127.0.0.1:{servers['a'].port} is an old primary, timeline 1" in checked.stdout
    assert f"127.0.0.1:{servers['b'].port} is the primary, timeline 2" in checked.stdout
    assert f"127.0.0.1:{servers['c'].port} is a standby" in checked.stdout
    # A standby tells the timeline that it follows after its next checkpoint.
    servers["b"].checkpoint()
    until(lambda: servers["c"].checkpoint() == 2)
    servers["b"].kill()
    refused = processes.command("job", "enqueue", "effect", '{"n": 2}', "--app", APP)
    # Only the old primary accepts writes, and a server that follows the new one tells that it is old.
    assert refused.returncode == 4, refused.stdout + refused.stderr
    assert "it is an old primary: its timeline is 1" in " ".join((refused.stdout + refused.stderr).split())


@pytest.mark.timeout(120)
def test_a_worker_leaves_an_old_primary_that_still_answers(
    servers: ReplicatedServers, processes: Processes, tmp_path: Path
) -> None:
    """The old primary is cut off from its standbys, not from the worker: what is settled there cannot commit."""
    worker = processes.start("sereno", "worker", APP, SERENO_SCHEDULER="false")
    with servers["a"].connect() as connection:
        job = one(connection, "select sereno.enqueue('held', '{\"n\": 1}')")
    log = tmp_path / "handlers.log"
    until(lambda: log.exists() and "start 1 1" in log.read_text())
    session = servers["a"].one(f"select session_id from sereno.jobs where id = {job}")
    servers["b"].promote()
    servers["c"].follow_instead(servers["b"])
    log.with_suffix(".go").touch()
    until(lambda: '"database.promoted"' in processes.text(worker), timeout=60)
    done = f"select state from sereno.history where id = {job}"
    until(lambda: servers["b"].one(done) == "succeeded", timeout=60)
    # The session, its lease and the attempt went on: the job was not run again.
    assert servers["b"].one(f"select state from sereno.sessions where id = {session}") == "alive"
    assert log.read_text().split("\n")[:-1] == ["start 1 1", "end 1 1"]
    # It still answers, and whatever it has of this is taken back when it rejoins.
    servers["a"].one("select 1")
    processes.assert_running()
    servers["a"].follow(servers["b"])
    until(lambda: servers["a"].one(done) == "succeeded")
    with servers["b"].connect() as connection:
        assert_sound(connection)


@pytest.mark.timeout(120)
def test_a_commit_without_its_synchronous_standby_is_not_accepted(servers: ReplicatedServers) -> None:
    """PostgreSQL reports success when an operator cancels the wait; the job may be lost: the caller gets an error."""
    app = Sereno(servers.url())

    @app.task(name="work")
    def work() -> None: ...

    async def enqueue() -> None:
        await work.aenqueue()
        await app.aclose()

    servers["b"].kill()
    waiting = "from pg_stat_activity where wait_event = 'SyncRep' and application_name like 'sereno %'"
    for call in (work.enqueue, lambda: asyncio.run(enqueue())):
        with ThreadPoolExecutor(1) as thread:
            called = thread.submit(call)
            until(lambda: servers["a"].one(f"select count(*) {waiting}") == 1)
            assert not called.done()
            servers["a"].one(f"select count(pg_cancel_backend(pid)) {waiting}")
            with pytest.raises(DatabaseUnavailable, match="the wait for the synchronous standby was cancelled"):
                called.result(60)
    servers["a"].set(synchronous_standby_names="")
    work.enqueue()
    app.close()


@pytest.mark.timeout(180)
def test_a_worker_that_reaches_the_old_primary_alone_settles_nothing(
    servers: ReplicatedServers, tmp_path: Path
) -> None:
    """It knows of no other server. Its commits wait for a standby that is a primary now, until its lease has ended."""
    directories = [tmp_path / name for name in "ab"]
    for directory in directories:
        directory.mkdir()
    cut_off, other = (Processes(servers.url(each.name), each) for each in directories)
    log = tmp_path / "handlers.log"
    given = {"SERENO_SCHEDULER": "false", "SERENO_LEASE": "3", "TEST_LOG": str(log)}
    try:
        first = cut_off.start("sereno", "worker", APP, **given)
        job = servers["a"].one("select sereno.enqueue('held', '{\"n\": 1}')")
        until(lambda: log.exists() and "start 1 1" in log.read_text())
        servers["b"].promote()
        log.with_suffix(".go").touch()
        until(lambda: '"session.lost"' in cut_off.text(first), timeout=60)
        other.start("sereno", "worker", APP, **given)
        done = f"select state from sereno.history where id = {job}"
        until(lambda: servers["b"].one(done) == "succeeded", timeout=60)
        # The attempt of the first worker was lost with its lease; the second one counts.
        assert "end 1 2" in log.read_text()
        assert servers["b"].one(f"select attempt from sereno.history where id = {job}") == 2
    finally:
        cut_off.stop()
        other.stop()
    servers["a"].follow(servers["b"])
    until(lambda: servers["a"].one(done) == "succeeded")
    with servers["b"].connect() as connection:
        assert_sound(connection)
