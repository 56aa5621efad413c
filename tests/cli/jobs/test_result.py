"""`sereno job show` prints what a task returned, or why there is no result."""

import json

import psycopg

from sereno import Sereno
from sereno.jobs.attempt import Settlement
from tests.cli.conftest import Command
from tests.jobs.job_steps import add, end, session, take


def test_the_result_of_a_job_is_shown(sereno: Command, app: Sereno, connection: psycopg.Connection) -> None:
    stored, unstored = add(connection, 2)
    owner = session(connection)
    first, second = take(connection, owner)
    end(connection, owner, [first], Settlement("succeeded", result='{"store": "São João"}'.encode()))
    end(connection, owner, [second], Settlement("succeeded", reason="its result was not stored: 101 bytes"))
    assert 'result      {"store": "São João"}\n' in sereno("job", "show", stored).stdout
    assert json.loads(sereno("job", "show", stored, "-o", "json").stdout)["job"]["result"] == {"store": "São João"}
    shown = sereno("job", "show", unstored).stdout
    assert "reason      its result was not stored: 101 bytes\n" in shown
    assert "result      {" not in shown
