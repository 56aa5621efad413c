"""The requirements of the original design, cycle by cycle."""

from datetime import datetime, time, timedelta

import pytest

from tenders import chilecompra
from tenders.app import DETAIL_WAITS, app
from tenders.tender import CHILE
from tenders.tests.conftest import ANA, BEN, TICKET, World

pytestmark = pytest.mark.slow


async def test_the_cycles_run_at_the_times_of_the_original_design(world: World) -> None:
    rules = {row.key: row.rule for row in app.schedules.list()}
    assert rules == {
        "tenders.ingest": {"kind": "every", "interval": 120},
        "tenders.dispatch": {"kind": "every", "interval": 60},
        "tenders.receipt": {"kind": "every", "interval": 60},
        "sereno.archive_move": {"kind": "cron", "expression": "17 3 * * *", "tz": "America/Santiago"},
        "sereno.archive_export": {"kind": "cron", "expression": "47 3 * * *", "tz": "America/Santiago"},
        # The safety net of pushes, which are sent at once.
        "sereno.sweep_notifications.tenders.push": {"kind": "every", "interval": 60},
    }


@pytest.mark.quick
async def test_a_tender_is_ingested_announced_and_confirmed(world: World) -> None:
    code = world.authority.publish(region="Biobío", amount=7_000_000)
    await world.cycle()
    assert world.pushed() == [(code, ANA), (code, BEN)]
    await world.cycle()
    assert world.states() == {"ana": "sent", "ben": "sent"}
    assert world.tenders() == {code: ("Biobío", 7_000_000, "I. Municipalidad de Prueba 1", False)}
    await world.until_receipts()
    assert world.states() == {"ana": "delivered", "ben": "delivered"}
    assert world.tenders() == {code: ("Biobío", 7_000_000, "I. Municipalidad de Prueba 1", True)}
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
    world.page.redesigned = True
    code = world.authority.publish()
    await world.cycle()
    assert list(world.tenders()) == [code]
    assert world.log_messages("tenders.source_down") == [
        "the search page returned no results: its structure has changed"
    ]


async def test_the_api_may_fail_without_blocking_the_page(world: World) -> None:
    """The page has no regions: after the last retry of the API, the event is sent without one."""
    world.api.fault = "busy"
    code = world.authority.publish(region="Biobío", amount=7_000_000)
    await world.cycle()
    assert world.tenders() == {code: (None, 7_000_000, "I. Municipalidad de Prueba 1", False)}
    for _ in DETAIL_WAITS:
        assert not world.pushed()
        world.kit.travel("12m")
        await world.kit.adrain()
    assert world.pushed() == [(code, ANA), (code, BEN)]
    assert not world.kit.jobs(state="dead")


async def test_an_unresponsive_api_does_not_delay_the_page(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chilecompra, "LISTS_WITHIN", 0.1)
    world.api.open.clear()
    code = world.authority.publish()
    await world.cycle()
    assert world.log_messages("tenders.source_down") == ["the API is too slow for its lists"]
    assert list(world.tenders()) == [code]
    world.api.open.set()
    await world.cycle()
    assert world.pushed() == [(code, ANA)]


async def test_late_details_are_announced_and_stored(world: World) -> None:
    code = world.authority.publish(region="Metropolitana", amount=7_000_000)
    world.api.no_details = {code}
    await world.cycle()
    assert not world.pushed()
    world.api.no_details = set()
    await world.cycle()
    assert world.pushed() == [(code, ANA)]
    assert world.tenders() == {code: ("Metropolitana", 7_000_000, "I. Municipalidad de Prueba 1", False)}


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
    day = world.authority.today().date()
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
