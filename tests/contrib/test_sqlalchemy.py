"""Jobs and notifications in the transaction of a SQLAlchemy session: committed or rolled back with its rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Engine, create_engine, select
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

from sereno import ConfigurationError, Sereno, Task, in_app
from sereno.contrib.sqlalchemy import address
from sereno.notifications.event_handle import Event
from tests.facts import one
from tests.jobs.enqueue.ways import sqlalchemy_url


class Base(DeclarativeBase):
    pass


class Order(Base):
    """An order of the shop."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[int]


@dataclass
class Bought:
    """The payload of the event."""

    order: int


@pytest.fixture
def confirm(app: Sereno) -> Task[[int], None]:
    @app.task
    def confirm(order: int) -> None: ...

    return confirm


@pytest.fixture
def bought(app: Sereno) -> Event[Bought]:
    return app.event("order.bought", Bought, channels=[in_app])


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = create_engine(sqlalchemy_url(database_url, "psycopg"))
    Base.metadata.create_all(made)
    yield made
    made.dispose()


def written(connection: psycopg.Connection) -> tuple[int, int, int]:
    """Return the number of orders, of jobs and of events."""
    return (
        one(connection, "select count(*) from orders"),
        one(connection, "select count(*) from sereno.jobs where task = 'confirm'"),
        one(connection, "select count(*) from sereno.events"),
    )


@pytest.mark.slow
@pytest.mark.parametrize("is_rolled_back", [False, True])
def test_a_session_commits_rows_jobs_and_events_together(
    engine: Engine,
    connection: psycopg.Connection,
    confirm: Task[[int], None],
    bought: Event[Bought],
    is_rolled_back: bool,
) -> None:
    with Session(engine) as session:
        order = Order(total=42)
        session.add(order)
        session.flush()
        confirm.using(session).enqueue(order.id)
        bought.notify(Bought(order.id), to="user:7", subject=str(order.id), conn=session)
        assert written(connection) == (0, 0, 0)
        if is_rolled_back:
            session.rollback()
        else:
            session.commit()
    assert written(connection) == ((0, 0, 0) if is_rolled_back else (1, 1, 1))


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("is_rolled_back", [False, True])
async def test_an_async_session_commits_rows_jobs_and_events_together(
    engine: Engine,
    database_url: str,
    connection: psycopg.Connection,
    confirm: Task[[int], None],
    bought: Event[Bought],
    driver: str,
    is_rolled_back: bool,
) -> None:
    asynchronous = create_async_engine(sqlalchemy_url(database_url, driver), poolclass=NullPool)
    async with AsyncSession(asynchronous, expire_on_commit=False) as session:
        order = Order(total=42)
        session.add(order)
        await session.flush()
        await confirm.using(session).aenqueue(order.id)
        await bought.anotify(Bought(order.id), to="user:7", subject=str(order.id), conn=session)
        assert written(connection) == (0, 0, 0)
        await (session.rollback() if is_rolled_back else session.commit())
    assert written(connection) == ((0, 0, 0) if is_rolled_back else (1, 1, 1))


@pytest.mark.slow
def test_a_savepoint_rolls_back_its_own_jobs(
    engine: Engine, connection: psycopg.Connection, confirm: Task[[int], None]
) -> None:
    with Session(engine) as session, session.begin():
        confirm.using(session).enqueue(1)
        with session.begin_nested() as inner:
            confirm.using(session).enqueue(2)
            inner.rollback()
        confirm.using(session).enqueue(3)
    rows = connection.execute("select args -> 'order' from sereno.jobs order by id").fetchall()
    assert rows == [(1,), (3,)]


def test_a_job_is_written_at_once_with_autocommit(
    engine: Engine, connection: psycopg.Connection, confirm: Task[[int], None]
) -> None:
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        confirm.using(session).enqueue(1)
        session.rollback()
    assert written(connection)[1] == 1


def test_a_session_is_unchanged_after_enqueue(engine: Engine, confirm: Task[[int], None]) -> None:
    with Session(engine) as session, session.begin():
        order = Order(total=1)
        session.add(order)
        confirm.using(session).enqueue(1)
        assert session.is_active
        assert session.scalars(select(Order.total)).all() == [1]


def test_a_session_with_binds_can_enqueue(
    engine: Engine, connection: psycopg.Connection, confirm: Task[[int], None]
) -> None:
    with Session(binds={Order: engine}) as session, session.begin():
        with pytest.raises(UnboundExecutionError):
            confirm.using(session).enqueue(1)
        confirm.using(session.connection(bind_arguments={"mapper": Order})).enqueue(2)
    assert written(connection)[1] == 1


async def test_the_sync_session_of_an_async_session_can_enqueue(
    engine: Engine, database_url: str, connection: psycopg.Connection, confirm: Task[[int], None]
) -> None:
    asynchronous = create_async_engine(sqlalchemy_url(database_url, "asyncpg"), poolclass=NullPool)
    async with AsyncSession(asynchronous) as session, session.begin():
        await session.run_sync(lambda inner: confirm.using(inner).enqueue(1))
        assert written(connection)[1] == 0
    assert written(connection)[1] == 1


def test_an_engine_has_a_database_url(database_url: str, engine: Engine) -> None:
    with psycopg.connect(address(engine)) as found:
        assert found.info.dbname == conninfo_to_dict(database_url)["dbname"]
    other = create_async_engine(
        "postgresql+asyncpg://u:p%40ss@db:6432/shop?ssl=require&prepared_statement_cache_size=0"
    )
    assert address(other) == "postgresql://u:p%40ss@db:6432/shop?sslmode=require"
    with pytest.raises(ConfigurationError, match="sqlite"):
        address(create_engine("sqlite://"))
