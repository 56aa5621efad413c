"""The requirements of the seed, cycle by cycle."""

from datetime import datetime, time, timedelta

import psycopg
import pytest

from tenders import sources
from tenders.app import WAITS, app, published, register
from tenders.stand_ins import Page
from tenders.tender import CHILE
from tenders.tests.conftest import ANA, BEN, CYD, TICKET, World

pytestmark = pytest.mark.slow


async def test_five_cycles_at_the_times_of_the_seed(world: World) -> None:
    rules = {row.key: row.rule for row in app.schedules.list()}
    assert rules == {
        "tenders.ingest": {"kind": "every", "interval": 120},
        "sereno.sweep_notifications.tenders.push": {"kind": "every", "interval": 60},
        "tenders.confirm": {"kind": "every", "interval": 60},
        "sereno.archive_move": {"kind": "cron", "expression": "17 3 * * *"},
        "sereno.archive_export": {"kind": "cron", "expression": "47 3 * * *"},
    }


@pytest.mark.quick
async def test_a_tender_is_ingested_announced_and_confirmed(world: World) -> None:
    code = world.authority.publish(region="Biobío", amount=7_000_000)
    await world.cycle()
    assert world.pushed() == [(code, ANA), (code, BEN)]
    await world.cycle()
    assert world.states() == {"ana": "sent", "ben": "sent"}
    assert world.tenders() == {code: ("Biobío", 7_000_000, "Municipality 1", False)}
    await world.until_receipts()
    assert world.states() == {"ana": "delivered", "ben": "delivered"}
    assert world.tenders() == {code: ("Biobío", 7_000_000, "Municipality 1", True)}
    await world.cycle()
    assert len(world.pushed()) == 2
    world.check_invariants()


async def test_a_cycle_never_overlaps_itself(world: World) -> None:
    for _ in range(2):
        world.kit.travel("2m")
        await app.schedules.atick()
    waiting = world.kit.jobs("tenders.ingest", state="ready")
    skipped = world.rows(
        "select reason from {sereno}.fires join {sereno}.schedules on schedules.id = schedule_id"
        " where key = 'tenders.ingest' and job_id is null"
    )
    assert (len(waiting), skipped) == (1, [("overlap",)])


async def test_the_page_may_fail_without_blocking_the_api(world: World) -> None:
    world.page.fault = "broken"
    code = world.authority.publish(region="Biobío", amount=7_000_000)
    await world.cycle()
    assert world.pushed() == [(code, ANA), (code, BEN)]


async def test_a_page_that_was_redesigned_counts_as_down(world: World) -> None:
    Page.layout, layout = "<div>{rows}</div>", Page.layout
    try:
        code = world.authority.publish()
        await world.cycle()
        assert list(world.tenders()) == [code]
        assert world.log_messages("tenders.source_down") == ["the page has no table of tenders"]
    finally:
        Page.layout = layout


async def test_the_api_may_fail_without_blocking_the_page(world: World) -> None:
    """The page has no amounts: after the last retry of the API, the event is sent without them."""
    world.api.fault = "busy"
    code = world.authority.publish(region="Biobío", amount=7_000_000)
    await world.cycle()
    assert world.tenders() == {code: ("Biobío", None, None, False)}
    for _ in WAITS:
        assert not world.pushed()
        world.kit.travel("12m")
        await world.kit.adrain()
    assert world.pushed() == [(code, ANA), (code, BEN)]
    assert not world.kit.jobs(state="dead")


