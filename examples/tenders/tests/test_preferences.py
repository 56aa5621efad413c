"""Preferences by region, amount, kind, category and words: in Python, and as PostgreSQL matches them."""

from dataclasses import replace

import msgspec
import pytest

from sereno.notifications.recipients.condition import compile_condition, holds
from tenders.preferences import Preferences, announcement, condition
from tenders.regions import REGIONS, region_of
from tenders.samples import REGIONS as SPELLED
from tenders.tender import Tender
from tenders.tests.conftest import World

pytestmark = pytest.mark.slow

BRIDGE = Tender(
    "1-1-LE26",
    "Construcción de Puente Peatonal",
    kind="LE",
    region="Biobío",
    amount=7_000_000,
    categories=("72141000", "43211500"),
)
BARE = Tender("1-1-LE26", "Construcción de Puente Peatonal")
WANTED = {
    "anything": Preferences(),
    "its region": Preferences(regions=("Antofagasta", "Biobío")),
    "its kind": Preferences(kinds=("LP", "LE")),
    "from a million": Preferences(amount_min=1_000_000),
    "exactly its amount": Preferences(amount_min=7_000_000, amount_max=7_000_000),
    "up to ten million": Preferences(amount_max=10_000_000),
    "its category": Preferences(categories=("43211500",)),
    "a family of categories": Preferences(categories=("10", "7214")),
    "a word, typed without accents": Preferences(words=("construccion",)),
    "one of two words": Preferences(words=("ambulancia", "PUENTE")),
    "all of it": Preferences(True, ("Biobío",), ("LE",), ("4321",), 1, 10**14, ("peatonal",)),
}
UNWANTED = {
    "another region": Preferences(regions=("Antofagasta",)),
    "another kind": Preferences(kinds=("LP",)),
    "from eight million": Preferences(amount_min=7_000_001),
    "up to six million": Preferences(amount_max=6_999_999),
    "another category": Preferences(categories=("4322", "85")),
    "another word": Preferences(words=("ambulancia",)),
    "its region, and another word": Preferences(regions=("Biobío",), words=("ambulancia",)),
}


def test_a_condition_says_what_a_phone_wants(subtests: pytest.Subtests) -> None:
    for is_wanted, cases in ((True, WANTED), (False, UNWANTED)):
        for name, preferences in cases.items():
            with subtests.test(name):
                assert holds(condition(preferences), _payload(BRIDGE)) is is_wanted
    for name, preferences in UNWANTED.items():
        # A title is always known.
        if not preferences.words:
            with subtests.test(f"{name}: not known of a tender"):
                assert holds(condition(preferences), _payload(BARE))


def test_the_largest_preferences_are_a_valid_condition() -> None:
    largest = Preferences(
        regions=REGIONS,
        kinds=tuple(f"Z{number}" for number in range(10)) * 2,
        categories=tuple(f"{10000000 + number}" for number in range(20)),
        amount_min=0,
        amount_max=10**15 - 1,
        words=tuple(f"{number}{'ñ' * 39}" for number in range(10)),
    )
    assert compile_condition(condition(largest))


async def test_postgresql_matches_as_python_does(world: World) -> None:
    cases = WANTED | UNWANTED
    for number, preferences in enumerate(cases.values()):
        await world.register(f"phone-{number}", f"ExponentPushToken[p{number}]", preferences)
    code = world.authority.publish(region="Biobío", amount=7_000_000, category="43211500")
    world.authority.tenders[0] |= {"Nombre": BRIDGE.title}
    await world.cycle()
    notified = {token for found, token in world.pushed() if found == code}
    tender = replace(BRIDGE, code=code, categories=("43211500",))
    expected = {
        f"ExponentPushToken[p{number}]"
        for number, preferences in enumerate(cases.values())
        if holds(condition(preferences), _payload(tender))
    }
    assert {token for token in notified if "[p" in token} == expected
    assert len(expected) == len(WANTED) - 1


def test_every_spelling_of_a_region_is_that_region(subtests: pytest.Subtests) -> None:
    for name in REGIONS:
        for text in (name, f"Región de {name} ", name.upper(), f"Regi&oacute;n {name}"):
            with subtests.test(text):
                assert region_of(text) == name
    others = {
        **{text: name for name, text in SPELLED.items()},
        "Región del Libertador General Bernardo O\u00b4Higgins": "O'Higgins",
        "Región Aysén del General Carlos Ibáñez del Campo": "Aysén",
        "VIII Región del Bío-Bío": "Biobío",
        "Región de la Araucanía ": "La Araucanía",
        "": None,
        "Extranjero": None,
    }
    for text, expected in others.items():
        with subtests.test(text):
            assert region_of(text) == expected


def _payload(tender: Tender) -> object:
    return msgspec.to_builtins(announcement(tender))
