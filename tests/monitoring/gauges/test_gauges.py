"""The gauges of the database: what they count, how much they read, and which labels they have."""

from typing import Any

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sereno import Daily, Limit, Rate
from sereno.database.transaction import begin_read
from sereno.jobs.pauses import pause
from sereno.monitoring.gauges import queries as module
from sereno.monitoring.gauges.queries import database_gauges
from sereno.notifications.deliveries import store as deliveries
from sereno.settings import Settings
from sereno.telemetry.database_gauges import ALL_GAUGES, OTHER, DatabaseGauges
from sereno.telemetry.exposition import database_exposition
from tests.carriers.report_steps import add_batch, report
from tests.facts import advance, one
from tests.jobs.job_steps import add, do, session, take
from tests.jobs.limits.lane_steps import Claimer, keys, put, set_limit
from tests.manual_worker import ManualWorker
from tests.roles import made

Series = dict[tuple[str, ...], float]


def read(connection: psycopg.Connection, **settings: Any) -> DatabaseGauges:
    return do(connection, database_gauges(Settings(**settings)))


def gauge(connection: psycopg.Connection, name: str, **settings: Any) -> Series:
    return dict(read(connection, **settings).samples.get(name, []))


def test_jobs_are_counted_by_queue_tenant_and_state(connection: psycopg.Connection, manual: ManualWorker) -> None:
    manual.dead(tenant="ann")
    add(connection, 3, queue="mails", tenant="ann")
    add(connection, 2, queue="mails")
    add(connection, 1, queue="mails", tenant="bob", delay="1h")
    take(connection, session(connection, queues={"mails": 1}), 1, queue="mails")
    assert gauge(connection, "sereno_jobs") == {
        ("apart", "ann", "dead"): 1,
        ("mails", "ann", "ready"): 2,
        ("mails", "ann", "running"): 1,
        ("mails", "", "ready"): 2,
        ("mails", "bob", "scheduled"): 1,
    }


def test_jobs_that_wait_for_a_limit_are_ready(connection: psycopg.Connection) -> None:
    put(connection, keys(("partner", "a")), 3, tenant="ann")
    put(connection, None, 2, tenant="ann")
    assert gauge(connection, "sereno_jobs") == {("default", "ann", "ready"): 5}


