"""`why` for jobs that PostgreSQL does not have, because a carrier has or had them."""

import psycopg

from sereno.jobs.queries.why import why
from tests.carriers.report_steps import add_batch, report, report_failure
from tests.facts import advance
from tests.jobs.job_steps import do

DIRECT = 1_000_000_000_000_007


def text(connection: psycopg.Connection, job: int, tenant: str | None = None) -> str:
    return "\n".join(do(connection, why(job, tenant=tenant)))


def test_a_direct_job_waits_at_its_carrier_or_has_succeeded(connection: psycopg.Connection) -> None:
    report(connection, pending_messages=12, oldest=3.0)
    found = text(connection, DIRECT)
    assert "It was published directly to the carrier of its queue, and PostgreSQL has no row of it" in found
    assert "it has succeeded and its task keeps no history" in found
    assert "The carrier of the queue 'clicks' has about 12 jobs, the oldest for 3 s." in found
    advance(connection, 5)
    report(connection)
    assert "The carrier of the queue 'clicks' is empty" in text(connection, DIRECT)
    advance(connection, 60)
    report_failure(connection)
    assert "A carrier does not answer: its jobs wait until it does." in text(connection, DIRECT)


def test_a_direct_job_is_explained_without_any_report(connection: psycopg.Connection) -> None:
    assert "It was published directly" in text(connection, DIRECT)


def test_a_job_on_its_way_is_found_in_its_message(connection: psycopg.Connection) -> None:
    report(connection)
    add_batch(connection, 11, 12)
    assert text(connection, 12) == (
        "It is on its way to jetstream, the carrier of 'clicks': its message waits to be published."
    )
    assert "If its queue is carried, it waits at its carrier" in text(connection, 13)


def test_a_user_of_a_tenant_sees_no_queues_of_others(connection: psycopg.Connection) -> None:
    report(connection, pending_messages=12)
    add_batch(connection, 11)
    for job in (DIRECT, 11, 12):
        assert "clicks" not in text(connection, job, tenant="a")


def test_without_carriers_nothing_is_said_of_them(connection: psycopg.Connection) -> None:
    assert "No job has the id 13." in text(connection, 13)
    assert "carrie" not in text(connection, 13)
