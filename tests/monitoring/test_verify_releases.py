"""Invariants of requirements: each is violated once and reported."""

import psycopg
import pytest

from tests.jobs.job_steps import add, take
from tests.jobs.test_requirements import NEW, capable, demanding
from tests.monitoring.verify_steps import broken_inside, undone


def test_a_job_in_a_session_that_cannot_run_it_is_reported(connection: psycopg.Connection) -> None:
    job = demanding(connection)
    owner = capable(connection, NEW)
    assert [each.id for each in take(connection, owner)] == [job]
    assert broken_inside(connection) == {}
    with undone(connection):
        connection.execute("update sereno.sessions set capabilities = null")
        assert broken_inside(connection) == {"capable_sessions": [job]}


@pytest.mark.slow
def test_requirements_of_an_unknown_form_are_reported(
    connection: psycopg.Connection, subtests: pytest.Subtests
) -> None:
    (job,) = add(connection)
    for requires in ('{"version": 2}', '{"key": "a"}', '{"version": 3, "key": "a"}'):
        with subtests.test(requires=requires), undone(connection):
            connection.execute("update sereno.jobs set requires = %s", [requires])
            assert broken_inside(connection) == {}
    for requires in ("{}", "[]", "2", '{"version": 1}', '{"version": "2"}', '{"key": 1}', '{"release": "a"}'):
        with subtests.test(requires=requires), undone(connection):
            connection.execute("update sereno.jobs set requires = %s", [requires])
            assert broken_inside(connection) == {"requirements_known": [job]}
