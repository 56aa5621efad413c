"""How every page looks, in both themes and at three widths: it fits, axe finds nothing, and amber is a warning."""

from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page

from sereno import Sereno
from sereno.jobs.queries import minute_stats
from sereno.schedules.bulk_write import described, write
from sereno.telemetry.metrics import MetricTally
from tests.server.api.conftest import Ask
from tests.server.api.world import Things, fill, fill_over_http
from tests.server.web.shared_site import app, ask, connection, database_url, served
from tests.server.web.visit import TALL, Visits, accessibility_problems, goto
from tests.server.web.world import addresses, pages

__all__ = ["app", "ask", "connection", "database_url", "served"]

WIDTHS = (1440, 1024, 390)
# The pixels at the end of the line of pages that show that it scrolls.
FADED = 32
THEMES = ("light", "dark")
AXE = {"light": 390, "dark": 1440}
# The preview of a message is a document of its own, without our style.
NOT_OURS = {"/template-preview"}
DAILY = {"kind": "daily", "at": "03:00", "tz": "Europe/Riga"}
LONG = "reconciliation.reconcile_all_accounts:r-"
WIDE = "x" * 300

# Elements that scroll sideways: nothing but a chart over time, a calendar, and text that is shown as it is.
SCROLLING = """[...document.querySelectorAll('main *')].filter((each) =>
    each.scrollWidth > each.clientWidth + 1
    && ['auto', 'scroll'].includes(getComputedStyle(each).overflowX)
    && !each.matches('.timeline, .newest, pre, textarea, input, select')
).map((each) => `${each.tagName} ${each.id} ${each.className} ${each.scrollWidth} in ${each.clientWidth}`)"""

# Texts of which a line holds a letter or two, and badges that are as tall as what is beside them.
SQUEEZED = """[...document.querySelectorAll('main td, main a, main p, main dd, main .pill')].filter((each) => {
    const {width, height} = each.getBoundingClientRect();
    return each.matches('.pill') ? height > 30 : height > 5 * width && each.innerText.trim().length > 4;
}).map((each) => each.outerHTML.slice(0, 120))"""

# Elements in the hue of amber that stand for no warning.
AMBER = """(() => {
    const warnings = '.s-retry, .s-paused, .s-warn, .s-warning, .s-unknown, .s-expired, .s-unverified, '
        + '.f-retry, .k-retry, .retry, .attention i, .note, span.old, .level-warning, .brand, mark';
    const isAmber = (colour) => {
        const [r, g, b, alpha] = (colour.match(/^rgba?\\\\((.*)\\\\)/)?.[1] ?? '').split(/[, /]+/).map(Number);
        if (b === undefined || alpha === 0) return false;
        const most = Math.max(r, g, b), least = Math.min(r, g, b);
        if (r !== most || most - least < 60) return false;
        const hue = 60 * (g - b) / (most - least);
        return hue >= 25 && hue <= 60;
    };
    return [...document.querySelectorAll('body *')].filter((each) => {
        const style = getComputedStyle(each);
        const colours = [style.color, style.backgroundColor, style.fill, style.stroke];
        if (style.borderTopWidth !== '0px') colours.push(style.borderTopColor);
        return colours.some(isAmber) && !each.closest(warnings);
    }).map((each) => each.outerHTML.slice(0, 120));
})()"""


@pytest.fixture(scope="module")
def ann(app: Sereno, ask: Ask) -> Things:
    ann, bob = Things("ann-tenant", "canary-ann"), Things("bob-tenant", "canary-bob")
    fill(app, ann, bob)
    fill_over_http(ask("admin"), ann, bob)
    given = [
        {"key": f"{LONG}{number:04}", "task": "work", "args": {"text": WIDE}, "when": DAILY, "tenant": "ann-tenant"}
        for number in range(3)
    ]
    app.database.run(write([described(each, app.new_job) for each in given], actor="test"))
    tally = MetricTally()
    for outcome in ("succeeded", "retry", "dead"):
        tally.job("default", "work", outcome, 0.1, 2.0, "ann-tenant")
    app.database.run(minute_stats.add(tally))
    return ann


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_page_fits_and_is_accessible_and_keeps_amber_for_warnings(
    app: Sereno, ann: Things, browse: Visits, subtests: pytest.Subtests
) -> None:
    every = [address for page in pages(app) if page.path not in NOT_OURS for address, _ in addresses(page, ann)]
    page = browse("")
    browse.forgive("status of 404")
    for address in [*every, f"/schedule?key={LONG}0000", "/nowhere"]:
        goto(page, address.lstrip("/") or "./")
        # The content of a closed one has no layout: what is measured in it is out of date.
        page.evaluate("document.querySelectorAll('main details').forEach((each) => each.open = true)")
        for theme in THEMES:
            page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
            with subtests.test(address=address, theme=theme):
                problems = {width: _problems(page, width, theme) for width in WIDTHS}
                assert {width: found for width, found in problems.items() if found} == {}


