"""Steps that the tests of the embedded PostgreSQL share: queries, and processes that use or stop a server."""

import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

import sereno
from tests import warm_process
from tests.facts import is_gone
from tests.warm_process import WarmProcess

SOURCE = Path(sereno.__file__).parent.parent
DEADLINE_SECONDS = 60

# Uses the server until standard input is closed, then exits without calling stop().
USER = """
import sys
from pathlib import Path
from sereno.database.embedded import EmbeddedPostgres
print(EmbeddedPostgres(Path(sys.argv[1])).start(), flush=True)
sys.stdin.read()
"""


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
    with WarmProcess(
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
    command = [sys.executable, "-c", program, *arguments]
    return warm_process.run(command, env=environment(), timeout=DEADLINE_SECONDS)


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
