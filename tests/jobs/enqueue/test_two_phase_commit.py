"""With `notify=False` an enqueue never notifies, so the caller's transaction can be prepared (two-phase commit)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from sereno import Every, Sereno
from sereno.database.embedded import EmbeddedPostgres
from tests.conftest import POSTGRES_BIN
from tests.facts import auntil, one, state

# A server of its own: the shared one prepares no transactions.
pytestmark = pytest.mark.slow

PARAMETERS = {"fsync": "off", "max_prepared_transactions": "10"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a server with prepared transactions."""
    bin_dir = Path(POSTGRES_BIN) if POSTGRES_BIN else None
    with EmbeddedPostgres(tmp_path_factory.mktemp("two"), bin_dir=bin_dir, parameters=PARAMETERS) as server:
        app = Sereno(server.url)
        app.migrate()
        app.close()
        yield server.url


@pytest.fixture
def connection(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as opened:
        opened.execute("truncate sereno.jobs, sereno.sessions, sereno.schedules cascade")
        yield opened


def add_idle_worker(connection: psycopg.Connection) -> None:
    """Create an idle session and a scheduler, which would be notified."""
    connection.execute(
        "insert into sereno.sessions (host, pid, version, queues, tasks, idle, lease_until) "
        "values ('h', 1, '0', '{\"default\": 1}', '{work}', true, sereno.now() + interval '1 hour')"
    )
    connection.execute(
        "insert into sereno.leases (name, holder, since, until) values ('scheduler', 'x', sereno.now(), sereno.now()) "
        "on conflict do nothing"
    )


def prepare_and_commit(url: str, action: Callable[[psycopg.Connection], object]) -> None:
    with psycopg.connect(url, autocommit=True) as opened:
        opened.execute("begin")
        action(opened)
        opened.execute("prepare transaction 'one'")
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("commit prepared 'one'")


@pytest.mark.parametrize("kind", ["plain", "keyed", "many", "delayed", "schedule", "sql"])
def test_a_transaction_that_enqueued_can_be_prepared(url: str, connection: psycopg.Connection, kind: str) -> None:
    app = Sereno(url, notify=False)

    @app.task
    async def work(n: int = 0) -> None: ...

    def action(opened: psycopg.Connection) -> None:
        match kind:
            case "plain":
                work.using(opened).enqueue()
            case "keyed":
                work.using(opened, unique_key="k").enqueue()
            case "many":
                app.enqueue_many([work.job(1), work.job(2)], opened)
            case "delayed":
                work.using(opened, delay="1s", tenant="a").enqueue()
            case "schedule":
                app.schedules.upsert("s", work.job(), when=Every("1s"), connection=opened)
            case "sql":
                opened.execute("set local sereno.notify = off")
                opened.execute("select sereno.enqueue('work', '{}')")

    add_idle_worker(connection)
    prepare_and_commit(url, action)
    assert one(connection, "select (select count(*) from sereno.jobs) + (select count(*) from sereno.schedules)") > 0
    app.close()


def test_with_notify_a_transaction_cannot_be_prepared(url: str, connection: psycopg.Connection) -> None:
    app = Sereno(url)

    @app.task
    async def work() -> None: ...

    add_idle_worker(connection)
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        prepare_and_commit(url, lambda opened: work.using(opened).enqueue())
    app.close()


async def test_workers_without_notify_are_never_marked_idle(url: str, connection: psycopg.Connection) -> None:
    app = Sereno(url, notify=False, poll=0.05)

    @app.task
    async def work() -> None: ...

    async with app.working():
        first = await work.aenqueue()
        await auntil(lambda: state(connection, first.id) == "succeeded")
        with psycopg.connect(url, autocommit=True) as plain:
            # From psql, without any setting.
            plain.execute("begin")
            second = one(plain, "select sereno.enqueue('work', '{}')")
            plain.execute("prepare transaction 'two'")
            plain.execute("commit prepared 'two'")
        await auntil(lambda: state(connection, second) == "succeeded")
        assert one(connection, "select count(*) from sereno.sessions where idle") == 0
