"""Directories and servers. A copy of prepared data replaces `initdb` where the creation of data is not the subject."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sereno.database.embedded import EmbeddedPostgres
from tests.database.embedded.server_steps import end_server
from tests.shared_server import MEMORY


@contextmanager
def _open_directory() -> Iterator[Path]:
    """A directory that every user can enter, like that of a project; those of pytest are private.

    It is in memory if possible, because the servers sync their files.
    """
    path = Path(tempfile.mkdtemp(prefix="sereno-test-", dir=MEMORY if MEMORY.is_dir() else None)).resolve()
    path.chmod(0o755)
    yield path
    for left in path.rglob("postmaster.pid"):
        end_server(int(left.read_text().split()[0]))
    shutil.rmtree(path)


@pytest.fixture
def place() -> Iterator[Path]:
    """Return an empty directory."""
    with _open_directory() as path:
        yield path


@pytest.fixture(scope="session")
def put_data() -> Iterator[Callable[[Path], None]]:
    """Return a function that puts the data of a stopped server into a directory: much cheaper than `initdb`."""
    with _open_directory() as path:
        prepared = EmbeddedPostgres(path / ".sereno")
        prepared.start()
        prepared.stop()

        def put(directory: Path) -> None:
            directory.mkdir(exist_ok=True)
            subprocess.run(["cp", "-a", path / ".sereno" / "postgres", directory], check=True)

        yield put


@pytest.fixture(scope="session")
def running(put_data: Callable[[Path], None]) -> Iterator[EmbeddedPostgres]:
    """Return a running server for tests that only read."""
    with _open_directory() as path:
        put_data(path / ".sereno")
        with EmbeddedPostgres(path / ".sereno", parameters={"work_mem": "7MB"}) as server:
            yield server


@pytest.fixture
def directory(place: Path, put_data: Callable[[Path], None]) -> Path:
    """Return the directory of a server that has run before."""
    put_data(place / ".sereno")
    return place / ".sereno"


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
