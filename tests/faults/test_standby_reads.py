"""Pages and lists from a standby: its lag is shown, a change is seen by its author, and the primary takes over."""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sereno import Sereno
from sereno.database.migrate import migrate
from tests.facts import until
from tests.replication import BIN, PASSWORD, ReplicatedServers
from tests.server.api.conftest import Served, clients_of
from tests.warm_process import run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BIN / "pg_basebackup").exists(), reason="PostgreSQL with pg_basebackup is not installed"),
]

Start = Callable[..., "Reader"]


class Reader:
    """A server whose reads may come from the standby, and HTTP clients for it."""

    def __init__(self, app: Sereno, served: Served, ask: Callable[..., httpx.Client]) -> None:
        self.app = app
        self.served = served
        self.client = ask

    def enqueue(self) -> None:
        """Enqueue a job on the primary, not through the server."""
        with self.app.database.connection() as connection:
            connection.execute("select sereno.enqueue('work')")

    def jobs(self, client: httpx.Client) -> int:
        found = client.get("/jobs")
        assert found.status_code == 200, found.text
        return len(found.json()["items"])

    def page(self, client: httpx.Client) -> str:
        found = client.get(f"{self.served.url}/queues")
        assert found.status_code == 200, found.text
        return found.text


@pytest.fixture
def servers() -> Iterator[ReplicatedServers]:
    with ReplicatedServers(("a", "c"), synchronous="") as started:
        with started["a"].connect() as connection:
            migrate(connection)
        yield started


@pytest.fixture
def start(servers: ReplicatedServers) -> Iterator[Start]:
    ends: list[Any] = []

    def started(**settings: Any) -> Reader:
        app = Sereno(servers.url("a"), read_url=servers.url("a", "c"), **settings)

        @app.task(name="work")
        def work() -> None: ...

        served = Served(app)
        clients = clients_of(app, served)
        ends.append((clients, served, app))
        return Reader(app, served, clients.__enter__())

    yield started
    for clients, served, app in ends:
        clients.__exit__(None, None, None)
        served.stop()
        app.close()


def test_a_standby_that_is_behind_is_read_until_it_is_too_far_behind(servers: ReplicatedServers, start: Start) -> None:
    """Its replay is paused: what it shows is old, so it is seen which server was read."""
    reader = start(read_lag=600)
    viewer = reader.client("viewer")
    until(lambda: "Read from a standby, 0 ms behind" in reader.page(viewer))
    servers["c"].one("select pg_wal_replay_pause()")
    until(lambda: servers["c"].one("select pg_get_wal_replay_pause_state()") == "paused")
    reader.enqueue()
    assert reader.jobs(viewer) == 0
    until(lambda: "Read from a standby" in (text := reader.page(viewer)) and ", 0 ms behind" not in text)
    strict = start(read_lag=1)
    other = strict.client("operator")
    assert strict.jobs(other) == 1
    assert "Read from the primary: the standby is" in strict.page(other)
    servers["c"].one("select pg_wal_replay_resume()")
    until(lambda: "Read from a standby, 0 ms behind" in strict.page(other))
    until(lambda: strict.jobs(other) == reader.jobs(viewer) == 1)


def test_a_user_sees_their_own_change_at_once(servers: ReplicatedServers, start: Start) -> None:
    reader = start(read_lag=600)
    operator, viewer = reader.client("operator"), reader.client("viewer")
    until(lambda: "Read from a standby" in reader.page(viewer))
    servers["c"].one("select pg_wal_replay_pause()")
    until(lambda: servers["c"].one("select pg_get_wal_replay_pause_state()") == "paused")
    made = operator.post("/jobs", json={"task": "work", "args": {}})
    assert made.status_code < 300, made.text
    assert reader.jobs(operator) == 1
    assert "Read from the primary, after a change" in reader.page(operator)
    assert reader.jobs(viewer) == 0
    # Another server process has not seen the change, and the browser tells it.
    other = start(read_lag=600)
    assert "sereno_changed=1; Max-Age=602" in made.headers["set-cookie"]
    known = httpx.Client(
        base_url=f"{other.served.url}/api/v1", headers=operator.headers, cookies={"sereno_changed": "1"}
    )
    with known:
        assert other.jobs(known) == 1


def standby_line(servers: ReplicatedServers) -> str:
    """Return what `sereno doctor` says of the standby."""
    environment = {**os.environ, "SERENO_DATABASE_URL": servers.url("a"), "SERENO_READ_URL": servers.url("c")}
    done = run([sys.executable, "-m", "sereno", "doctor"], timeout=60, env=environment)
    (line,) = [line for line in done.stdout.splitlines() if " standby " in line]
    assert PASSWORD not in done.stdout
    return line


def test_the_primary_is_read_while_the_standby_is_away(servers: ReplicatedServers, start: Start) -> None:
    reader = start()
    viewer = reader.client("viewer")
    until(lambda: "Read from a standby" in reader.page(viewer))
    reader.enqueue()
    assert standby_line(servers).startswith("ok    standby        it is ")
    checks = {check["name"]: check["level"] for check in viewer.get("/doctor").json()["checks"]}
    assert checks["standby"] == "ok"
    servers["c"].kill()
    assert reader.jobs(viewer) == 1
    assert standby_line(servers).startswith("WARN  standby        read_url: no connection to PostgreSQL at ")
    until(lambda: "Read from the primary: the standby is away" in reader.page(viewer))


def test_the_standby_is_read_while_the_primary_is_away(servers: ReplicatedServers, start: Start) -> None:
    reader = start()
    viewer = reader.client("viewer")
    reader.enqueue()
    until(lambda: "Read from a standby" in reader.page(viewer) and reader.jobs(viewer) == 1)
    servers["a"].kill()
    # A token that was checked a while ago may still read.
    assert reader.jobs(viewer) == 1
    assert "Read from a standby" in reader.page(viewer)


def test_the_lag_of_standbys_is_a_gauge(servers: ReplicatedServers, start: Start) -> None:
    """PostgreSQL names the standby in its own view, and that of `read_url` is measured."""
    reader = start(gauge_interval=1.0)
    viewer = reader.client("viewer")

    def lags() -> dict[str, float]:
        families = text_string_to_metric_families(viewer.get(f"{reader.served.url}/metrics").text)
        samples = next((each.samples for each in families if each.name == "sereno_replica_lag_seconds"), [])
        return {sample.labels["replica"]: sample.value for sample in samples}

    until(lambda: list(lags().values()) == [0.0, 0.0])
    (name,) = lags().keys() - {"read_url"}
    servers["c"].one("select pg_wal_replay_pause()")
    until(lambda: servers["c"].one("select pg_get_wal_replay_pause_state()") == "paused")
    reader.enqueue()
    until(lambda: lags()["read_url"] > 0)
    servers["c"].kill()
    until(lambda: not lags().keys() & {"read_url", name})
