"""Real workers: one that outlasts its lease, one that is killed, two of them with two schedulers."""

from collections.abc import Callable

import pytest

from sereno import Every
from sereno.testing import test_support
from sereno.testing.kit import Kit
from triggers.app import app
from triggers.tests.conftest import PATIENCE, RunSql, enqueue, job_of, real_worker

pytestmark = pytest.mark.slow

CALLS = "select 1 from pg_stat_activity where application_name = 'sereno procedure' and datname = current_database()"
COUNTED = "select tank, attempt from triggers.counts order by tank"
JUST_BEATEN = "select 1 from sereno.sessions where state = 'alive' and lease_until > sereno.now() + interval '25 s'"


def test_a_procedure_may_take_longer_than_the_lease(
    kit: Kit, run_sql: RunSql, assert_verified: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat renews the lease, while another worker waits for expired leases."""
    monkeypatch.setenv("SERENO_LEASE", "30")
    monkeypatch.setenv("SERENO_HEARTBEAT", "0.5")
    run_sql("insert into triggers.tanks values ('norte', 'a', true)")
    job = enqueue("recount_tanks", plant="norte")
    with real_worker(kit) as first, real_worker(kit) as second:
        first.until(lambda: len(run_sql(CALLS)) == 1 and len(run_sql(JUST_BEATEN)) == 2, PATIENCE)
        # Most of a lease passes three times, and each time there is a heartbeat before the rest of it has passed.
        for _ in range(3):
            app.database.run(test_support.travel(20, leases=False))
            first.until(lambda: len(run_sql(JUST_BEATEN)) == 2, PATIENCE)
        assert run_sql("select 1 from sereno.jobs where sereno.now() > claimed_at + 2 * interval '30 s'")
        assert len(run_sql(CALLS)) == 1
        run_sql("update triggers.tanks set filling = false")
        second.until(lambda: kit.job(job).state == "succeeded", PATIENCE)
    assert kit.job(job).attempt == 1
    assert run_sql(COUNTED) == [("a", 1)]
    assert_verified()


def test_a_procedure_of_a_killed_worker_continues_without_duplicates(
    kit: Kit, run_sql: RunSql, assert_verified: Callable[[], None]
) -> None:
    """Committed tanks stay, the next attempt counts the rest, and no tank is counted twice."""
    run_sql("insert into triggers.tanks values ('norte', 'a', false), ('norte', 'b', true)")
    job = enqueue("recount_tanks", plant="norte")
    with real_worker(kit) as worker:
        worker.until(lambda: run_sql(COUNTED) == [("a", 1)], PATIENCE)
        worker.kill()
    # The database notices that the client is gone, and ends the statement.
    kit.until(lambda: run_sql(CALLS) == [], PATIENCE)
    run_sql("update triggers.tanks set filling = false")
    kit.lose_leases()
    kit.drain()
    assert (kit.job(job).state, kit.job(job).attempt) == ("succeeded", 2)
    assert run_sql(COUNTED) == [("a", 1), ("b", 2)]
    assert run_sql("select number, outcome from sereno.attempts") == [(1, "crash")]
    assert_verified()


LEADER = "select split_part(holder, ':', 2)::int from sereno.leases where until > sereno.now()"
WITNESS = """
    create table triggers.witness (plant text, planned_at timestamptz, called_at timestamptz default clock_timestamp());
    grant insert on triggers.witness to {login};
    create or replace procedure triggers.refresh_stock(plant text, planned_at timestamptz) language plpgsql as $$
    begin
        if not pg_try_advisory_xact_lock(hashtext(refresh_stock.plant)) then raise exception 'two at once'; end if;
        perform pg_sleep(0.1);
        insert into triggers.witness values (refresh_stock.plant, refresh_stock.planned_at);
    end $$;
"""


@pytest.mark.timeout(300)
def test_a_killed_leader_among_two_schedulers_loses_and_repeats_no_instant(
    kit: Kit, run_sql: RunSql, login: str, assert_verified: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No instant fires twice, none is lost, and two triggers with the same plant never run at once."""
    # Seconds until the killed worker's jobs are released; long enough for the other's heartbeat on a busy machine.
    monkeypatch.setenv("SERENO_LEASE", "20")
    monkeypatch.setenv("SERENO_HEARTBEAT", "0.5")
    run_sql(WITNESS.replace("{login}", login))
    for key in ("hourly:norte", "daily:norte", "hourly:sur"):
        plant = key.partition(":")[2]
        app.schedules.upsert(
            f"triggers.{key}",
            job_of("refresh_stock", plant, plant=plant),
            Every("1s", count_from="clock"),
            missed="all",
            overlap="allow",
        )
    with real_worker(kit) as first, real_worker(kit) as second:
        first.until(lambda: len(run_sql("select 1 from sereno.sessions where state = 'alive'")) == 2, PATIENCE)
        ((leader,),) = first.until(lambda: run_sql(LEADER), PATIENCE)
        killed, left = (first, second) if leader == first.pid else (second, first)
        assert killed.pid == leader
        left.until(lambda: len(run_sql("select 1 from triggers.witness")) > 6, PATIENCE)
        killed.kill()
        ((seen,),) = run_sql("select sereno.now()")
        left.until(
            lambda: run_sql("select 1 from triggers.witness where planned_at > %s + interval '3 s'", seen), PATIENCE
        )
        app.schedules.disable("triggers.*")
        left.until(lambda: run_sql("select 1 from sereno.jobs") == [], PATIENCE)
        assert left.stop() == 0
    assert run_sql("select distinct state from sereno.history") == [("succeeded",)]
    assert run_sql("select 1 from sereno.attempts where outcome <> 'crash'") == []
    fires = run_sql(
        "select max(extract(epoch from planned_at)) - min(extract(epoch from planned_at)) + 1, "
        "count(*), count(distinct planned_at), count(distinct job_id) from sereno.fires group by schedule_id"
    )
    assert len(fires) == 3
    assert all(len({int(number) for number in each}) == 1 for each in fires)
    assert_verified()
