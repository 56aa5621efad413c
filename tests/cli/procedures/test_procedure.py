"""`sereno procedure …`: allow, list, show, check, run, revoke."""

import json
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Command
from tests.facts import one
from tests.procedures.conftest import Login, login

__all__ = ["login"]

APP = """
from sereno import Sereno

app = Sereno()
app.procedure("reporting.close_day")
"""


@pytest.fixture
def report(connection: psycopg.Connection, login: Login) -> dict[str, str]:
    """Create a function, and return the environment in which it can be called."""
    connection.execute(
        "create function reporting.close_day(day date, run bigint, factor integer default 1) returns integer "
        "language sql as 'select extract(day from day)::integer * factor'"
    )
    return {"SERENO_PROCEDURE_URL": login.url}


def test_a_procedure_is_allowed_run_and_revoked(
    sereno: Command, report: dict[str, str], connection: psycopg.Connection, tmp_path: Path
) -> None:
    allow = ("procedure", "allow", "reporting.close_day", "--give", "run=job", "--timeout", "30m", "--note", "monthly")
    made = sereno(*allow, **report)
    assert made.exit_code == 0, made.output
    text = "function reporting.close_day(day date, run bigint, factor integer = default) returns integer"
    assert made.stdout.strip() == text
    assert "app.procedure('reporting.close_day')" in made.stderr
    (line,) = json.loads(sereno("procedure", "list", "-o", "json").stdout)["items"]
    assert (line["allowed"]["timeout"], line["allowed"]["given"], line["last"]) == (1800, {"run": "job"}, None)
    shown = sereno("procedure", "show", "reporting.close_day").stdout
    assert text in shown
    assert "run is the job's job" in shown
    assert "30 m, 10 s for a lock" in shown
    found = sereno("procedure", "check", **report)
    assert (found.exit_code, found.stdout.split()[:2]) == (0, ["ok", "ok"])
    (tmp_path / "shop.py").write_text(APP)
    ran = sereno("procedure", "run", "reporting.close_day", "-p", "day=2026-11-01", "-a", "shop.py:app", **report)
    assert ran.exit_code == 0, ran.output
    row = connection.execute("select id, task, args from sereno.jobs").fetchone()
    assert row == (int(ran.stdout), "procedure.reporting.close_day", {"day": "2026-11-01"})
    gone = sereno("procedure", "revoke", "reporting.close_day")
    assert gone.exit_code == 0
    assert sereno("procedure", "show", "reporting.close_day").exit_code == 8
    assert sereno("procedure", "revoke", "reporting.close_day").exit_code == 8
    audited = connection.execute("select action, subject from sereno.audit order by id").fetchall()
    assert audited == [
        ("procedure.allow", "procedure reporting.close_day"),
        ("job.enqueue", f"job {ran.stdout.strip()}"),
        ("procedure.revoke", "procedure reporting.close_day"),
    ]


def test_invalid_parameters_are_refused_before_a_job_is_created(
    sereno: Command, report: dict[str, str], connection: psycopg.Connection, tmp_path: Path
) -> None:
    assert sereno("procedure", "allow", "reporting.close_day", "--give", "run=job", **report).exit_code == 0
    (tmp_path / "shop.py").write_text(APP)
    run = ("procedure", "run", "reporting.close_day", "-a", "shop.py:app")
    for words, message in (
        ((), "day (date) is missing"),
        (("-p", "day=soon"), "a parameter does not fit"),
        (("--args", '{"day": "2026-11-01", "run": 1}'), "run is filled with the job's job"),
        (("--args", "[1]"), "--args must be one JSON object"),
        (("-p", "day"), "expected NAME=VALUE"),
    ):
        refused = sereno(*run, *words, **report)
        assert (refused.exit_code, message in refused.stderr) == (2, True), refused.output
    (tmp_path / "other.py").write_text("from sereno import Sereno\napp = Sereno()\n")
    undeclared = sereno(*run[:3], "-p", "day=2026-11-01", "-a", "other.py:app", **report)
    assert (undeclared.exit_code, "add app.procedure('reporting.close_day')" in undeclared.stderr) == (3, True)
    assert one(connection, "select count(*) from sereno.jobs") == 0


def test_changed_and_missing_procedures_are_found(
    sereno: Command, report: dict[str, str], connection: psycopg.Connection
) -> None:
    assert sereno("procedure", "allow", "reporting.close_day", **report).exit_code == 0
    connection.execute(
        "drop function reporting.close_day;"
        "create function reporting.close_day() returns integer language sql as 'select 1'"
    )
    found = sereno("procedure", "check", "reporting.close_day", "-o", "json", **report)
    assert found.exit_code == 6
    (line,) = json.loads(found.stdout)["items"]
    assert line["standing"] == "changed"
    doctor = sereno("doctor", **report)
    assert doctor.exit_code == 6
    assert "reporting.close_day has changed since it was allowed" in doctor.stdout
    connection.execute("drop function reporting.close_day")
    assert json.loads(sereno("procedure", "check", "-o", "json", **report).stdout)["items"][0]["standing"] == "gone"


@pytest.mark.slow
def test_the_doctor_warns_about_a_missing_role(sereno: Command, report: dict[str, str]) -> None:
    assert "procedures" not in sereno("doctor", **report).stdout
    assert sereno("procedure", "allow", "reporting.close_day", **report).exit_code == 0
    assert "1 still have their allowed signatures" in sereno("doctor", **report).stdout
    assert "no role is configured" in sereno("doctor").stdout
    assert "worker's own role" in sereno("doctor", SERENO_PROCEDURES_AS_WORKER="true").stdout


@pytest.mark.slow
def test_invalid_procedures_are_refused(sereno: Command, report: dict[str, str]) -> None:
    for words, code in (
        (("close_day",), 2),
        (("reporting.nothing",), 8),
        (("pg_catalog.pg_read_file",), 8),
        (("reporting.close_day", "--params", "day text"), 8),
        (("reporting.close_day", "--give", "day=secret"), 2),
        (("reporting.close_day", "--give", "x=job"), 2),
        (("reporting.close_day", "--timeout", "soon"), 3),
        (("reporting.close_day", "--timeout", "0"), 2),
        (("reporting.close_day", "--target", "erp"), 3),
        (("reporting.close_day", "--kind", "table"), 2),
    ):
        refused = sereno("procedure", "allow", *words, **report)
        assert refused.exit_code == code, (words, refused.output)
    without = sereno("procedure", "allow", "reporting.close_day")
    assert (without.exit_code, "SERENO_PROCEDURE_URL" in without.stderr) == (3, True)
    assert json.loads(sereno("procedure", "list", "-o", "json").stdout) == {"items": []}


def test_config_show_masks_passwords_of_procedure_urls(sereno: Command) -> None:
    targets = "erp=mysql://caller:hunter2@db/shop\nbooks=postgresql://caller:hunter3@db/books"
    shown = sereno(
        "config", "show", SERENO_PROCEDURE_TARGETS=targets, SERENO_PROCEDURE_URL="postgresql://caller:hunter4@db/x"
    )
    assert "procedure_targets" in shown.stdout
    assert "hunter" not in shown.output
    wrong = sereno("config", "show", SERENO_PROCEDURE_TARGETS="mysql://caller:hunter2@db/shop")
    assert (wrong.exit_code, "hunter" in wrong.output) == (3, False)
    named = sereno("config", "show", SERENO_PROCEDURE_TARGETS="here=mysql://caller:hunter2@db/shop")
    assert (named.exit_code, "hunter" in named.output) == (3, False)
