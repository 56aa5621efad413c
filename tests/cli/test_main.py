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
from tests.cli.terminal import screen
from tests.manual_worker import ManualWorker
from tests.warm_process import WarmProcess

SLOW = ["psycopg", "asyncio", "rich", "msgspec"]
# Commands whose modules import the engine.
START_THE_ENGINE = {"demo", "run"}
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


@pytest.mark.slow
def test_the_help_of_every_command_has_an_example(subtests: pytest.Subtests) -> None:
    for words in _commands():
        with subtests.test(command=" ".join(words)):
            result = CliRunner().invoke(main, [*words, "--help"], prog_name="sereno")
            assert result.exit_code == 0
            assert f"Example: sereno {' '.join(words)}" in result.stdout


HELP = """
import sys
from sereno.cli.main import main
for words in sys.argv[1:]:
    try: main(words.split())
    except SystemExit as ended: assert not ended.code, words
    print(*[f"{words}: {name}" for name in %r if name in sys.modules], sep="\\n", file=sys.stderr)
"""


def test_help_and_version_import_nothing_slow() -> None:
    """psycopg, asyncio and rich are imported only by commands that use them. One process prints all the help."""
    commands = [" ".join(words) for words in _commands() if words[0] not in START_THE_ENGINE]
    calls = ["--help", "version", "schedule --help", *(f"{command} --help" for command in commands)]
    done = subprocess.run(
        [sys.executable, "-c", HELP % SLOW, *calls],
        check=True,
        capture_output=True,
        encoding="utf-8",
        env=process_environment(),
    )
    assert done.stderr.split() == []


@pytest.mark.slow
def test_a_command_in_a_pipe_never_imports_rich(database_url: str, manual: ManualWorker) -> None:
    manual.dead()
    done = subprocess.run(
        [sys.executable, "-v", "-c", PROGRAM, "job", "list"],
        check=True,
        capture_output=True,
        encoding="utf-8",
        env=process_environment(SERENO_DATABASE_URL=database_url),
    )
    assert "import 'click" in done.stderr
    assert "import 'rich" not in done.stderr


def test_a_usage_error_exits_with_2(sereno: Command) -> None:
    assert sereno("job", "nonsense").exit_code == 2
    assert sereno("nonsense").exit_code == 2
    refused = sereno("job", "retry")
    assert refused.exit_code == 2
    assert "--state dead" in refused.stderr


def test_a_missing_database_exits_with_3_and_none_is_created(sereno: Command, tmp_path: Path) -> None:
    done = sereno("job", "list", SERENO_DATABASE_URL="")
    assert done.exit_code == 3
    assert "SERENO_DATABASE_URL" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_invalid_settings_and_applications_exit_with_3(sereno: Command, tmp_path: Path) -> None:
    (tmp_path / "no_app.py").write_text("app = 7\n")
    for words, message in (
        (["--schema", "No Schema"], "lower-case letters"),
        (["-a", "nowhere:app"], "no module named 'nowhere'"),
        (["-a", "missing.py"], "no such file: missing.py"),
        (["-a", "no_app:app"], "is of type int, not Sereno"),
        (["-a", "no_app:gone"], "does not exist"),
        (["-a", "no_app"], "has none"),
    ):
        done = sereno("status", *words)
        assert done.exit_code == 3, done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.quick
def test_an_unreachable_database_exits_with_4(process: Process) -> None:
    done = process("status", "--database-url", "postgresql://user:secret@127.0.0.1:1/x")
    assert done.returncode == 4
    assert "no connection to PostgreSQL" in done.stderr
    assert "check the URL (that of sereno is SERENO_DATABASE_URL)" in done.stderr
    assert "secret" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2


def test_a_missing_schema_exits_with_5(sereno: Command, empty_database_url: str) -> None:
    for words in (["status"], ["job", "list"], ["why", "1"], ["migrate", "--check"]):
        done = sereno(*words, SERENO_DATABASE_URL=empty_database_url)
        assert done.exit_code == 5, (words, done.stderr)
        assert "sereno migrate" in done.stderr


def test_an_unhealthy_system_exits_with_6(sereno: Command, manual: ManualWorker) -> None:
    manual.enqueue(queue="alone")
    done = sereno("doctor")
    assert done.exit_code == 6
    assert "FAIL  queues" in done.stdout


def test_a_command_without_a_match_exits_with_7(sereno: Command) -> None:
    assert sereno("job", "list").exit_code == 0
    assert sereno("job", "list", "--fail-empty").exit_code == 7
    assert sereno("job", "retry", "--state", "dead", "--yes").exit_code == 0
    assert sereno("job", "retry", "--state", "dead", "--yes", "--fail-empty").exit_code == 7
    assert sereno("job", "retry", "99").exit_code == 7
    shown = sereno("job", "show", "99")
    assert shown.exit_code == 7
    assert "sereno why ID" in shown.stderr
    unknown = sereno("trace", "unknown")
    assert unknown.exit_code == 7
    assert "--subject" in unknown.stderr


def test_an_unknown_command_is_answered_with_a_similar_one(sereno: Command) -> None:
    for words, similar in ((["jobs"], "job"), (["job", "lst"], "list"), (["statsu"], "status")):
        done = sereno(*words)
        assert done.exit_code == 2
        assert f"'{similar}'" in done.stderr, done.stderr


def test_a_refused_change_exits_with_8(sereno: Command, manual: ManualWorker) -> None:
    job_id = manual.dead()
    done = sereno("job", "retry", "--state", "dead")
    assert done.exit_code == 8
    assert "--yes" in done.stderr
    assert manual.state(job_id) == "dead"


def test_an_interrupted_command_exits_with_130(database_url: str, tmp_path: Path) -> None:
    with WarmProcess(
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


def test_a_traceback_is_printed_only_on_request(sereno: Command, manual: ManualWorker) -> None:
    manual.connection.execute("alter table sereno.audit drop column actor cascade")
    words = ["job", "delete", str(manual.dead())]
    quiet = sereno(*words, SERENO_LOG_LEVEL="")
    assert isinstance(quiet.exception, SystemExit)
    assert quiet.exit_code != 0
    # The interpreter prints the traceback of an error that is not handled.
    assert isinstance(sereno(*words, SERENO_LOG_LEVEL="debug").exception, psycopg.errors.UndefinedColumn)
    assert isinstance(sereno(*words, "-v").exception, psycopg.errors.UndefinedColumn)


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(manual: ManualWorker, database_url: str) -> None:
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


def test_tables_on_a_terminal_have_colours_unless_no_color_is_set(
    manual: ManualWorker, database_url: str, tmp_path: Path
) -> None:
    manual.dead()
    for words in (["job", "list"], ["doctor"]):
        for is_coloured in (True, False):
            shown = screen(words, database_url, tmp_path, 150, is_coloured=is_coloured)
            assert _has_colours(shown) is is_coloured, shown
            assert "\t" not in shown


def _has_colours(shown: str) -> bool:
    return "\x1b[3" in shown or "\x1b[1;3" in shown


def test_an_application_names_its_own_database(sereno: Command, database_url: str, tmp_path: Path) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("select sereno.enqueue('greet')")
    (tmp_path / "jobs_of_shop.py").write_text(f"from sereno import Sereno\napp = Sereno({database_url!r})\n")
    for path in ("jobs_of_shop:app", "jobs_of_shop.py:app", "jobs_of_shop.py", "jobs_of_shop"):
        done = sereno("job", "list", SERENO_DATABASE_URL="", SERENO_APP=path)
        assert done.exit_code == 0, done.stderr
        assert "greet" in done.stdout
