"""`sereno log …`: list, follow, show."""

import json
import logging
import signal
import subprocess
import sys

import psycopg
import pytest

from sereno import Sereno
from sereno.telemetry import central_log
from sereno.telemetry.log_record import as_line
from tests.cli.conftest import PROGRAM, Command, process_environment
from tests.facts import until


def add_line(app: Sereno, message: str, **fields: object) -> None:
    error = ValueError("\x1b[31mno")
    record = logging.LogRecord("sereno.job", logging.WARNING, "", 0, message, (), (ValueError, error, None))
    record.sereno_fields = fields
    app.database.run(central_log.add([as_line(record, 1.0)], 1.0))


@pytest.fixture
def lines(app: Sereno, connection: psycopg.Connection) -> list[int]:
    add_line(app, "the bank\nis slow", tenant="r42", job_id=123, trace_id="t-1", bank="north")
    add_line(app, "all \x1b[31mred", tenant="r43", job_id=124)
    return [row[0] for row in connection.execute("select id from sereno.logs order by id")]


def test_log_lines_of_a_job_are_listed(sereno: Command, lines: list[int]) -> None:
    result = sereno("log", "list", "job:123")
    assert result.exit_code == 0, result.output
    heading, line = result.stdout.splitlines()
    assert heading.split("\t") == ["id", "at", "level", "event", "tenant", "job", "message"]
    assert line.split("\t")[2:] == ["warning", "sereno.job", "r42", "123", "the bank is slow"]


def test_log_lines_are_listed_in_pages(sereno: Command, lines: list[int]) -> None:
    page = json.loads(sereno("log", "list", "level:warning", "-n", "1", "-o", "json").stdout)
    assert ([line["id"] for line in page["items"]], page["next"]) == ([lines[1]], lines[1])
    rest = json.loads(sereno("log", "list", "--before", str(lines[1]), "-o", "json").stdout)
    assert [line["id"] for line in rest["items"]] == [lines[0]]
    assert sereno("log", "list", "event:nothing", "--fail-empty").exit_code == 7
    assert sereno("log", "list", "job:one").exit_code == 2
    assert sereno("log", "list", "--follow", "--before", "1").exit_code == 2


def test_a_log_line_is_shown_without_control_characters(sereno: Command, lines: list[int]) -> None:
    result = sereno("log", "show", str(lines[0]))
    assert result.exit_code == 0, result.output
    for words in (
        "tenant       r42",
        "trace        t-1",
        "bank         north",
        "message      the bank",
        "ValueError: ",
    ):
        assert words in result.stdout
    assert json.loads(sereno("log", "show", str(lines[0]), "-o", "json").stdout)["traceback"].startswith("ValueError")
    assert "\x1b" not in result.stdout + sereno("log", "list").stdout + sereno("log", "show", str(lines[1])).stdout
    assert sereno("log", "show", "999999").exit_code == 7


@pytest.mark.slow
def test_new_log_lines_are_followed(app: Sereno, lines: list[int], database_url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-u", "-c", PROGRAM, "log", "list", "tenant:r42", "--follow", "-o", "json"],
        env=process_environment(SERENO_DATABASE_URL=database_url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["id"] == lines[0]
        add_line(app, "of another", tenant="r43")
        add_line(app, "and again", tenant="r42")
        assert json.loads(following.stdout.readline())["message"] == "and again"
        following.send_signal(signal.SIGINT)
        until(lambda: following.poll() is not None)
    assert following.returncode == 130
