"""The leading scheduler reads the gauges for all workers, and shows none that are too old."""

from time import monotonic

import psycopg
import pytest
from msgspec.structs import replace

from sereno import Sereno
from sereno.errors import DatabaseUnavailable
from sereno.monitoring.gauges.reader import GaugeReader
from sereno.monitoring.scheduler import monitored_scheduler
from sereno.schedules.scheduler import Scheduler
from sereno.telemetry.database_gauges import MOST_INTERVALS, DatabaseGauges
from tests.facts import auntil
from tests.jobs.job_steps import add

OLD = DatabaseGauges({}, monotonic() - 1000, 0.1)


@pytest.mark.slow
async def test_the_leader_has_the_gauges_and_the_next_leader_goes_on(
    app: Sereno, connection: psycopg.Connection
) -> None:
    add(connection, 3)
    settings = replace(app.settings, gauge_interval=1.0, health_port=0)
    first, second = monitored_scheduler(app.url, settings), monitored_scheduler(app.url, settings)
    first.start()
    found = await auntil(lambda: first.figures.database)
    assert found is not None
    assert dict(found.samples["sereno_jobs"]) == {("default", "", "ready"): 3}
    second.start()
    await auntil(lambda: second.rounds > 2)
    assert second.figures.database is None
    await first.stop()
    await auntil(lambda: second.figures.database)
    await second.stop()


async def test_a_follower_shows_no_gauges(app: Sereno) -> None:
    scheduler = Scheduler(app.url, app.settings)
    scheduler.figures.database = OLD
    reader = GaugeReader(app.url, app.settings, scheduler)
    assert 0 < await reader.run_once() <= app.settings.gauge_interval
    assert scheduler.figures.database is None


async def test_old_gauges_are_not_shown_while_the_database_is_away(app: Sereno) -> None:
    scheduler = Scheduler(app.url, app.settings)
    scheduler._fence = 1
    reader = GaugeReader("postgresql://127.0.0.1:1/none", app.settings, scheduler)
    recent = DatabaseGauges({}, monotonic() - (MOST_INTERVALS - 1) * app.settings.gauge_interval, 0.1)
    for known, shown in ((OLD, None), (recent, recent)):
        scheduler.figures.database = known
        with pytest.raises(DatabaseUnavailable):
            await reader.run_once()
        assert scheduler.figures.database is shown


def test_nothing_is_read_where_no_metrics_are_served(app: Sereno, subtests: pytest.Subtests) -> None:
    for settings, readers in (
        ({"health_port": None}, 0),
        ({"health_port": 0, "gauge_interval": 0.0}, 0),
        ({"health_port": 0}, 1),
    ):
        with subtests.test(settings=settings):
            scheduler = monitored_scheduler(app.url, replace(app.settings, **settings))
            assert sum(isinstance(each, GaugeReader) for each in scheduler._attached) == readers
