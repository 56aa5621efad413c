"""The documentation is true: its code runs, its links work, its lists are complete."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from sereno.cli.main import COMMANDS
from tests import warm_process
from tests.docs.pages import PAGES, ROOT, anchors, blocks, links
from tests.facts import one, until
from tests.warm_process import WarmProcess

BLOCKS = [block for page in PAGES for block in blocks(page)]
# Seconds. A program of the documentation takes one; only a broken one takes this long.
TIMEOUT = 100


def run_program(program: Path, database_url: str) -> str:
    command = [sys.executable, program.name]
    ran = warm_process.run(command, cwd=program.parent, env=environment(database_url), timeout=TIMEOUT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def run_tests(program: Path, database_url: str) -> None:
    """Run the tests of a page as its reader does; without schemathesis, which takes longer to start than they run."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", program.name]
    ran = warm_process.run(command, cwd=program.parent, env=environment(database_url), timeout=TIMEOUT)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def environment(database_url: str) -> dict[str, str]:
    return {**os.environ, "SERENO_DATABASE_URL": database_url, "PYTHONPATH": str(ROOT / "src")}


@pytest.mark.slow
def test_every_python_block_compiles(subtests: pytest.Subtests) -> None:
    for block in BLOCKS:
        if block.language == "python":
            with subtests.test(block=str(block)):
                compile(block.code, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_every_python_and_sql_block_is_run() -> None:
    assert [str(b) for b in BLOCKS if b.language in {"python", "sql"} and not b.verb] == []


def test_every_set_up_file_belongs_to_one_block() -> None:
    used = [block.setup.resolve() for block in BLOCKS if block.setup]
    assert sorted(used) == sorted(path for path in (ROOT / "docs" / "blocks").rglob("*.*") if path.is_file())


def page_id(page: Path) -> str:
    """Return the path of a page, such as docs/learn/job, because several pages have the same name."""
    return page.relative_to(ROOT).with_suffix("").as_posix()


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if any(b.verb for b in blocks(p))], ids=page_id)
def test_the_programs_of_a_page_run(
    page: Path, database_url: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    for number, block in enumerate(b for b in blocks(page) if b.verb):
        if block.language == "sql":
            connection.execute(block.whole.encode())
            continue
        path = tmp_path / (block.name or f"program_{number}.py")
        path.write_text(block.whole)
        if block.verb == "pytest":
            run_tests(path, database_url)
        elif block.verb != "file":
            run_program(path, database_url)


@pytest.mark.slow
def test_every_link_of_a_page_has_a_target(subtests: pytest.Subtests) -> None:
    for page in (*PAGES, *sorted((ROOT / "examples").rglob("README.md"))):
        with subtests.test(page=page_id(page)):
            assert [link for link in links(page) if not _has_target(page, link)] == []


def _has_target(page: Path, link: str) -> bool:
    target, _, anchor = link.partition("#")
    path = (page.parent / target).resolve() if target else page
    return path.exists() and (not anchor or anchor in anchors(path))


@pytest.mark.quick
def test_the_first_job_of_the_readme_is_run_by_a_worker(
    database_url: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    (first,) = (b for b in BLOCKS if b.page.name == "README.md" and b.name == "first.py")
    program = tmp_path / "first.py"
    program.write_text(first.code)
    assert "is accepted" in run_program(program, database_url)
    assert "Hello, Ada!" in run_worker(program, database_url, connection)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first.py", "transaction.py", "schedules.py"])
def test_examples_run(name: str, database_url: str, connection: psycopg.Connection) -> None:
    program = ROOT / "examples" / name
    run_program(program, database_url)
    run_worker(program, database_url, connection)
    if name == "transaction.py":
        assert one(connection, "select count(*) from confirmations join orders on orders.id = order_id") == 1


def run_worker(program: Path, database_url: str, connection: psycopg.Connection) -> str:
    """Run a worker as the documentation does, until a job has succeeded; return its output. No job may be left."""
    worker = WarmProcess(
        [sys.executable, "-m", "sereno", "worker", f"{program.name}:app"],
        cwd=program.parent,
        env=environment(database_url),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        until(lambda: one(connection, "select count(*) from sereno.history where state = 'succeeded'"), TIMEOUT)
        worker.send_signal(signal.SIGTERM)
        output: str = worker.communicate(timeout=TIMEOUT)[0]
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
    assert one(connection, "select count(*) from sereno.jobs") == 0
    assert worker.returncode == 0
    return output


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert [name for name in COMMANDS if f"`sereno {name}" not in page] == []


def test_every_exit_code_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert [code for code in (*range(9), 130) if f"| {code} |" not in page] == []
