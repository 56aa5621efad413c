"""The search page and the API of mercadopublico.cl, in their real shapes, over real HTTP."""

import asyncio
from datetime import date, datetime, timedelta
from typing import Any

import pytest

from sereno.testing.process import wait_for
from sereno.testing.provider import Fault
from tenders import chilecompra, search_page
from tenders.app import TENANT, announce, app
from tenders.source import Unavailable
from tenders.stand_ins import Api, Authority, SearchPage
from tenders.tender import CHILE, Tender
from tenders.tests.conftest import ANA, TICKET, World

pytestmark = pytest.mark.slow

NOON = datetime(2026, 11, 19, 12, tzinfo=CHILE)


@pytest.fixture
def authority() -> Authority:
    return Authority(lambda: NOON)


async def test_details_are_read_whatever_the_shape_of_their_parts(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    code = authority.publish(region="Metropolitana", amount=43_050_000.0, category="43211500")
    record = dict(authority.tenders[0])
    full = Tender(
        code,
        "Reparación techumbre escuela & accesorios",
        kind="LE",
        region="Metropolitana",
        buyer="I. Municipalidad de Prueba 1",
        amount=43_050_000,
        categories=("43211500",),
        published_at=datetime(2026, 11, 19, 12, 0, 0, 847000, CHILE),
        closes_at=datetime(2026, 11, 29, 15, tzinfo=CHILE),
    )
    item, buyer = record["Items"]["Listado"][0], record["Comprador"]
    nothing_known = {"categories": None, "buyer": None, "region": None, "published_at": None, "closes_at": None}
    # What the API changes in its record, and what is read then.
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"MontoEstimado": "43.050.000"}, {}),
        ({"MontoEstimado": "$ 43.050.000,00"}, {}),
        ({"MontoEstimado": "43050000"}, {}),
        ({"MontoEstimado": 0.0}, {"amount": None}),
        ({"MontoEstimado": None}, {"amount": None}),
        ({"MontoEstimado": "Entre 100 y 1000 UTM"}, {"amount": None, "amount_text": "Entre 100 y 1000 UTM"}),
        ({"Moneda": "USD"}, {"amount": None, "amount_text": "43.050.000 USD"}),
        ({"Comprador": None}, {"buyer": None, "region": None}),
        ({"Comprador": dict.fromkeys(buyer)}, {"buyer": None, "region": None}),
        ({"Comprador": buyer | {"RegionUnidad": " VIII Región del Bío-Bío "}}, {"region": "Biobío"}),
        ({"Fechas": None, "FechaCierre": "2026-11-29T15:00:00"}, {"published_at": None}),
        ({"Fechas": {"FechaCierre": "1900-01-03T00:00:00"}}, {"published_at": None, "closes_at": None}),
        ({"Items": {"Cantidad": 1, "Listado": item}}, {}),
        ({"Items": {"Listado": [item | {"CodigoCategoria": 43211500}]}}, {}),
        ({"Items": None}, {"categories": None}),
        ({"Items": 7, "Comprador": [], "Fechas": "", "Tipo": 5}, nothing_known),
    ]
    async with Api(authority, TICKET) as api:
        monkeypatch.setenv("TENDERS_API_URL", api.url)
        monkeypatch.setenv("TENDERS_API_TICKET", TICKET)
        for change, differs in cases:
            with subtests.test(str(change)[:80]):
                authority.tenders[0] = record | change
                # Its list is an object instead of a list.
                assert await chilecompra.details(code) == Tender(**vars(full) | differs)


