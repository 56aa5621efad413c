"""Help, errors and exit codes of the command line."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import psycopg
import pytest
from click.testing import CliRunner

from sereno.cli.main import COMMANDS, main
from tests.cli.conftest import PROGRAM, Command, Process, process_environment
from tests.cli.terminal import on_terminal
from tests.manual_worker import ManualWorker

SLOW = ["psycopg", "asyncio", "rich", "msgspec"]
# The worker command has its own help.
WITH_EXAMPLES = [name for name in COMMANDS if name != "worker"]


def _commands() -> Iterator[list[str]]:
    for name in WITH_EXAMPLES:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ([name, verb] for verb in command.commands)
        else:
            yield [name]


def test_help_names_every_command() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert [name for name in COMMANDS if f"  {name} " not in result.stdout] == []


@pytest.mark.parametrize("words", list(_commands()), ids=" ".join)
def test_the_help_of_every_command_has_an_example(words: list[str]) -> None:
    result = CliRunner().invoke(main, [*words, "--help"], prog_name="sereno")
    assert result.exit_code == 0
    assert f"Example: sereno {' '.join(words)}" in result.stdout


def test_help_and_version_import_nothing_slow() -> None:
    """psycopg, asyncio and rich are imported only by commands that use them."""
    for words in (["--help"], ["job", "list", "--help"], ["version"]):
        program = (
            "import sys\nfrom sereno.cli.main import main\n"
            f"try: main({words!r})\nexcept SystemExit: pass\n"
            f"print(*[name for name in {SLOW!r} if name in sys.modules], file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            encoding="utf-8",
            env=process_environment(),
        )
        assert done.stderr.split() == [], words


def test_a_command_in_a_pipe_never_imports_rich(process: Process, manual: ManualWorker) -> None:
    manual.dead()
    done = process("job", "list", PYTHONVERBOSE="1")
    assert done.returncode == 0
    assert "import 'rich" not in done.stderr


def test_a_usage_error_exits_with_2(process: Process) -> None:
    assert process("job", "nonsense").returncode == 2
    assert process("nonsense").returncode == 2
    assert process("job", "retry").returncode == 2
    assert "--state dead" in process("job", "retry").stderr


def test_a_missing_database_exits_with_3_and_none_is_created(process: Process, tmp_path: Path) -> None:
    done = process("job", "list", SERENO_DATABASE_URL="")
    assert done.returncode == 3
    assert "SERENO_DATABASE_URL" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_invalid_settings_and_applications_exit_with_3(process: Process, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("app = 7\n")
    for words, message in (
        (["--schema", "No Schema"], "lower-case letters"),
        (["-a", "nowhere:app"], "no module named 'nowhere'"),
        (["-a", "missing.py"], "no such file: missing.py"),
        (["-a", "shop:app"], "is a int, not a Sereno"),
        (["-a", "shop:gone"], "does not exist"),
        (["-a", "shop"], "has none"),
    ):
        done = process("status", *words)
        assert done.returncode == 3, done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_an_unreachable_database_exits_with_4(process: Process) -> None:
    done = process("status", "--database-url", "postgresql://user:secret@127.0.0.1:1/x")
    assert done.returncode == 4
    assert "does not answer" in done.stderr
    assert "secret" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2


def test_a_missing_schema_exits_with_5(process: Process, empty_database_url: str) -> None:
    for words in (["status"], ["job", "list"], ["why", "1"], ["migrate", "--check"]):
        done = process(*words, SERENO_DATABASE_URL=empty_database_url)
        assert done.returncode == 5, (words, done.stderr)
        assert "sereno migrate" in done.stderr


def test_an_unhealthy_system_exits_with_6(process: Process, manual: ManualWorker) -> None:
    manual.enqueue(queue="alone")
    done = process("doctor")
    assert done.returncode == 6
    assert "FAIL  queues" in done.stdout


def test_a_command_without_a_match_exits_with_7(sereno: Command) -> None:
    assert sereno("job", "list").exit_code == 0
    assert sereno("job", "list", "--fail-empty").exit_code == 7
    assert sereno("job", "retry", "--state", "dead", "--yes").exit_code == 0
    assert sereno("job", "retry", "--state", "dead", "--yes", "--fail-empty").exit_code == 7
    assert sereno("job", "retry", "99").exit_code == 7
    assert sereno("job", "show", "99").exit_code == 7


def test_a_refused_change_exits_with_8(process: Process, manual: ManualWorker) -> None:
    job_id = manual.dead()
    done = process("job", "retry", "--state", "dead")
    assert done.returncode == 8
    assert "--yes" in done.stderr
    assert manual.state(job_id) == "dead"


def test_an_interrupted_command_exits_with_130(database_url: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "top", "--every", "0.1"],
        cwd=tmp_path,
        env=process_environment(SERENO_DATABASE_URL=database_url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as running:
        assert running.stdout is not None
        assert "finished/s" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "Traceback" not in errors


def test_a_traceback_is_printed_only_on_request(process: Process, manual: ManualWorker) -> None:
    manual.connection.execute("alter table sereno.audit drop column actor cascade")
    job_id = manual.dead()
    quiet = process("job", "delete", str(job_id), SERENO_LOG_LEVEL="")
    assert quiet.returncode != 0
    assert "Traceback" not in quiet.stderr
    for done in (
        process("job", "delete", str(job_id), "-v"),
        process("job", "delete", str(job_id), SERENO_LOG_LEVEL="debug"),
    ):
        assert "Traceback" in done.stderr


def test_a_closed_pipe_is_no_error(process: Process, manual: ManualWorker, database_url: str) -> None:
    manual.connection.execute(
        "insert into sereno.jobs (task, state, ready_seq) select 'greet', 'ready', n from generate_series(1, 1000) n"
    )
    command = f'{sys.executable} -c "{PROGRAM}" job list -n 1000 -o jsonl | head -1'
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        check=False,
        capture_output=True,
        encoding="utf-8",
        env=process_environment(SERENO_DATABASE_URL=database_url),
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_tables_on_a_terminal_have_colours_unless_no_color_is_set(
    manual: ManualWorker, database_url: str, tmp_path: Path, no_color: str, coloured: bool
) -> None:
    manual.dead()
    environment = process_environment(SERENO_DATABASE_URL=database_url, TERM="xterm-256color", COLUMNS="150")
    if no_color:
        environment["NO_COLOR"] = no_color
    for words in (["job", "list"], ["doctor"]):
        screen = on_terminal(words, environment, tmp_path, check=False)
        assert ("\x1b[3" in screen or "\x1b[1;3" in screen) is coloured, screen
        assert "\t" not in screen


def test_an_application_names_its_own_database(process: Process, database_url: str, tmp_path: Path) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("select sereno.enqueue('greet')")
    (tmp_path / "jobs_of_shop.py").write_text(f"from sereno import Sereno\napp = Sereno({database_url!r})\n")
    for path in ("jobs_of_shop:app", "jobs_of_shop.py:app", "jobs_of_shop.py", "jobs_of_shop"):
        done = process("job", "list", SERENO_DATABASE_URL="", SERENO_APP=path)
        assert done.returncode == 0, done.stderr
        assert "greet" in done.stdout
