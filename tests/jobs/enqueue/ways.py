"""The supported connections of a caller, each in a transaction that is committed or rolled back."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import django
import psycopg
from django.conf import settings as django_settings
from django.db import connections as django_connections
from django.db import transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool


class ChangedMyMindError(Exception):
    """Raised inside a transaction to roll it back."""


SyncMethod = Callable[[str], AbstractContextManager[Any]]
AsyncMethod = Callable[[str], AbstractAsyncContextManager[Any]]


def sqlalchemy_url(url: str, driver: str) -> str:
    parts = conninfo_to_dict(url)
    socket = f"?host={parts['host']}" if str(parts["host"]).startswith("/") else ""
    place = "" if socket else f"{parts['host']}:{parts.get('port', 5432)}"
    port = f"&port={parts['port']}" if socket and parts.get("port") else ""
    return f"postgresql+{driver}://{parts['user']}@{place}/{parts['dbname']}{socket}{port}"


@contextmanager
def with_psycopg(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection, connection.transaction():
        yield connection


@contextmanager
def with_sqlalchemy_connection(url: str) -> Iterator[Any]:
    engine = create_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool)
    with engine.begin() as connection:
        yield connection


@contextmanager
def with_sqlalchemy_session(url: str) -> Iterator[Any]:
    engine = create_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        yield session


@contextmanager
def with_scoped_session(url: str) -> Iterator[Any]:
    engine = create_engine(sqlalchemy_url(url, "psycopg"), poolclass=NullPool)
    scoped = scoped_session(sessionmaker(engine))
    try:
        with scoped.begin():
            yield scoped
    finally:
        scoped.remove()


@contextmanager
def with_django(url: str) -> Iterator[Any]:
    if not django_settings.configured:
        django_settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}})
        django.setup()
    connection = django_connections["default"]
    connection.close()
    parts: Mapping[str, Any] = conninfo_to_dict(url)
    connection.settings_dict |= {"NAME": parts["dbname"], "USER": parts["user"], "HOST": parts["host"]}
    connection.settings_dict["PORT"] = parts.get("port") or ""
    try:
        with transaction.atomic():
            yield connection
    finally:
        connection.close()


@asynccontextmanager
async def with_async_psycopg(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection, connection.transaction():
        yield connection


@asynccontextmanager
async def with_asyncpg(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def with_asyncpg_pool(url: str) -> AsyncIterator[Any]:
    pool = asyncpg.create_pool(url, min_size=1, max_size=1)
    async with pool, pool.acquire() as connection, connection.transaction():
        yield connection


def with_async_engine(driver: str) -> AsyncMethod:
    @asynccontextmanager
    async def opens(url: str) -> AsyncIterator[Any]:
        engine = create_async_engine(sqlalchemy_url(url, driver), poolclass=NullPool)
        async with engine.begin() as connection:
            yield connection

    return opens


def with_async_session(driver: str) -> AsyncMethod:
    @asynccontextmanager
    async def opens(url: str) -> AsyncIterator[Any]:
        engine = create_async_engine(sqlalchemy_url(url, driver), poolclass=NullPool)
        async with AsyncSession(engine) as session, session.begin():
            yield session

    return opens


SYNC_METHODS: dict[str, SyncMethod] = {
    "psycopg": with_psycopg,
    "sqlalchemy connection": with_sqlalchemy_connection,
    "sqlalchemy session": with_sqlalchemy_session,
    "sqlalchemy scoped session": with_scoped_session,
    "django": with_django,
}

ASYNC_METHODS: dict[str, AsyncMethod] = {
    "psycopg": with_async_psycopg,
    "asyncpg": with_asyncpg,
    "asyncpg pool": with_asyncpg_pool,
    "sqlalchemy connection on psycopg": with_async_engine("psycopg"),
    "sqlalchemy connection on asyncpg": with_async_engine("asyncpg"),
    "sqlalchemy session on psycopg": with_async_session("psycopg"),
    "sqlalchemy session on asyncpg": with_async_session("asyncpg"),
}
