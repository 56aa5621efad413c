"""The views in the original design's words: its runbook's queries, and every run of every cycle with its counts."""

import asyncio

import pytest

from tenders.app import app
from tenders.preferences import Preferences
from tenders.tests.conftest import ANA, BEN, Bucket, World

pytestmark = pytest.mark.slow

RUNS = """
select licitaciones_found, licitaciones_new, error_message from worker_runs where worker_name = 'ingest' order by id
"""
SUMS = """
select sum(notifications_sent), sum(notifications_failed), sum(notifications_invalidated), sum(receipts_processed)
from worker_runs where worker_name = 'dispatch'
"""
DELIVERIES = """
select installation_id, status, attempt_count, next_attempt_at is not null, completed_at is not null,
       last_error_code, provider_ticket_id is not null, provider_receipt_id is not null
from notification_deliveries order by 1
"""
TARGETS = """
select l.codigo_externo, l.region, l.monto_estimado, l.tipo, l.notificada, count(*)
from notification_events ne
join licitaciones l on l.id = ne.licitacion_id
join notification_deliveries nd on nd.notification_event_id = ne.id
join device_installations di on di.installation_id = nd.installation_id and di.active
join licitacion_registry r on r.codigo_externo = l.codigo_externo
where ne.type = 'new_licitacion' group by l.id, 1, 2, 3, 4, 5
"""
LOCKED = """
select status, locked_by ~ '^dispatch:.+:[0-9]+:[0-9]+$', locked_at <= now() + interval '1 day'
from notification_deliveries where locked_at is not null
"""
CLEANUP = """
select sum(archived_licitaciones), sum(archived_deliveries) from worker_runs where worker_name = 'cleanup'
"""
EXPORTS = """
select entity, row_count, status, checksum is not null,
       drop_eligible_at - verified_at between '7 days' and '7 days 5 minutes'
from archive_exports where entity in ('licitaciones', 'notification_deliveries') order by 1
"""
SKIPPED = """
select schedule, reason from {sereno}.fires_v1 where reason is not null and schedule = 'tenders.ingest'
"""


async def test_every_run_of_every_cycle_is_recorded_with_its_counts(world: World) -> None:
    code = world.authority.publish(region="Biobío", amount=7_000_000)
    world.expo.tickets[ANA] = "DeviceNotRegistered"
    await world.cycle()
    world.expo.fault = "broken"
    world.authority.publish(region="Biobío", amount=7_000_000)
    await world.cycle()
    world.expo.fault = None
    world.kit.travel("2m")
    for _ in range(2):
        await world.until_receipts()
    await world.cycle()
    assert world.rows(RUNS)[:2] == [(1, 1, None), (2, 1, None)]
    assert all((new, error) == (0, None) for _, new, error in world.rows(RUNS)[2:])
    assert world.rows(SUMS) == [(2, 1, 1, 2)]
    assert world.rows("select max(notifications_retryable) from worker_runs where worker_name = 'dispatch'") == [(1,)]
    assert world.rows("select sum(licitaciones_notificadas) from worker_runs where worker_name = 'receipt'") == [(2,)]
    world.page.fault = world.api.fault = "broken"
    world.kit.travel("2m")
    for _ in range(2):
        await world.kit.adrain()
        world.kit.travel("10s")
    ((error,),) = world.rows("select error_message from worker_runs where error_message is not null")
    assert error == "Unavailable: the search page returned HTTP 503; the API returned HTTP 503"
    # Without the cycles of the night: whether they have run depends on the time of the day.
    names = """
        select worker_name, bool_and(finished_at >= started_at) from worker_runs
        where worker_name not in ('cleanup', 'archive_export') group by 1 order by 1"""
    assert world.rows(names) == [("dispatch", True), ("ingest", True), ("receipt", True)]
    assert world.rows("select notificada from licitaciones where codigo_externo = %s", code) == [(True,)]


async def test_the_runbook_finds_deliveries_in_the_states_of_the_original_design(world: World) -> None:
    await world.register("cyd", "ExponentPushToken[cyd]", Preferences(regions=("Antofagasta",)))
    code = world.authority.publish(region="Biobío", amount=7_000_000)
    world.expo.tickets[BEN] = "ProviderError"
    await world.cycle()
    assert world.rows(DELIVERIES) == [
        ("ana", "sent", 1, False, False, None, True, False),
        ("ben", "retryable", 1, True, False, "ProviderError", False, False),
    ]
    await world.register("ben", BEN, Preferences(enabled=False))
    world.expo.tickets.clear()
    await world.until_receipts()
    assert world.rows(DELIVERIES) == [
        ("ana", "ok", 1, False, True, None, True, True),
        ("ben", "failed", 1, False, True, "ProviderError", False, False),
    ]
    assert world.rows(TARGETS) == [(code, "Biobío", 7_000_000, "LE", True, 2)]
    preferences = "select installation_id, enabled, rubro, region, monto_min from notification_preferences order by 1"
    assert world.rows(preferences) == [
        ("ana", True, None, None, None), ("ben", False, None, None, None), ("cyd", True, None, "Antofagasta", None),
    ]  # fmt: skip


async def test_a_delivery_that_is_being_sent_is_locked_by_its_worker(world: World) -> None:
    world.expo.open.clear()
    world.authority.publish()
    world.kit.travel("2m")
    with world.kit.crash_worker("tenders.app:app") as worker:
        await asyncio.to_thread(worker.until, lambda: bool(world.rows(LOCKED)))
        assert world.rows(LOCKED) == [("pending", True, True)]
        worker.kill()
    world.expo.open.set()
    world.kit.lose_leases()
    world.kit.travel("5m")
    await world.kit.adrain()
    assert world.rows(LOCKED) == []
    assert world.states()["ana"] == "sent"


async def test_cleanup_and_exports_are_recorded(world: World, bucket: Bucket) -> None:
    world.authority.publish(region="Biobío", amount=7_000_000)
    await world.cycle()
    await world.until_receipts()
    world.kit.travel("366d")
    await world.nights()
    assert world.rows(CLEANUP) == [(1, 2)]
    assert world.rows(EXPORTS) == [
        ("licitaciones", 1, "verified", True, True),
        ("notification_deliveries", 2, "verified", True, True),
    ]
    assert bucket.rows("tenders.tenders")


async def test_pushes_are_counted_again_after_days_without_a_worker(world: World) -> None:
    await world.cycle()
    world.kit.travel("30d")
    await world.cycle()
    world.authority.publish()
    for _ in range(2):
        await world.cycle()
    assert world.rows("select sum(notifications_sent), count(error_message) from worker_runs") == [(1, 0)]


async def test_a_skipped_cycle_is_recorded_as_already_running(world: World) -> None:
    for _ in range(2):
        world.kit.travel("2m")
        await app.schedules.atick()
    assert world.rows(SKIPPED) == [("tenders.ingest", "overlap")]
