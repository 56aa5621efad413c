"""Every operation also works in a schema of another name, beside one of the usual name."""

from collections.abc import Iterator

import psycopg
import pytest

from sereno import Sereno
from sereno.operations import jobs, queues, workers
from sereno.operations.doctor import doctor
from sereno.operations.plan import carry_out
from sereno.operations.status import status
from sereno.operations.verify import verify
from sereno.operations.why import why
from sereno.store import insights
from sereno.store.filters import JobFilter
from tests.operations.conftest import House


@pytest.fixture
def elsewhere(database_url: str) -> Iterator[Sereno]:
    app = Sereno(database_url, schema="elsewhere")
    app.migrate()

    @app.task(name="greet")
    def greet(name: str) -> None:
        """Nobody runs it here."""

    yield app
    app.close()


def test_what_is_done_elsewhere_stays_there(elsewhere: Sereno, connection: psycopg.Connection) -> None:
    run = elsewhere.database.run
    house = House(elsewhere, connection)
    job_id = house.enqueue(delay="1h")
    assert run(queues.pause("queue", "default"))
    assert "paused" in " ".join(run(why(job_id)))
    assert run(queues.resume("queue", "default"))
    assert run(status()).schema_version >= 1
    assert [line.id for line in run(jobs.list_jobs()).items] == [job_id]
    assert run(workers.list_workers()) == []
    assert run(insights.finished_total()) >= 0
    assert [line.task for line in run(insights.by_task())] == ["greet"]
    assert run(insights.running_now(5)) == []
    assert run(insights.newest_failures(5)) == []
    assert [check.name for check in run(doctor(elsewhere.settings)) if check.level == "fail"] == []
    assert all(proof.holds for proof in run(verify(lease=30.0)))
    assert carry_out(elsewhere.database, jobs.cancel(JobFilter(ids=[job_id]))).done == [job_id]
    assert carry_out(elsewhere.database, jobs.retry(JobFilter(ids=[job_id]), rate=1.0)).done == [job_id]
    assert carry_out(elsewhere.database, jobs.delete(JobFilter(ids=[job_id]))).done == [job_id]
    assert connection.execute("select count(*) from sereno.audit").fetchone() == (0,)
    assert connection.execute("select count(*) from elsewhere.audit").fetchone() == (5,)