async def test_an_unresponsive_api_does_not_delay_the_page(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LISTS_WITHIN", 0.1)
    world.api.open.clear()
    code = world.authority.publish()
    await world.cycle()
    assert world.log_messages("tenders.source_down") == ["the API is too slow for its lists"]
    assert world.pushed() == [(code, ANA)]
    world.api.open.set()


async def test_late_details_are_announced_and_stored(world: World) -> None:
    code = world.authority.publish(region="Metropolitana", amount=7_000_000)
    world.api.no_details = {code}
    await world.cycle()
    assert not world.pushed()
    world.api.no_details = set()
    await world.cycle()
    assert world.pushed() == [(code, ANA)]
    assert world.tenders() == {code: ("Metropolitana", 7_000_000, "Municipality 1", False)}


@pytest.mark.slow
@pytest.mark.quick
async def test_both_sources_down_is_a_failure_and_the_next_cycle_starts_anew(world: World) -> None:
    world.page.fault = world.api.fault = "close"
    code = world.authority.publish()
    await world.cycle()
    world.kit.travel("10s")
    (dead,) = (await world.kit.adrain()).failed
    assert dead.error_type == "Unavailable"
    assert TICKET not in str(dead)
    world.page.fault = world.api.fault = None
    await world.cycle()
    assert world.pushed() == [(code, ANA)]


async def test_tenders_published_before_midnight_or_during_an_outage_are_found(world: World) -> None:
    await world.cycle()
    world.page.fault = "broken"
    before = world.authority.publish()
    world.kit.travel("2d")
    after = world.authority.publish()
    await world.cycle()
    assert sorted(world.tenders()) == sorted([before, after])


async def test_the_very_first_run_reads_yesterdays_list(world: World) -> None:
    world.page.fault = "broken"
    code = world.authority.publish()
    day = world.authority.tenders[-1]["day"]
    world.kit.travel_to(datetime.combine(day + timedelta(days=1), time(1), CHILE))
    await world.cycle()
    assert list(world.tenders()) == [code]


async def test_invalid_items_do_not_affect_the_others(world: World) -> None:
    for code, title in (("1-1-LE26; drop table", "x"), ("9-9-LE26", ""), ("1" * 50, "x")):
        world.authority.publish()
        world.authority.tenders[-1] |= {"CodigoExterno": code, "Nombre": title}
    world.authority.publish()
    world.authority.tenders[-1] |= {"Nombre": "\x00\x07 " + "ñ" * 5000, "MontoEstimado": -1.0}
    await world.cycle()
    ((title, amount),) = world.rows("select title, amount from tenders.tenders")
    assert (title, amount) == ("ñ" * 200, None)
    assert [message["title"] for message in world.expo.accepted] == ["ñ" * 200] * len(world.expo.accepted)
    assert world.expo.accepted


async def test_only_matching_preferences_are_notified(world: World) -> None:
    elsewhere = world.authority.publish(region="Antofagasta", amount=9_000_000)
    small = world.authority.publish(region="Biobío", amount=1_000)
    wanted = world.authority.publish(region="Biobío", amount=9_000_000)
    await world.cycle()
    assert world.pushed() == sorted([(elsewhere, ANA), (small, ANA), (wanted, ANA), (wanted, BEN)])


async def test_a_preference_counts_until_the_push_is_sent(world: World) -> None:
    """As in the seed, preferences are checked again right before sending."""
    world.expo.fault = "broken"
    world.authority.publish(region="Biobío", amount=9_000_000)
    await world.cycle()
    await app.recipients.aprefer("ben", category="tenders", wanted=False, tenant="tenders")
    world.expo.fault = None
    await world.cycle()
    assert [token for _, token in world.pushed()] == [ANA]
    assert world.states() == {"ana": "sent", "ben": "skipped"}


async def test_a_dead_token_is_not_used_again_until_the_app_registers_it(world: World) -> None:
    world.expo.tickets[ANA] = "DeviceNotRegistered"
    world.expo.receipts_of[BEN] = "DeviceNotRegistered"
    first = world.authority.publish(region="Biobío", amount=9_000_000)
    await world.cycle()
    await world.until_receipts()
    assert world.states() == {"ana": "invalid", "ben": "invalid"}
    assert world.tenders()[first][-1] is False
    second = world.authority.publish(region="Biobío", amount=9_000_000)
    await world.cycle()
    assert world.pushed() == [(first, BEN)]
    world.expo.tickets.clear()
    async with await psycopg.AsyncConnection.connect(app.url) as connection:
        await register(connection, "ana", ANA)
        await register(connection, "cyd", CYD)
    third = world.authority.publish()
    await world.cycle()
    assert world.pushed() == sorted([(first, BEN), (third, ANA), (third, CYD)])
    assert second in world.tenders()
    world.check_invariants()


async def test_a_push_is_retried_after_1_2_4_minutes_and_dead_in_the_end(world: World) -> None:
    world.authority.publish()
    world.expo.fault = "broken"
    await world.cycle()
    waits = []
    while (delivery := world.kit.deliveries(published, to="ana")[0]).state == "pending":
        ((due,),) = world.rows("select due_at from {sereno}.deliveries where id = %s", delivery.id)
        waits.append(due - world.kit.now())
        world.kit.travel_to(due + timedelta(seconds=1))
        await world.kit.adrain()
    assert (delivery.state, delivery.attempts) == ("dead", 9)
    minutes = [1, 2, 4, 8, 16, 32, 60, 60]
    assert all(
        least - 0.5 < wait / timedelta(minutes=1) < 1.2 * least for least, wait in zip(minutes, waits, strict=True)
    )
    world.expo.fault = None
    await app.notifications.arequeue([delivery.id])
    await world.kit.adrain()
    assert world.states() == {"ana": "sent"}
