"""The documentation is true: its code runs, its links work, its lists are complete."""

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import psycopg
import pytest

from sereno.cli.main import COMMANDS
from sereno.jobs.attempt import Settlement
from tests.docs.pages import PAGES, ROOT, Block, anchors, blocks, links
from tests.facts import one, until

BLOCKS = [block for page in PAGES for block in blocks(page)]
# Seconds. A program of the documentation takes one; only a broken one takes this long.
TIMEOUT = 100
# As for a reader, without schemathesis: it takes longer to start than any of these tests.
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"]


def run_program(path: Path, database_url: str, *options: str) -> str:
    ran = subprocess.run(
        [sys.executable, *options, path.name],
        cwd=path.parent,
        env=environment(database_url),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def environment(database_url: str) -> dict[str, str]:
    return {**os.environ, "SERENO_DATABASE_URL": database_url, "PYTHONPATH": str(ROOT / "src")}


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "python"], ids=str)
def test_every_python_block_compiles(block: Block) -> None:
    compile(block.code, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_every_python_and_sql_block_is_run() -> None:
    assert [str(b) for b in BLOCKS if b.language in {"python", "sql"} and not b.verb] == []


def test_every_set_up_file_belongs_to_one_block() -> None:
    used = [block.setup.resolve() for block in BLOCKS if block.setup]
    assert sorted(used) == sorted(path for path in (ROOT / "docs" / "blocks").rglob("*.*") if path.is_file())


def page_id(page: Path) -> str:
    """Return the path of a page, such as docs/learn/job, because several pages have the same name."""
    return page.relative_to(ROOT).with_suffix("").as_posix()


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
        if block.verb != "file":
            options = PYTEST if block.verb == "pytest" else []
            run_program(path, database_url, *options)


@pytest.mark.parametrize("page", [*PAGES, *sorted((ROOT / "examples").glob("*/README.md"))], ids=page_id)
def test_every_link_of_a_page_has_a_target(page: Path) -> None:
    broken = []
    for link in links(page):
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(link)
    assert broken == []


@pytest.mark.acceptance
def test_the_first_job_of_the_readme_is_run_by_a_worker(
    database_url: str, connection: psycopg.Connection, tmp_path: Path
) -> None:
    (first,) = (b for b in BLOCKS if b.page.name == "README.md" and b.name == "first.py")
    program = tmp_path / "first.py"
    program.write_text(first.code)
    assert "is accepted" in run_program(program, database_url)
    assert "Hello, Ada!" in run_worker(program, database_url, connection)


@pytest.mark.acceptance
@pytest.mark.parametrize("name", ["first.py", "transaction.py", "schedules.py"])
def test_examples_run(name: str, database_url: str, connection: psycopg.Connection) -> None:
    program = ROOT / "examples" / name
    run_program(program, database_url)
    run_worker(program, database_url, connection)
    if name == "transaction.py":
        assert one(connection, "select count(*) from confirmations join orders on orders.id = order_id") == 1


def run_worker(program: Path, database_url: str, connection: psycopg.Connection) -> str:
    """Run a worker as the documentation does, until a job has succeeded; return its output. No job may be left."""
    worker = subprocess.Popen(
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
        output, _ = worker.communicate(timeout=TIMEOUT)
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
    assert one(connection, "select count(*) from sereno.jobs") == 0
    assert worker.returncode == 0
    return output


def emitted_events() -> set[str]:
    """Return every event name in the sources; a name that is built from an outcome counts as one for each outcome."""
    names: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id == "emit":
                names |= event_names(call.args[1], path)
            names |= logged_event(call)
    return names


def logged_event(call: ast.Call) -> set[str]:
    """Return the event of a log call that names it: `ctx.log.info(…, extra={"event": "archive.moved"})`."""
    return {
        value.value
        for extra in call.keywords
        if extra.arg == "extra" and isinstance(extra.value, ast.Dict)
        for key, value in zip(extra.value.keys, extra.value.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "event"
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }


def event_names(argument: ast.expr, path: Path) -> set[str]:
    match argument:
        case ast.Constant(value=str(name)):
            return {name}
        case ast.JoinedStr():
            # f"job.{outcome}", the only name that is built.
            return {f"job.{outcome}" for outcome in get_args(get_type_hints(Settlement)["outcome"])}
        case _:
            # A parameter: every dotted word in the file is an event.
            return set(re.findall(r'"([a-z]+\.[a-z_]+)"', path.read_text()))


def test_every_event_is_documented() -> None:
    page = (ROOT / "docs" / "operate" / "worker-in-production.md").read_text()
    events = emitted_events()
    assert len(events) > 20
    assert sorted(event for event in events if f"`{event}`" not in page) == []


def test_every_documented_event_exists() -> None:
    page = (ROOT / "docs" / "operate" / "worker-in-production.md").read_text()
    documented = re.findall(r"^\| `([a-z]+\.[a-z_]+)` \|", page, re.MULTILINE)
    assert sorted(set(documented) - emitted_events() - {"job.log"}) == []


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert [name for name in COMMANDS if f"`sereno {name}" not in page] == []


def test_every_exit_code_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert [code for code in (*range(9), 130) if f"| {code} |" not in page] == []
