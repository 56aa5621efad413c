"""Schedules are exported as JSON lines and imported unchanged; an invalid line does not stop the others."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Command
from tests.cli.schedules.schedule_steps import APPLICATION, add
from tests.facts import one
from tests.schedules.importers.celery_tables import TABLES, USUAL, crontab, insert

DAILY = {"kind": "daily", "at": "03:00"}
# The definition of a schedule, without its runs, author and times.
DEFINITION = """
    select to_jsonb(s) - array['id', 'created_at', 'changed_at', 'changed_by', 'next_run_at', 'state', 'note']
    from sereno.schedules s order by key
"""


def line(key: str = "k", **fields: Any) -> str:
    return json.dumps({"key": key, "task": "work", "when": DAILY} | fields)


def write(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def report(sereno: Command, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sereno("schedule", "import", "-o", "json", *words).stdout)
    return found


def count(connection: psycopg.Connection) -> Any:
    return one(connection, "select count(*) from sereno.schedules")


def test_an_export_is_imported_unchanged(sereno: Command, connection: psycopg.Connection, tmp_path: Path) -> None:
    everything = ["--missed", "all", "--missed-limit", "7", "--missed-window", "1h", "--overlap", "allow"]
    everything += ["--max-lateness", "90s", "--max-fires", "9", "--disable-after", "3", "--expires-after", "1d"]
    everything += ["--starts", "2090-01-01", "--ends", "2091-01-01", "--tenant", "r1", "--tag", "a", "--queue", "q"]
    everything += ["--unique-key", "{key}", "--unique-for", "2h", "--args", '{"a": [1, null, "é"]}', "--priority", "0"]
    add(sereno, "everything", "--daily", "03:00", "--tz", "Europe/Riga", "--spread", "20m", *everything)
    add(sereno, "forever", "--every", "90s", "--unique-key", "k", "--unique-for", "forever")
    add(sereno, "cron", "--cron", "0 3 * * *", "--dst-gap", "skip")
    add(sereno, "once", "--at", "2090-01-01")
    before = connection.execute(DEFINITION).fetchall()
    text = sereno("schedule", "export").stdout
    assert len(text.splitlines()) == 4
    path = tmp_path / "all.jsonl"
    path.write_text(text)
    assert report(sereno, str(path))["unchanged"] == 4
    connection.execute("delete from sereno.schedules")
    assert report(sereno, str(path))["created"] == 4
    assert connection.execute(DEFINITION).fetchall() == before
    assert sereno("schedule", "export").stdout == text


def test_export_by_a_pattern(sereno: Command) -> None:
    add(sereno, "a:1", "--daily", "03:00")
    add(sereno, "b:1", "--daily", "03:00")
    (only,) = sereno("schedule", "export", "a:*").stdout.splitlines()
    assert json.loads(only)["key"] == "a:1"
    none = sereno("schedule", "export", "c:*")
    assert (none.exit_code, none.stdout) == (0, "")
    assert "No schedule matches." in none.stderr


@pytest.mark.slow
def test_export_of_more_than_a_page_is_complete(
    sereno: Command, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute(
        "select sereno.schedule('k' || n, 'work', cron => '0 * * * *') from generate_series(1, 2500) as n"
    )
    text = sereno("schedule", "export").stdout
    keys = [json.loads(each)["key"] for each in text.splitlines()]
    assert len(keys) == len(set(keys)) == 2500
    connection.execute("delete from sereno.schedules")
    path = tmp_path / "many.jsonl"
    path.write_text(text)
    assert report(sereno, str(path))["created"] == 2500
    assert count(connection) == 2500


def test_a_paused_schedule_is_imported_as_disabled(
    sereno: Command, connection: psycopg.Connection, tmp_path: Path
) -> None:
    for key, verb in (("paused", "pause"), ("disabled", "disable")):
        add(sereno, key, "--daily", "03:00")
        sereno("schedule", verb, key, "--note", "holidays")
    path = write(tmp_path / "f", sereno("schedule", "export").stdout)
    assert report(sereno, path)["unchanged"] == 2
    states = connection.execute("select state, note from sereno.schedules order by key").fetchall()
    assert states == [("disabled", "holidays"), ("paused", "holidays")], "an import does not undo a pause of a user"
    sereno("schedule", "resume", "*", "--yes")
    assert report(sereno, path)["changed"] == 2
    connection.execute("delete from sereno.schedules")
    assert report(sereno, path)["created"] == 2
    states = connection.execute("select state, note, next_run_at from sereno.schedules").fetchall()
    assert states == [("disabled", "holidays", None)] * 2


BAD = [
    ("nonsense", "not JSON"),
    ("[1]", "a schedule must be a JSON object"),
    ("{}", "it needs a key"),
    (line(key=7), "key is a text"),  # type: ignore[arg-type]  # hostile
    (line(task=None), "it needs a task"),
    (line(when=None), "it needs a when"),
    (line(when={"kind": "daily", "at": "25:00"}), "hour 25 is out of range"),
    (line(when={"kind": "once", "at": "2020-01-01T00:00:00Z"}), "all past"),
    (line(zap=1), "there is no field 'zap'"),
    (line(args=[]), "args is an object"),
    (line(args={"a": "\x00"}), "NUL"),
    (line(enabled="no"), "enabled must be true or false"),
    (line(note=7), "note 7"),
    (line(priority=11), "priority 11"),
    (line(missed="all"), "overlap"),
    (line(starts_at="soon"), "starts_at 'soon'"),
    (line(key="a\ud800"), "surrogate"),
    ("[" * 100_000, "not JSON"),
]


@pytest.mark.slow
def test_an_invalid_line_is_refused_with_its_number_and_the_others_are_imported(
    sereno: Command, connection: psycopg.Connection, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for bad, message in BAD:
        with subtests.test(message=message):
            connection.execute("delete from sereno.schedules")
            path = write(tmp_path / "f", line("a"), "", bad, line("b"))
            result = sereno("schedule", "import", path)
            assert result.exit_code == 2
            assert "Created 2, changed 0, unchanged 0, refused 1." in result.stdout
            assert "refused line 3: " in result.stderr
            assert message in result.stderr
            assert count(connection) == 2
            strict = sereno("schedule", "import", path, "--strict")
            assert strict.exit_code == 2
            assert "line 3: " in strict.stderr
            assert "nothing was imported" in strict.stderr


@pytest.mark.slow
def test_a_strict_import_writes_all_or_nothing(sereno: Command, connection: psycopg.Connection, tmp_path: Path) -> None:
    lines = [line(f"k{number}") for number in range(1500)]
    path = write(tmp_path / "f", *lines, line("past", when={"kind": "once", "at": "2020-01-01T00:00:00Z"}))
    assert sereno("schedule", "import", path, "--strict").exit_code == 2
    assert count(connection) == 0
    assert sereno("schedule", "import", write(tmp_path / "f", *lines), "--strict").exit_code == 0
    assert count(connection) == 1500


def test_a_dry_run_counts_changes_and_makes_none(
    sereno: Command, connection: psycopg.Connection, tmp_path: Path
) -> None:
    add(sereno, "same", "--daily", "03:00")
    add(sereno, "other", "--daily", "04:00")
    before = connection.execute("select to_jsonb(s) from sereno.schedules s order by key").fetchall()
    path = write(tmp_path / "f", line("same"), line("other"), line("new"), "{")
    result = sereno("schedule", "import", path, "--dry-run")
    assert "Would create 1, change 1, leave unchanged 1, refuse 1." in result.stdout
    assert "would change other\n" in result.stderr
    assert "line 4: not JSON" in result.stderr
    assert report(sereno, path, "--dry-run")["changed_keys"] == ["other"]
    assert connection.execute("select to_jsonb(s) from sereno.schedules s order by key").fetchall() == before


def test_a_repeated_key_is_refused(sereno: Command, tmp_path: Path) -> None:
    path = write(tmp_path / "f", line("k"), line("k", tenant="r2"))
    (refused,) = report(sereno, path)["refused"]
    assert (refused["line"], refused["key"]) == (2, "k")
    assert "line 1" in refused["problem"]


def test_many_refused_lines_are_counted(sereno: Command, tmp_path: Path) -> None:
    result = sereno("schedule", "import", write(tmp_path / "f", *["{"] * 50))
    assert result.stderr.count("not JSON") == 20
    assert "… and 30 more" in result.stderr


def test_only_the_schedule_that_the_database_refuses_is_refused(
    sereno: Command, connection: psycopg.Connection, tmp_path: Path
) -> None:
    connection.execute("alter table sereno.schedules add constraint no_k77 check (key <> 'k77')")
    found = report(sereno, write(tmp_path / "f", *[line(f"k{number}") for number in range(300)]))
    assert found["created"] == 299
    assert [(refused["line"], refused["key"]) for refused in found["refused"]] == [(78, "k77")]


def test_jobs_are_checked_where_there_is_an_application(sereno: Command, tmp_path: Path) -> None:
    (tmp_path / "menus.py").write_text(APPLICATION)
    good = line("good", task="refresh_menu", args={"store": 1})
    path = write(tmp_path / "f", good, line("bad", task="refresh_menu", args={"store": "x"}), line("unknown"))
    found = report(sereno, path, "-a", "menus.py")
    assert found["created"] == 1
    assert [refused["key"] for refused in found["refused"]] == ["bad", "unknown"]
    assert found["refused"][1]["problem"].startswith("no task named work")
    message = sereno("schedule", "import", path, "-a", "menus.py").stderr
    assert "refused line 3: schedule 'unknown': no task named work" in message
    assert "not checked" in sereno("schedule", "import", write(tmp_path / "f", line("x"))).stderr


def test_import_reads_stdin_or_one_source(sereno: Command, tmp_path: Path) -> None:
    assert sereno("schedule", "import", "-").exit_code == 0
    for words, message in (
        ([], "Name a FILE"),
        (["-", "--from", "pg-cron"], "FILE and --from exclude each other: choose one."),
        (["-", "--source", "x"], "--from"),
    ):
        result = sereno("schedule", "import", *words)
        assert result.exit_code == 2
        assert message in result.stderr
    for path in ("nowhere", str(tmp_path)):
        result = sereno("schedule", "import", path)
        assert result.exit_code == 2
        assert "cannot be read" in result.stderr
    assert sereno("schedule", "import", "-", "--task-map", "old").exit_code == 2


# From other programs


@pytest.fixture
def pg_cron(connection: psycopg.Connection) -> None:
    """The table of pg_cron, with three jobs."""
    connection.execute("""
        create schema cron;
        create table cron.job (jobid bigint generated always as identity, schedule text, command text,
                               nodename text default 'localhost', nodeport integer default 5432,
                               database text default current_database(), username text default current_user,
                               active boolean default true, jobname text);
        insert into cron.job (schedule, command, active, jobname)
        values ('0 3 * * *', 'select 1', true, 'nightly'),
               ('30 seconds', 'select 2', false, 'often'),
               ('@reboot', 'select 3', true, 'start');
    """)


@pytest.mark.usefixtures("pg_cron")
def test_import_from_another_program(sereno: Command, connection: psycopg.Connection, database_url: str) -> None:
    words = ["schedule", "import", "--from", "pg-cron", "--task-map", "run_sql=sql.run", "--task-map", "none=x"]
    dry = sereno(*words, "--dry-run")
    assert dry.exit_code == 2
    assert "Would create 2, change 0, leave unchanged 0, refuse 1." in dry.stdout
    assert count(connection) == 0
    done = sereno(*words)
    assert "Created 2" in done.stdout
    assert "refused pg-cron:start: @reboot is not a time" in done.stderr
    assert "note pg-cron:often: was not active in pg_cron" in done.stderr
    assert done.stderr.index("refused ") < done.stderr.index("note "), "refusals are printed first"
    assert "--task-map run_sql" not in done.stderr, "the task was mapped"
    assert "no schedule has the task 'none'" in done.stderr
    rows = connection.execute(
        "select key, task, state, note, args ->> 'command' from sereno.schedules order by key"
    ).fetchall()
    assert rows == [
        ("pg-cron:nightly", "sql.run", "enabled", None, "select 1"),
        ("pg-cron:often", "sql.run", "disabled", "was not active in pg_cron", "select 2"),
    ]
    again = json.loads(sereno(*words, "--source", database_url, "-o", "json").stdout)
    assert (again["unchanged"], len(again["refused"])) == (2, 1)
    strict = sereno(*words, "--strict")
    assert strict.exit_code == 2
    assert "pg-cron:start" in strict.stderr


def test_import_from_missing_tables_is_reported(sereno: Command) -> None:
    for program in ("celery-beat", "apscheduler", "pg-cron"):
        result = sereno("schedule", "import", "--from", program)
        assert result.exit_code == 3, result.stderr
        assert "Traceback" not in result.stderr
    dead = sereno("schedule", "import", "--from", "pg-cron", "--source", "postgresql://user:secret@127.0.0.1:1/x")
    assert dead.exit_code == 4
    assert "secret" not in dead.stderr
    assert sereno("schedule", "import", "--from", "cron").exit_code == 2


@pytest.mark.usefixtures("pg_cron")
def test_the_missing_sql_task_is_noted_once(sereno: Command, tmp_path: Path) -> None:
    words = ["schedule", "import", "--from", "pg-cron", "--dry-run"]
    hint = "note run_sql: define this task, or name the task that runs SQL with --task-map run_sql=…"
    assert sereno(*words).stderr.count("run_sql=…") == 1
    assert hint in sereno(*words).stderr
    program = "from sereno import Sereno\napp = Sereno()\n"
    (tmp_path / "without.py").write_text(program)
    without = sereno(*words, "-a", "without.py").stderr
    assert hint in without
    assert "refused pg-cron:often: no task named run_sql; this application has: none" in without
    assert "note pg-cron:often" not in without, "a schedule that is not imported has no note"
    notes = json.loads(sereno(*words, "-a", "without.py", "-o", "json").stdout)["notes"]
    assert [note["where"] for note in notes] == ["run_sql"]
    (tmp_path / "within.py").write_text(program + "@app.task\ndef run_sql(command: str) -> None: ...\n")
    assert "run_sql" not in sereno(*words, "-a", "within.py").stderr


def test_a_strict_import_leaves_out_celerys_own_rows(sereno: Command, connection: psycopg.Connection) -> None:
    connection.execute(TABLES)
    for name, task in (("mine", "shop.tasks.send"), ("celery.backend_cleanup", "celery.backend_cleanup")):
        values = USUAL | {"name": name, "task": task} | crontab(connection, minute="0", hour="4")
        insert(connection, "periodictask", values)
    done = sereno("schedule", "import", "--from", "celery-beat", "--strict")
    assert (done.exit_code, done.stdout) == (0, "Created 1, changed 0, unchanged 0, refused 0.\n")
    assert "note celery-beat:celery.backend_cleanup: left out: it deletes Celery's own results" in done.stderr
    assert one(connection, "select key from sereno.schedules") == "celery-beat:mine"


@pytest.mark.usefixtures("pg_cron")
def test_a_url_of_sqlalchemy_is_accepted(sereno: Command, database_url: str) -> None:
    scheme, _, rest = database_url.partition("://")
    assert scheme == "postgresql"
    for written in ("postgresql+psycopg2", "postgresql+asyncpg", "postgres", "PostgreSQL+psycopg"):
        found = sereno("schedule", "import", "--from", "pg-cron", "--dry-run", "--source", f"{written}://{rest}")
        assert "Would create 2" in found.stdout, found.stderr


def test_the_url_of_another_database_is_refused_without_its_password(
    sereno: Command, subtests: pytest.Subtests
) -> None:
    for scheme in ("mysql", "sqlite", "mysql+pymysql"):
        with subtests.test(scheme=scheme):
            address = f"{scheme}://ada:secret@db/shop"
            refused = sereno("schedule", "import", "--from", "apscheduler", "--source", address)
            assert refused.exit_code == 2
            message = f'--source "{scheme.partition("+")[0]}://…" is not a PostgreSQL URL: '
            assert f"{message}write postgresql://user@host/database" in refused.stderr
            assert "secret" not in refused.stderr


def test_an_invalid_url_does_not_show_its_password(sereno: Command, subtests: pytest.Subtests) -> None:
    for address, message in [
        (
            "postgresql://ada:secret@db:x y/shop",
            "is not a valid connection string; write postgresql://user@host/database",
        ),
        ("postgresql://ada:secret@[db/shop", "is not a valid connection string; write postgresql://user@host/database"),
        ("ada:secret@db/shop", "is not a valid connection string; write postgresql://user@host/database"),
        ("postgresql://ada:secret@db/shop?ssl=require", 'invalid URI query parameter: "ssl"'),
        ("password=secret hots=db", 'invalid connection option "hots"'),
    ]:
        with subtests.test(address=address):
            refused = sereno("schedule", "import", "--from", "apscheduler", "--source", address)
            assert refused.exit_code == 4
            assert message in refused.stderr
            assert "secret" not in refused.stderr
