"""Tenants with work, errors and schedules, for the tests of their pages."""

from sereno import Sereno
from sereno.error_text import FailureText
from sereno.jobs.queries import error_groups, minute_stats
from sereno.schedules.bulk_write import described, write
from sereno.telemetry.metrics import MetricTally

DAILY = {"kind": "daily", "at": "03:00", "tz": "Europe/Riga"}
HOSTILE = "<img src=x onerror=alert(1)>\"'/ {{7*7}}%"


def create_tenants(app: Sereno) -> None:
    """Tenant ann has most of the work, bob has a little, and a third tenant has a hostile name."""

    @app.task
    def work(number: int = 0) -> None: ...

    tally = MetricTally()
    for tenant, seconds, outcome in (("ann", 60.0, "succeeded"), ("ann", 20.0, "dead"), ("bob", 5.0, "succeeded")):
        tally.job("default", "work", outcome, 0.1, seconds, tenant)
    tally.job("default", "work", "succeeded", 0.1, 5.0, HOSTILE)
    tally.job("default", "work", "succeeded", 0.1, 10.0)
    tally.failed(FailureText("00000000000a", "work", "OSError", "secret of bob", "shop.py:work"), 2, "ann")
    tally.failed(FailureText("00000000000b", "work", "ValueError", "secret of bob", "shop.py:work"), 2, "bob")
    app.database.run(minute_stats.add(tally))
    app.database.run(error_groups.add(tally))
    for tenant in ("ann", "ann", "bob"):
        work.using(tenant=tenant).enqueue(1)
    for key, tenant in (("menu:ann", "ann"), ("menu:bob", "bob")):
        given = {"key": key, "task": "work", "when": DAILY, "tenant": tenant}
        app.database.run(write([described(given, app.new_job)], actor="maria"))