async def test_lists_have_the_published_tenders_of_the_days(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Api(authority, TICKET) as api:
        monkeypatch.setenv("TENDERS_API_URL", api.url)
        monkeypatch.setenv("TENDERS_API_TICKET", TICKET)
        monkeypatch.setenv("TENDERS_API_PAUSE", "1ms")
        today = NOON.date()
        assert (await chilecompra.lists([today])).tenders == []
        one = authority.publish()
        assert [tender.code for tender in (await chilecompra.lists([today])).tenders] == [one]
        two, closed = authority.publish(), authority.publish()
        authority.tenders[-1]["CodigoEstado"] = 6
        found = await chilecompra.lists([today - timedelta(days=1), today])
        assert [tender.code for tender in found.tenders] == [one, two]
        assert closed not in str(found)
        asked = [request.path.partition("&ticket=")[0] for request in api.log[-2:]]
        assert asked == [f"{chilecompra.PATH}?fecha={day}112026&estado=publicada" for day in (18, 19)]


async def test_a_refusal_is_understood_whatever_its_status(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    async with Api(authority, TICKET) as api:
        monkeypatch.setenv("TENDERS_API_URL", api.url)
        monkeypatch.setenv("TENDERS_API_TICKET", "another")
        # Its status is one of success.
        await _refused(r"\(203\)")
        monkeypatch.setenv("TENDERS_API_TICKET", TICKET)
        api.refuse = 1
        assert (await _refused("10500")).after == chilecompra.AFTER_SIMULTANEOUS
        await _refused("does not know")
        faults: dict[Fault, str] = {"html": "did not return a list", "half": "did not respond", "busy": "HTTP 429"}
        for fault, message in faults.items():
            with subtests.test(fault):
                api.fault = fault
                assert (await _refused(message)).after == (7 if fault == "busy" else None)


async def _refused(message: str) -> Unavailable:
    with pytest.raises(Unavailable, match=message) as caught:
        await chilecompra.details("1-1-LE26")
    assert TICKET not in str(caught.value)
    return caught.value


async def test_the_search_page_is_read_page_by_page(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [authority.publish(amount=1_500_000) for _ in range(25)]
    authority.tenders[24]["MontoEstimado"] = "Igual o superior a 1.000 UTM e inferior a 2.000 UTM"
    authority.tenders[23]["CodigoEstado"] = 6
    authority.tenders[22] |= {"Comprador": None, "Nombre": "Ñandú <b>& cía.</b>"}
    async with SearchPage(authority) as page:
        monkeypatch.setenv("TENDERS_SEARCH_URL", page.url)
        reading = await search_page.newest(NOON.date())
        assert reading.problem is None
        assert [tender.code for tender in reading.tenders] == [each for each in codes[::-1] if each != codes[23]]
        first, second = reading.tenders[:2]
        assert (first.amount, first.amount_text) == (None, "Igual o superior a 1.000 UTM e inferior a 2.000 UTM")
        assert second == Tender(
            codes[22],
            "Ñandú <b>& cía.</b>",
            kind="LE",
            amount=1_500_000,
            published_at=datetime(2026, 11, 19, tzinfo=CHILE),
            closes_at=datetime(2026, 11, 29, 23, 59, tzinfo=CHILE),
        )
        assert [request.json()["pagina"] for request in page.log] == [0, 1, 2]
        assert page.log[0].json() == search_page.SEARCH | {"pagina": 0}


async def test_the_search_page_is_read_back_to_a_day_and_no_further_than_the_setting(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        authority.publish()
        authority.tenders[-1]["Fechas"]["FechaPublicacion"] = f"2026-11-{1 + number // 4:02}T09:00:00"
    async with SearchPage(authority) as page:
        monkeypatch.setenv("TENDERS_SEARCH_URL", page.url)
        found = await search_page.newest(date(2026, 11, 13))
        days = {tender.published_at.day for tender in found.tenders if tender.published_at}
        assert {13, 14, 15} <= days
        assert len(page.log) == 3
        monkeypatch.setenv("TENDERS_SEARCH_PAGES", "2")
        await search_page.newest(date(2026, 1, 1))
        assert len(page.log) == 5


async def test_a_page_that_fails_keeps_what_the_pages_before_it_had(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(15):
        authority.publish()
    async with SearchPage(authority) as page:
        monkeypatch.setenv("TENDERS_SEARCH_URL", page.url)
        page.open.clear()
        reading = asyncio.create_task(search_page.newest(NOON.date()))
        await asyncio.to_thread(wait_for, lambda: page.log, 60)
        page.fault = "broken"
        page.open.set()
        found = await reading
    assert len(found.tenders) == 10
    assert str(found.problem) == "the search page returned HTTP 503"


async def test_requests_with_one_ticket_never_come_at_the_same_time(world: World) -> None:
    """Ingest and many details, in one worker with many slots: the API would refuse the second of two."""
    world.api.latency = 0.02
    codes = [world.authority.publish() for _ in range(12)]
    await world.cycle()
    assert {code for code, token in world.pushed() if token == ANA} == set(codes)
    await world.cycle()
    assert world.api.refused == 0
    limits = {each.name: each.numbers for each in await app.limits.alist("tenders.*")}
    assert limits["tenders.ticket"] == {"slots": 1}


async def test_new_lists_go_before_the_details_of_earlier_ones(world: World) -> None:
    code = world.authority.publish()
    await world.cycle()
    await app.aenqueue_many([announce.using(tenant=TENANT).job(code) for _ in range(20)])
    before = len(world.api.log)
    await world.cycle()
    asked = ["fecha=" in request.path for request in world.api.log[before:]]
    assert len(asked) > 20
    assert any(asked[:5])


async def test_a_refused_request_is_repeated_after_a_pause(world: World) -> None:
    """Another program with the same ticket: the details are fetched again, and no other job asks meanwhile."""
    code = world.authority.publish()
    world.api.refuse = 2
    await world.cycle()
    assert not world.pushed()
    assert world.log_messages("tenders.source_down") == ["the API refused simultaneous requests (10500)"]
    world.kit.travel("15s")
    await world.kit.adrain()
    assert (code, ANA) in world.pushed()
