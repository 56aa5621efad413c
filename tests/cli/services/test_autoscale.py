"""`sereno autoscale-metrics`: prints the wanted workers, or serves them until it is stopped."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psycopg
import pytest
from click.testing import CliRunner, Result

from sereno.cli.main import main
from tests.cli.conftest import PROGRAM, process_environment
from tests.facts import TIMEOUT
from tests.jobs.job_steps import add
from tests.plain_http import NO_CERTIFICATES
from tests.warm_process import WarmProcess


def autoscale(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["autoscale-metrics", "--database-url", url, *arguments])


def test_the_wanted_workers_are_printed(connection: psycopg.Connection, database_url: str) -> None:
    add(connection, 45, queue="mails")
    result = autoscale(database_url, "-q", "mails", "--slots", "10", "--target", "1m")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["wanted_workers"], found["queues"][0]["queue"]) == (5, "mails")


def test_wrong_options_are_refused(database_url: str, subtests: pytest.Subtests) -> None:
    for arguments, message in (
        (("--target", "soon"), "target"),
        (("--slots", "0"), "--slots"),
        (("--port", "0", "-q", "mails"), "--port excludes"),
    ):
        with subtests.test(arguments=arguments):
            result = autoscale(database_url, *arguments)
            assert result.exit_code != 0
            assert message in result.output + result.stderr


@pytest.mark.slow
def test_it_is_served_until_the_command_is_stopped(
    connection: psycopg.Connection, database_url: str, tmp_path: Path
) -> None:
    add(connection, 45, queue="mails")
    process = WarmProcess(
        [sys.executable, "-c", PROGRAM, "autoscale-metrics", "--port", "0"],
        cwd=tmp_path,
        env=process_environment(SERENO_DATABASE_URL=database_url),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )
    try:
        assert process.stdout is not None
        found = re.search(r"Listening at (http://\S+/autoscale)\. ", process.stdout.readline())
        assert found is not None
        response = httpx.get(
            found[1], params={"queue": "mails", "slots": 10}, timeout=TIMEOUT, trust_env=False, verify=NO_CERTIFICATES
        )
        assert response.json()["wanted_workers"] == 5
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT)
