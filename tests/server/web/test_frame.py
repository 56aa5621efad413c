"""The frame of every page: shortcuts, theme, language, time zone, and the width of a phone."""

import re

import pytest
from playwright.sync_api import expect

from sereno.server.web.page_request import SECTIONS
from tests.server.api.conftest import Served
from tests.server.web.visit import DARK_DESKTOP, DARK_PHONE, LIGHT_DESKTOP, LIGHT_PHONE, InspectPage, Visits

LOOKS = (LIGHT_DESKTOP, DARK_DESKTOP, LIGHT_PHONE, DARK_PHONE)


@pytest.mark.slow
def test_the_frame_is_accessible(browse: Visits, inspect_page: InspectPage) -> None:
    page = browse("")
    expect(page.locator("h1")).to_be_visible()
    inspect_page(page, "now-empty", *LOOKS)
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    inspect_page(page, "keys", *LOOKS)


@pytest.mark.slow
def test_keyboard_shortcuts_work_outside_of_fields(browse: Visits, site: Served) -> None:
    page = browse("")
    keys = page.locator("#keys")
    page.keyboard.press("?")
    expect(keys).to_be_visible()
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()

    search = page.get_by_label("Search jobs")
    page.keyboard.press("/")
    expect(search).to_be_focused()
    # Typing in a field triggers no shortcut.
    page.keyboard.type("t?gl/")
    expect(search).to_have_value("t?gl/")
    expect(keys).to_be_hidden()
    page.keyboard.press("Escape")
    expect(search).not_to_be_focused()

    live = page.locator("#live")
    page.keyboard.press("l")
    expect(live).to_have_text("paused")
    expect(live).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("l")
    expect(live).to_have_text("live")

    page.keyboard.press("Control+t")
    expect(page.locator("html")).not_to_have_attribute("data-theme", re.compile("."))


@pytest.mark.slow
def test_g_goes_to_every_page(browse: Visits, site: Served) -> None:
    page = browse("", own=True)
    links = page.locator("aside nav a")
    assert links.count() == len(SECTIONS)
    assert len({key for _, _, key, _ in SECTIONS}) == len(SECTIONS), "two pages share a key"
    # Navigation is intercepted, because other tests open the pages themselves.
    page.evaluate("""() => {
        window.went = [];
        addEventListener("click", (event) => { event.preventDefault(); went.push(event.target.href); });
    }""")
    # A `g` expires after a while, so no time passes between two keys.
    page.clock.set_fixed_time("2099-01-01T00:00:00Z")
    for _, _, key, _ in SECTIONS:
        page.keyboard.press("g")
        page.keyboard.press(key)
    assert page.evaluate("went") == [f"{site.url}/{path}" for path, _, _, _ in SECTIONS]
    # After a `g` with an unknown key, the next key has its own meaning.
    page.keyboard.press("g")
    page.keyboard.press("z")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()


@pytest.mark.slow
def test_the_first_tab_stop_skips_to_the_content(browse: Visits) -> None:
    page = browse("")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


@pytest.mark.slow
def test_the_theme_is_stored(browse: Visits) -> None:
    page = browse("", dark=True)
    root = page.locator("html")
    background = "getComputedStyle(document.body).backgroundColor"
    night = page.evaluate(background)
    page.keyboard.press("t")
    expect(root).to_have_attribute("data-theme", "light")
    day = page.evaluate(background)
    assert day != night
    page.reload()
    expect(root).to_have_attribute("data-theme", "light")
    assert page.evaluate(background) == day
    page.get_by_role("button", name="Light or dark").click()
    page.reload()
    expect(root).to_have_attribute("data-theme", "dark")
    assert page.evaluate(background) == night


@pytest.mark.slow
def test_the_language_is_the_browsers_or_the_chosen_one(browse: Visits) -> None:
    page = browse("", language="pt-BR")
    root = page.locator("html")
    expect(root).to_have_attribute("lang", "pt")
    expect(page.locator("aside nav a").nth(1)).to_have_text("Agendamentos")
    page.locator('[data-cookie="sereno_lang"]').select_option("es")
    expect(root).to_have_attribute("lang", "es")
    page.reload()
    expect(root).to_have_attribute("lang", "es")
    expect(page.get_by_role("link", name="Programaciones")).to_be_visible()
    assert browse("", language="fi").locator("html").get_attribute("lang") == "en"


@pytest.mark.slow
def test_invalid_cookies_are_ignored(browse: Visits, site: Served) -> None:
    page = browse("")
    names = ("sereno_zone", "sereno_lang", "sereno_theme")
    for value in ("../../etc/passwd", "%22%3E%3Cscript%3Ealert(1)%3C/script%3E", "x" * 3000):
        page.context.add_cookies([{"name": name, "value": value, "url": site.url} for name in names])
        page.reload()
        expect(page.locator("html")).to_have_attribute("lang", "en")
        expect(page.locator("h1")).to_be_visible()


@pytest.mark.slow
def test_times_are_shown_in_the_chosen_zone(browse: Visits) -> None:
    page = browse("", zone="Australia/Eucla")
    zones = page.get_by_label("Time zone")
    expect(zones).to_have_value("UTC")
    under = page.locator("#now-ended svg .ax").last
    minute = int((under.text_content() or "")[-2:])
    with page.expect_navigation():
        zones.select_option("Australia/Eucla")
    expect(zones).to_have_value("Australia/Eucla")
    # The zone is 8 h 45 min ahead, and a minute may have passed.
    assert (int((under.text_content() or "")[-2:]) - minute - 45) % 60 in (0, 1)


@pytest.mark.slow
def test_on_a_phone_the_page_fits_the_window(browse: Visits) -> None:
    page = browse("", width=320)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    nav = page.locator("aside nav a").last
    nav.scroll_into_view_if_needed()
    expect(nav).to_be_in_viewport()
