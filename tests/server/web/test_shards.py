"""The overview of the shards in a browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from sereno import Sereno
from tests.databases import DatabasePool
from tests.server.two_shards import TwoShards, second_database, two_shards
from tests.server.web.outages import unavailable
from tests.server.web.visit import InspectPage, Visits

LOOKS = ((False, 1440), (True, 1440), (False, 390), (True, 390))


@pytest.fixture
def second_url(databases: DatabasePool) -> Iterator[str]:
    with second_database(databases) as url:
        yield url


@pytest.fixture
def shards(app: Sereno, second_url: str) -> Iterator[TwoShards]:
    with two_shards(app, second_url) as made:
        yield made


@pytest.mark.slow
def test_the_overview_leads_to_a_shard_and_back_and_follows_an_outage(
    shards: TwoShards, browse: Visits, inspect_page: InspectPage, server_url: str, second_url: str
) -> None:
    work = shards.apps["b"].task(name="work")(lambda: None)
    work.enqueue()
    page = browse("", url=shards.url)
    row = page.locator("tbody tr", has_text="b").last
    expect(row).to_contain_text("reachable")
    inspect_page(page, "shards", *LOOKS)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.get_by_role("link", name="b", exact=True).click()
    expect(page).to_have_url(f"{shards.url}/shards/b/")
    expect(page.locator("#now-newest tbody tr")).to_have_count(1)
    inspect_page(page, "shard-now", *LOOKS)
    page.get_by_role("link", name="shard b").click()
    expect(page).to_have_url(f"{shards.url}/")
    page.evaluate("window.stays = true")
    with unavailable(server_url, second_url):
        expect(row).to_contain_text("not reachable")
        expect(page.get_by_role("heading", level=1)).to_have_text("The shard b does not respond.")
        inspect_page(page, "shards-away", *LOOKS)
    expect(page.get_by_role("heading", level=1)).to_have_text("All shards respond.")
    assert page.evaluate("window.stays"), "the page was reloaded"


@pytest.mark.slow
def test_the_overview_in_the_other_languages(shards: TwoShards, browse: Visits) -> None:
    for language, sentence in (("es", "Todos los shards responden."), ("pt", "Todos os shards respondem.")):
        page = browse("", url=shards.url, language=language)
        expect(page.get_by_role("heading", level=1)).to_have_text(sentence)