def _problems(page: Page, width: int, theme: str) -> list[str]:
    page.set_viewport_size({"width": width, "height": TALL})
    wide = page.evaluate("document.documentElement.scrollWidth")
    found = [f"the page is {wide} wide"] if wide > width else []
    found += [f"scrolls sideways: {each}" for each in page.evaluate(SCROLLING)]
    found += [f"squeezed: {each}" for each in page.evaluate(SQUEEZED)]
    found += [f"amber: {each}" for each in page.evaluate(AMBER)]
    # Each theme, and the widest and the narrowest layout, are seen by axe once.
    return found + accessibility_problems(page) if AXE[theme] == width else found


@pytest.mark.slow
def test_long_names_differ_where_they_are_cut(ann: Things, browse: Visits) -> None:
    page = browse(f"schedules?q=key:{LONG}*")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": TALL})
        tails = page.locator("#schedule-rows tbody td:nth-child(2) .mid > :last-child")
        assert len(set(tails.all_inner_texts())) == 3, width
        # The end is inside of the cell, whatever was cut before it.
        assert all(
            tails.nth(place).evaluate(
                "(each) => each.getBoundingClientRect().right <= each.closest('td').getBoundingClientRect().right + 1"
            )
            for place in range(3)
        ), width


@pytest.mark.slow
def test_rows_are_labelled_cards_on_a_phone(ann: Things, browse: Visits) -> None:
    page = browse("jobs", width=390)
    cells = page.locator("#jobs-table tbody tr").first.locator("td:not(:first-child)")
    label = "(each) => getComputedStyle(each, '::before').content"
    labels = [cells.nth(place).evaluate(label).strip('"') for place in range(cells.count())]
    assert labels[:3] == ["job", "task", "tenant"]
    assert "none" not in labels
    # A live update labels its rows, too.
    with page.expect_event("requestfinished", lambda request: request.headers.get("x-sereno-live") is not None):
        page.locator("#live").click()
        page.locator("#live").click()
    page.wait_for_function("() => document.querySelector('#jobs-table td[data-label=task]') !== null")


@pytest.mark.slow
def test_the_current_page_is_seen_among_the_others_on_a_phone(
    ann: Things, browse: Visits, subtests: pytest.Subtests
) -> None:
    page = browse("", width=390)
    names = page.locator("aside nav a").all_inner_texts()
    for name in names:
        page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()
        # A function is evaluated once; the policy of the page forbids to evaluate a text at each look.
        page.wait_for_function("() => 'ready' in document.documentElement.dataset")
        with subtests.test(page=name):
            place = page.locator("aside [aria-current]").bounding_box()
            assert place is not None
            assert place["x"] >= 0
            assert place["x"] + place["width"] <= 390 - FADED
    assert len(names) > 8


@pytest.mark.slow
def test_what_has_passed_is_not_in_the_future_for_a_device_whose_clock_is_behind(ann: Things, browse: Visits) -> None:
    page = browse("", own=True)
    page.clock.install(time=datetime.now(UTC) - timedelta(hours=1))
    goto(page, "jobs")
    created = page.locator("#jobs-table time[data-past]")
    assert created.count() > 0
    page.clock.run_for(3000)
    assert [text for text in created.all_inner_texts() if not text.endswith(" ago")] == []


@pytest.mark.slow
def test_focus_is_visible(ann: Things, browse: Visits) -> None:
    page = browse("schedules")
    ring = (
        "getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth"
    )
    for _ in range(25):
        page.keyboard.press("Tab")
        assert page.evaluate(ring) == "solid2px", page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
