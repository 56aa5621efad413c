"""Pushes: who gets one, its text, its retries, and tokens that are no longer valid."""

from datetime import datetime, time, timedelta

import psycopg
import pytest

from tenders import phones
from tenders.app import DETAIL_WAITS, app, published
from tenders.phones import Phone
from tenders.preferences import Preferences
from tenders.tender import CHILE
from tenders.tests.conftest import ANA, BEN, CYD, World

pytestmark = pytest.mark.slow


async def test_texts_are_in_the_language_of_the_phone(world: World) -> None:
    async with await psycopg.AsyncConnection.connect(app.url) as connection:
        await phones.register(connection, "ana", Phone(ANA), Preferences())
        await phones.register(connection, "cyd", Phone(CYD, locale="en"), Preferences())
    world.kit.travel_to(datetime.combine(world.authority.today().date() + timedelta(days=1), time(12), CHILE))
    day = world.authority.today() + timedelta(days=10)
    world.authority.publish(amount=43_050_000)
    world.authority.publish(amount="Igual o superior a 1.000 UTM")
    # Of this one only the search page tells: its closing time is a date.
    hidden = world.authority.publish(amount=None)
    world.api.no_details = {hidden}
    await world.cycle()
    for _ in DETAIL_WAITS:
        world.kit.travel("12m")
        await world.kit.adrain()
    texts = {(message["data"]["code"], message["to"]): message["body"] for message in world.expo.accepted}
    one, two, three = (f"I. Municipalidad de Prueba {number}:" for number in (1, 2, 3))
    assert [text for (_, token), text in sorted(texts.items()) if token == ANA] == [
        f"{one} $43.050.000, cierra el {day:%d-%m-%Y} a las 15:00",
        f"{two} Igual o superior a 1.000 UTM, cierra el {day:%d-%m-%Y} a las 15:00",
        f"{three} $3.000.000, cierra el {day:%d-%m-%Y}",
    ]
    assert [text for (_, token), text in sorted(texts.items()) if token == CYD] == [
        f"{one} CLP 43,050,000, closes on {day:%Y-%m-%d} at 15:00",
        f"{two} Igual o superior a 1.000 UTM, closes on {day:%Y-%m-%d} at 15:00",
        f"{three} CLP 3,000,000, closes on {day:%Y-%m-%d}",
    ]
    title = {message["title"] for message in world.expo.accepted if message["data"]["code"] == hidden}
    assert title == {"Raciones alimenticias & accesorios"}


async def test_a_preference_counts_until_the_push_is_sent(world: World) -> None:
    """As in the original design, preferences are checked again right before sending."""
    world.expo.fault = "broken"
    world.authority.publish(region="Biobío", amount=9_000_000)
    await world.cycle()
    await world.register("ben", BEN, Preferences(enabled=False))
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
    await world.register("ana", ANA)
    await world.register("cyd", CYD)
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
