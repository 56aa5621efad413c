"""Charts over time: axes with units, and one cursor for all charts of the same times."""

import pytest
from playwright.sync_api import expect

from sereno import Sereno
from sereno.jobs.queries import minute_stats
from sereno.server.web.charts import axes
from sereno.telemetry.metrics import MetricTally
from tests.server.web.visit import Visits


def test_values_of_an_axis_are_round(subtests: pytest.Subtests) -> None:
    for top, amount, expected in (
        (0, axes.count, [0, 1]),
        (1, axes.count, [0, 1]),
        (7, axes.count, [0, 5, 10]),
        (1396, axes.count, [0, 500, 1000, 1500]),
        (100, axes.percentage, [0, 50, 100]),
        (0.415, axes.duration, [0, 0.2, 0.4, 0.6]),
        (500, axes.duration, [0, 300, 600]),
        (200_000, axes.duration, [0, 86_400, 172_800, 259_200]),
    ):
        with subtests.test(top=top):
            found = axes.ticks(top, amount)
            assert found == pytest.approx(expected)
            assert found[-1] >= top


def test_values_have_their_unit() -> None:
    assert [axes.count(value) for value in (0, 950, 1500, 2_000_000)] == ["0", "950", "1.5k", "2M"]
    assert [axes.duration(value) for value in (0, 0.2, 1.5, 600)] == ["0 s", "200 ms", "1.50 s", "10 m"]
    assert axes.percentage(50) == "50 %"


@pytest.mark.slow
def test_one_step_is_shown_on_all_charts_of_the_same_times(app: Sereno, browse: Visits) -> None:
    tally = MetricTally()
    tally.job("default", "work", "succeeded", 0.1, 2.0, None)
    tally.job("default", "work", "dead", 0.1, 2.0, None)
    app.database.run(minute_stats.add(tally))
    page = browse("")
    # Without live updates, no minute passes under the cursor.
    page.keyboard.press("l")
    ended, waited, ran = (page.locator(f"{part} .chart") for part in ("#now-ended", "#now-waited", "#now-ran"))
    expect(waited.locator(".ay").last).to_contain_text("ms")
    expect(ended.locator(".key")).to_have_text("succeededretrieddead")

    ended.focus()
    page.keyboard.press("ArrowLeft")
    words = ended.locator("output")
    expect(words).not_to_be_empty()
    time = (words.text_content() or "").partition(": ")[0]
    for chart in (waited, ran):
        expect(chart.locator("output")).to_contain_text(time)
        expect(chart.locator(".cursor")).to_have_css("visibility", "visible")
    page.keyboard.press("Escape")
    expect(waited.locator("output")).to_be_empty()

    columns = ran.locator(".hit")
    columns.nth(10).hover()
    expect(ended.locator("output")).to_contain_text(
        (columns.nth(10).locator("xpath=..").locator("title").text_content() or "").partition(": ")[0]
    )
    # Leaving the chart ends it, also for the others.
    ended.evaluate("(chart) => chart.blur()")
    page.locator("h1").hover()
    expect(ended.locator("output")).to_be_empty()
