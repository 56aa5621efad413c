"""The details of a job show its result, masked like its arguments, and ciphertext as it is stored."""

import psycopg
import pytest

from sereno import Sereno
from sereno.access.identity import ROLES
from sereno.jobs.attempt import Settlement
from sereno.jobs.encryption import new_key
from tests.jobs.job_steps import add, end, session, take
from tests.server.web.html_reader import Read
from tests.server.web.shared_site import app, ask, connection, database_url, served

__all__ = ["app", "ask", "connection", "database_url", "served"]

CARD = "4111 1111 1111 1111"


@pytest.mark.slow
def test_a_result_is_masked(app: Sereno, connection: psycopg.Connection, read: Read, subtests: pytest.Subtests) -> None:
    (job,) = add(connection)
    owner = session(connection)
    result = b'{"rows": 4711, "note": "<b>", "api_token": "hunter2"}'
    end(connection, owner, take(connection, owner), Settlement("succeeded", result=result))
    for role in ROLES:
        with subtests.test(role):
            page = read("jobs", role, job=job).text
            shown = page.split('id="job-result"')[1].split("</pre>")[0]
            assert "4711" in shown
            assert "&lt;b&gt;" in shown
            assert "hunter2" not in page


def test_encrypted_arguments_and_results_are_ciphertext(
    app: Sereno, connection: psycopg.Connection, read: Read
) -> None:
    app.override(encryption_keys=[new_key("one")])

    @app.task(name="work", encrypt=True)
    def charge(account: str) -> str:
        return account

    job = charge.enqueue(CARD).id
    connection.execute("update sereno.jobs set requires = null where id = %s", [job])
    owner = session(connection)
    assert charge.definition.result is not None
    end(connection, owner, take(connection, owner), charge.definition.result.settlement(CARD, 1000))
    page = read("jobs", "admin", job=job).text
    assert page.count("$encrypted") > 1
    assert CARD not in page
    assert CARD not in read("jobs", "admin").text