def test_the_oldest_job_may_be_behind_those_that_are_counted(
    connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(connection, 1, priority=9, tenant="bob")
    advance(connection, 100)
    add(connection, 5, priority=0)
    advance(connection, 10)
    monkeypatch.setattr(module, "MOST_READY", 3)
    found = read(connection).samples
    assert dict(found["sereno_jobs"]) == {("default", "", "ready"): 3}
    ages = {tenant: round(age, -1) for (_, tenant), age in found["sereno_oldest_ready_seconds"]}
    assert ages == {"": 10, "bob": 110}


def test_small_queues_and_tenants_are_summed_up(
    connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, tenant in enumerate(("ann", "bob", "cid", OTHER, None)):
        add(connection, 5 - number, tenant=tenant, queue="large")
    add(connection, 1, queue="small", tenant="ann")
    add(connection, 1, queue="tiny", tenant="ann")
    monkeypatch.setattr(module, "LARGE_TENANTS", 2)
    monkeypatch.setattr(module, "LARGE_QUEUES", 1)
    assert gauge(connection, "sereno_jobs") == {
        ("large", "ann", "ready"): 5,
        ("large", "bob", "ready"): 4,
        ("large", OTHER, "ready"): 5,
        ("large", "", "ready"): 1,
        (OTHER, "ann", "ready"): 2,
    }


def test_queues_have_workers_slots_and_pauses(connection: psycopg.Connection) -> None:
    session(connection, queues={"mails": 4, "default": 2})
    session(connection, queues={"mails": 3})
    do(connection, pause("queue", "mails", actor="test"))
    do(connection, pause("queue", "apart", actor="test"))
    assert gauge(connection, "sereno_queue_slots") == {("apart",): 0, ("default",): 2, ("mails",): 7}
    assert gauge(connection, "sereno_queue_workers") == {("apart",): 0, ("default",): 1, ("mails",): 2}
    assert gauge(connection, "sereno_queue_paused") == {("apart",): 1, ("default",): 0, ("mails",): 1}


def test_late_schedules_are_seen(connection: psycopg.Connection, manual: ManualWorker) -> None:
    work = manual.app.task(name="work")(lambda: None)
    manual.app.schedules.upsert("daily", work.job(), Daily("03:00"))
    assert gauge(connection, "sereno_schedules") == {("enabled",): 1}
    assert gauge(connection, "sereno_scheduler_alive") == {(): 0}
    assert gauge(connection, "sereno_schedule_overdue_seconds") == {(): 0}
    advance(connection, 2 * 86_400)
    assert gauge(connection, "sereno_schedule_overdue_seconds")[()] > 86_400


def test_limits_show_their_fullest_key(connection: psycopg.Connection) -> None:
    set_limit(connection, "partner", Limit(4))
    set_limit(connection, "stopped", Limit(0))
    set_limit(connection, "mails", Rate(1, per="1h", burst=10))
    put(connection, keys(("partner", "a")), 3)
    put(connection, keys(("partner", "b")), 1)
    put(connection, keys(("mails", "")), 5)
    put(connection, keys(("stopped", "")), 1)
    Claimer(connection).take_all(20)
    saturation = gauge(connection, "sereno_limit_saturation")
    assert {name: round(used, 2) for (name,), used in saturation.items()} == {
        "mails": 0.5,
        "partner": 0.75,
        "stopped": 1.0,
    }
    assert gauge(connection, "sereno_limit_waiting_keys") == {("mails",): 0, ("partner",): 0, ("stopped",): 1}


def test_deliveries_are_counted_by_channel_and_state(connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into sereno.deliveries (event_id, recipient_id, channel, state, due_at) "
        "select 1, number, case when number < 4 then 'sms' else 'email' end, "
        "       case when number = 3 then 'dead' else 'sent' end, sereno.now() from generate_series(1, 5) as number"
    )
    do(connection, deliveries.pause_channel("sms", "", "no credit"))
    assert gauge(connection, "sereno_newest_deliveries") == {
        ("email", "sent"): 2,
        ("sms", "dead"): 1,
        ("sms", "sent"): 2,
    }
    assert gauge(connection, "sereno_failed_deliveries") == {("sms", "dead"): 1}
    assert gauge(connection, "sereno_channel_pauses") == {("sms",): 1}


def test_a_carried_queue_is_as_late_as_its_oldest_message(connection: psycopg.Connection) -> None:
    report(connection, pending_messages=3, oldest=5.0)
    add_batch(connection, 1, 2)
    advance(connection, 60)
    assert gauge(connection, "sereno_relay_jobs") == {("clicks",): 2}
    assert gauge(connection, "sereno_carrier_lag_seconds")[("clicks",)] >= 60


def test_an_archive_shows_how_late_it_is(connection: psycopg.Connection) -> None:
    assert gauge(connection, "sereno_archive_lag_seconds") == {}
    assert gauge(connection, "sereno_archive_lag_seconds", archive_url="disk") == {(): 0}
    advance(connection, 40 * 86_400)
    assert gauge(connection, "sereno_archive_lag_seconds", archive_url="disk")[()] > 8 * 86_400
    assert gauge(connection, "sereno_archive_failures", archive_url="disk") == {(): 0}


def test_the_exposition_has_no_series_twice_and_only_known_gauges(connection: psycopg.Connection) -> None:
    add(connection, 1, queue='a "quoted"\n\\queue', tenant="t")
    text = database_exposition(read(connection), "1.0").decode()
    known = {each.name for each in ALL_GAUGES} | {"sereno_build_info"}
    seen = set()
    for family in text_string_to_metric_families(text):
        assert family.name in known
        for sample in family.samples:
            series = (sample.name, tuple(sorted(sample.labels.items())))
            assert series not in seen
            seen.add(series)
    labels = dict(next(labels for name, labels in seen if name == "sereno_jobs"))
    assert labels["queue"] == 'a "quoted"\n\\queue'


@pytest.mark.parametrize("login", ["worker", "server"])
def test_logins_with_few_privileges_can_read_them(
    connection: psycopg.Connection, database_url: str, login: str
) -> None:
    add(connection, 2)
    with made(connection, database_url) as logins, logins.connect(login) as restricted, restricted.transaction():
        do(restricted, begin_read(5.0))
        assert gauge(restricted, "sereno_jobs", archive_url="disk") == {("default", "", "ready"): 2}


@pytest.mark.slow
def test_a_long_backlog_is_not_read_to_its_end(connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into sereno.jobs (state, queue, task, priority, run_at, ready_seq, args) "
        "select 'ready', 'default', 'work', 5, sereno.now(), number, '{}' from generate_series(1, 200000) as number"
    )
    with connection.transaction():
        do(connection, begin_read(60.0))
        assert gauge(connection, "sereno_jobs") == {("default", "", "ready"): 10_000}
        query = "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relname = 'jobs'"
        assert one(connection, query) < 11_000
