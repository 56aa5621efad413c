"""`sereno init`: the created project works, and existing files are never touched."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import psycopg
import pytest

from sereno.cli.init import FASTAPI, PLAIN, package_name
from tests import warm_process
from tests.cli.conftest import PROGRAM, Command, process_environment
from tests.facts import one, until
from tests.plain_http import NO_CERTIFICATES
from tests.warm_process import WarmProcess

TIMEOUT = 120
# As for a reader, without schemathesis: it takes longer to start than the tests of the project.
PYTEST = ["pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
_LISTENS = re.compile(r"Uvicorn running on (http://\S+)")


def run(directory: Path, database_url: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the project in its own process, which can import sereno but not this repository's tests."""
    environment = process_environment(SERENO_DATABASE_URL=database_url)
    return warm_process.run([sys.executable, "-m", *words], cwd=directory, env=environment, timeout=TIMEOUT)


@contextmanager
def running(directory: Path, database_url: str, log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as written:
        process = WarmProcess(
            [sys.executable, "-m", *words],
            cwd=directory,
            env=process_environment(SERENO_DATABASE_URL=database_url),
            stdout=written,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT)


def listens_at(server: subprocess.Popen[bytes], log: Path) -> str:
    """Return the URL of the server, empty until the server listens."""
    output = log.read_text()
    assert server.poll() is None, output
    found = _LISTENS.search(output)
    return found[1] if found else ""


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def succeeded(connection: psycopg.Connection) -> int | None:
    found: int | None = one(
        connection, "select count(*) from sereno.history where task = 'greet' and state = 'succeeded'"
    )
    return found


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_plain_project_passes_its_tests_and_its_worker_runs_a_job(
    sereno: Command,
    database_url: str,
    connection: psycopg.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = sereno("init", "My Shop!")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "    cd 'My Shop!'\n    pip install -e '.[dev]'\n    pytest\n" in done.stdout
    project = tmp_path / "My Shop!"
    assert sorted(contents(project)) == sorted(path.format(package="my_shop") for path in PLAIN)
    tested = run(project, database_url, *PYTEST)
    assert (tested.returncode, "3 passed" in tested.stdout) == (0, True), tested.stdout + tested.stderr
    # The application is named in pyproject.toml, so the command needs no -a.
    monkeypatch.chdir(project)
    assert sereno("job", "enqueue", "greet", '{"name": "Ada"}').exit_code == 0
    log = tmp_path / "worker.log"
    with running(project, database_url, log, "sereno", "worker", "my_shop.jobs:app") as worker:
        until(lambda: succeeded(connection))
    assert worker.returncode == 0
    assert "Hello, Ada!" in log.read_text()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_fastapi_project_passes_its_tests_and_runs_a_requested_job(
    sereno: Command, database_url: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    assert sereno("init", "shop", "--fastapi").exit_code == 0
    project = tmp_path / "shop"
    assert sorted(contents(project)) == sorted(path.format(package="shop") for path in FASTAPI)
    # On the embedded PostgreSQL, as in the first steps of its README.
    tested = run(project, "", *PYTEST)
    assert (tested.returncode, "4 passed" in tested.stdout) == (0, True), tested.stdout + tested.stderr
    log = tmp_path / "server.log"
    with (
        running(project, database_url, log, "uvicorn", "shop.web:web", "--port", "0") as server,
        running(project, database_url, tmp_path / "worker.log", "sereno", "worker", "shop.jobs:app"),
    ):
        url = until(lambda: listens_at(server, log))
        with httpx.Client(base_url=url, timeout=30, verify=NO_CERTIFICATES) as http:
            assert http.post("/greetings", json={"name": "Ada"}).status_code == 202
            until(lambda: succeeded(connection))
            # The dashboard is closed until there is a token.
            assert http.get("/sereno/api/v1/status").status_code == 401


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--fastapi"]], ids=["plain", "fastapi"])
def test_the_created_code_is_formatted_and_clean(sereno: Command, tmp_path: Path, flags: list[str]) -> None:
    assert sereno("init", "shop", *flags).exit_code == 0
    for words in (["format", "--check"], ["check", "--select", "E,F,I,B,UP", "--line-length", "120"]):
        checked = subprocess.run(
            [
                sys.executable,
                "-m",
                "ruff",
                *words,
                "--isolated",
                *(["--line-length", "120"] if "format" in words else []),
            ],
            check=False,
            cwd=tmp_path / "shop",
            capture_output=True,
            encoding="utf-8",
        )
        assert checked.returncode == 0, checked.stdout


def test_init_prints_its_result_as_json(sereno: Command, tmp_path: Path) -> None:
    made = sereno("init", "shop", "-o", "json")
    answer = json.loads(made.stdout)
    assert (answer["directory"], answer["package"]) == ("shop", "shop")
    assert sorted(answer["files"]) == sorted(contents(tmp_path / "shop"))
    assert answer["next"][0] == "cd shop"


def test_init_without_a_name_uses_the_current_directory(
    sereno: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "books").mkdir()
    monkeypatch.chdir(tmp_path / "books")
    made = sereno("init")
    assert made.exit_code == 0
    assert "cd " not in made.stdout
    assert (tmp_path / "books" / "books" / "jobs.py").is_file()


def test_other_files_in_the_directory_are_not_changed(sereno: Command, tmp_path: Path) -> None:
    (tmp_path / "shop" / "tests").mkdir(parents=True)
    (tmp_path / "shop" / "LICENSE").write_text("mine")
    (tmp_path / "shop" / "tests" / "test_mine.py").write_text("pass")
    assert sereno("init", "shop").exit_code == 0
    assert (tmp_path / "shop" / "LICENSE").read_text() == "mine"
    assert (tmp_path / "shop" / "tests" / "test_mine.py").read_text() == "pass"
    assert (tmp_path / "shop" / "tests" / "test_jobs.py").is_file()


def test_an_existing_file_is_never_overwritten(sereno: Command, tmp_path: Path) -> None:
    project = tmp_path / "shop"
    (project / "tests").mkdir(parents=True)
    (project / "README.md").write_text("mine")
    (project / "tests" / "test_jobs.py").symlink_to(tmp_path / "elsewhere.py")
    refused = sereno("init", "shop")
    assert refused.exit_code == 8
    assert "shop already has README.md, tests/test_jobs.py;" in refused.stderr
    assert contents(project) == {"README.md": b"mine"}
    assert not (tmp_path / "elsewhere.py").exists()


def test_a_second_init_exits_with_8_and_changes_nothing(sereno: Command, tmp_path: Path) -> None:
    assert sereno("init", "shop").exit_code == 0
    before = contents(tmp_path / "shop")
    assert sereno("init", "shop", "--fastapi").exit_code == 8
    assert contents(tmp_path / "shop") == before


@pytest.mark.parametrize("kind", ["file", "link"])
def test_nothing_is_written_through_a_symlink(sereno: Command, tmp_path: Path, kind: str) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "elsewhere").mkdir()
    if kind == "file":
        (tmp_path / "shop" / "shop").write_text("mine")
    else:
        (tmp_path / "shop" / "shop").symlink_to(tmp_path / "elsewhere")
    refused = sereno("init", "shop")
    assert refused.exit_code == 8
    assert "already has shop;" in refused.stderr
    assert [path.name for path in (tmp_path / "shop").iterdir()] == ["shop"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_in_place_of_the_directory_exits_with_2(sereno: Command, tmp_path: Path) -> None:
    (tmp_path / "shop").write_text("mine")
    assert sereno("init", "shop").exit_code == 2
    assert (tmp_path / "shop").read_text() == "mine"


# Root may write everywhere: the process drops its privileges once it has read the code.
UNPRIVILEGED = """
import os, sys
from sereno.cli import init, main
init._contents(init.PLAIN, "warm")
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
main.main(sys.argv[1:], prog_name="sereno")
"""


def test_a_directory_without_write_permission_exits_with_3() -> None:
    with TemporaryDirectory() as closed:
        Path(closed).chmod(0o555)
        for place in (closed, f"{closed}/deep/down"):
            done = subprocess.run(
                [sys.executable, "-c", UNPRIVILEGED, "init", place],
                check=False,
                env=process_environment(),
                capture_output=True,
                encoding="utf-8",
            )
            assert (done.returncode, done.stdout) == (3, ""), done.stderr
            assert done.stderr.startswith(f"Error: nothing was written: {closed}/")
            assert done.stderr.endswith(": Permission denied\n")
        assert os.listdir(closed) == []  # noqa: PTH208 - its name is a text here


def test_created_files_are_removed_on_an_error(tmp_path: Path) -> None:
    """No file may be longer than a kilobyte: the first ones fit, a later one does not."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "init", "deep/down/shop"],
        check=False,
        cwd=tmp_path,
        env=process_environment(PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        encoding="utf-8",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "Error: nothing was written: deep/down/shop: File too large\n"
    assert list(tmp_path.iterdir()) == []


PACKAGE_NAMES = [
    ("shop", "shop"),
    ("My Shop!", "my_shop"),
    ("ÜBER--shop", "uber_shop"),
    ("2nd", "app_2nd"),
    ("class", "class_app"),
    ("json", "json_app"),
    ("sereno", "sereno_app"),
    ("tests", "tests_app"),
    ("магазин", "app"),
    ("", "app"),
    ("…", "app"),
    ('"; import os; os.system("id") #', "import_os_os_system_id"),
    ("a\nb\x1b[31m\udcff", "a_b_31m"),
    ("x" * 200, "x" * 60),
]


def test_any_directory_name_becomes_an_importable_package_name(subtests: pytest.Subtests) -> None:
    for directory, package in PACKAGE_NAMES:
        with subtests.test(directory=directory):
            assert package_name(directory) == package


def test_a_hostile_name_is_quoted(sereno: Command, tmp_path: Path) -> None:
    hostile = '"]\nname = "evil\x1b[31m$(touch owned)@package@'
    done = sereno("init", hostile)
    assert done.exit_code == 0
    assert "\x1b" not in done.stdout
    project = tmp_path / hostile
    text = (project / "pyproject.toml").read_text()
    assert 'name = "name-evil-31m-touch-owned-package"' in text
    assert not any("\x1b" in path.read_text() for path in project.rglob("*") if path.is_file())
    assert sereno("init", "-o", "json", os.fsdecode(b"\xff\xfe")).exit_code == 0
