"""The data of a server survives restarts and kills; incomplete, deleted and older data is handled."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sereno.database.embedded import EmbeddedPostgres
from sereno.database.embedded.programs import wheel_bin_dir
from tests.database.embedded.server_steps import end_server, execute, query, server_process

pytestmark = pytest.mark.slow

DEBIAN_BIN_DIRS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


def test_data_survives_a_restart(directory: Path) -> None:
    with EmbeddedPostgres(directory) as server:
        execute(server.url, "create table stored as select 42 as answer")
    with EmbeddedPostgres(directory) as server:
        assert query(server.url, "select answer from stored") == "42"


def test_a_killed_server_starts_again_with_its_data(directory: Path) -> None:
    server = EmbeddedPostgres(directory)
    url = server.start()
    execute(url, "create table stored as select 42 as answer")
    os.kill(server_process(url), signal.SIGKILL)
    server.stop()
    with server:
        assert query(server.url, "select answer from stored") == "42"


def test_a_reused_process_id_does_not_prevent_a_start(directory: Path) -> None:
    with EmbeddedPostgres(directory) as server:
        postmaster_file = Path(query(server.url, "show data_directory")) / "postmaster.pid"
        lines = postmaster_file.read_text().splitlines()
        owner = postmaster_file.stat().st_uid
    account = owner if os.geteuid() == 0 else None
    # PostgreSQL trusts the file if it may signal the process, so this process has the server's user.
    with subprocess.Popen(["sleep", "600"], user=account) as other:
        try:
            socket_lock = postmaster_file.parents[1] / ".s.PGSQL.5432.lock"
            for left in (postmaster_file, socket_lock):
                left.write_text("\n".join([str(other.pid), *lines[1:]]) + "\n")
                os.chown(left, owner, -1)
            with EmbeddedPostgres(directory) as server:
                assert server_process(server.url) != other.pid
            assert other.poll() is None
        finally:
            other.kill()


def test_incomplete_data_is_created_again(place: Path) -> None:
    half = place / ".sereno" / "postgres.unfinished" / "data"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    with EmbeddedPostgres(place / ".sereno") as server:
        assert query(server.url, "select 1") == "1"


def test_a_server_whose_directory_was_deleted_stops_without_error(directory: Path) -> None:
    server = EmbeddedPostgres(directory)
    process = server_process(server.start())
    shutil.rmtree(directory)
    server.stop()
    end_server(process)


def test_a_user_of_a_deleted_server_does_not_stop_the_new_one(
    directory: Path, put_data: Callable[[Path], None]
) -> None:
    old = EmbeddedPostgres(directory)
    process = server_process(old.start())
    shutil.rmtree(directory)
    put_data(directory)
    with EmbeddedPostgres(directory) as new:
        old.stop()
        assert query(new.url, "select 1") == "1"
    end_server(process)


def test_data_of_an_older_version_is_opened_by_that_version(place: Path) -> None:
    newest = wheel_bin_dir()
    older = [path for path in newest.parents[1].glob("pginstall*/bin") if path != newest]
    if not older:
        pytest.skip("the wheel has one version only")
    with EmbeddedPostgres(place / ".sereno", bin_dir=older[0]) as server:
        version = query(server.url, "show server_version")
    with EmbeddedPostgres(place / ".sereno") as server:
        assert query(server.url, "show server_version") == version


@pytest.mark.parametrize("bin_dir", DEBIAN_BIN_DIRS, ids=str)
def test_any_other_postgres_can_be_used(place: Path, bin_dir: Path) -> None:
    with EmbeddedPostgres(place / ".sereno", bin_dir=bin_dir) as server:
        assert server.bin_dir == bin_dir
        assert query(server.url, "show server_version_num").startswith(bin_dir.parent.name)
