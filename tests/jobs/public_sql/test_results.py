"""`sereno.read_results`: a worker in another language reads what the jobs have returned that its job waited for."""

from collections.abc import Callable
from typing import Any

import pytest

from sereno import Sereno
from tests.jobs.job_steps import Connection, add
from tests.jobs.public_sql.sql_worker import Claimed, SqlWorker, outcome
from tests.jobs.public_sql.test_fence import closes, dies, is_deleted, is_rescued, is_taken_over, lease_expires


def results(caller: SqlWorker, job: Claimed) -> list[tuple[Any, ...]]:
    given = [caller.session, job.id, job.attempt]
    return caller.query("select id, task, result from sereno.read_results(%s, %s, %s)", given)


def test_a_job_reads_the_results_of_its_predecessors(connection: Connection) -> None:
    stored, empty, forgotten = first = add(connection, 3)
    (last,) = add(connection, after=first)
    caller = SqlWorker(connection)
    one, two, three = caller.claim()
    assert results(caller, one) == []
    caller.settle(outcome(one, result={"rows": 7}), outcome(two), outcome(three, history=False))
    (job,) = caller.claim()
    assert job.id == last
    assert results(caller, job) == [(stored, "work", {"rows": 7}), (empty, "work", None), (forgotten, None, None)]


def test_the_job_after_a_group_reads_its_results(connection: Connection, app: Sereno) -> None:
    @app.task
    def work(number: int) -> int:
        return number

    group = app.group([work.job(number) for number in range(3)], then=work.job(9)).enqueue()
    assert group.then is not None
    caller = SqlWorker(connection)
    jobs = caller.claim()
    caller.settle(*(outcome(job, result=10 * job.args["number"]) for job in jobs))
    (then,) = caller.claim()
    assert then.id == group.then.id
    assert results(caller, then) == [(job.id, "work", 10 * place) for place, job in enumerate(jobs)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "loses",
    [dies, is_rescued, is_taken_over, is_deleted, lease_expires, closes],
    ids=lambda act: act.__name__,
)
def test_a_session_without_the_job_reads_nothing(
    connection: Connection, loses: Callable[[Connection, SqlWorker], None]
) -> None:
    first = add(connection)
    caller = SqlWorker(connection)
    caller.settle(*(outcome(job, result=7) for job in caller.claim()))
    add(connection, after=first)
    (job,) = caller.claim()
    assert results(caller, job) == [(first[0], "work", 7)]
    loses(connection, caller)
    assert results(caller, job) == []
