"""Figures of deliveries, channels and jobs over HTTP."""

import asyncio
from typing import Any

import psycopg
import pytest

from sereno import Sereno
from sereno.jobs.queries import minute_stats
from sereno.telemetry.metrics import MetricTally
from tests.notifications.conftest import Pager, Tender
from tests.server.api.conftest import Ask


@pytest.fixture
def notified(app: Sereno) -> None:
    """Events of two tenants; one of the recipients has no address."""
    published = app.event("tender.published", Tender, channels=[Pager()])

    async def notify_recipients() -> None:
        for tenant in ("t", "s"):
            await app.recipients.aupsert("ada", {"pager": f"{tenant}1"}, tenant=tenant)
            await app.notifications.fanout.fan_out(await published.anotify(Tender("T"), to="ada", tenant=tenant))
        await app.notifications.fanout.fan_out(await published.anotify(Tender("T"), to="unknown", tenant="t"))
        await app.notifications.sender.deliver(1, "pager", "", -2)
        await app.notifications.close()
        await app.database.aclose()

    asyncio.run(notify_recipients())


def _funnel(found: dict[str, Any]) -> tuple[int, ...]:
    return tuple(found[name] for name in ("matched", "eligible", "skipped_total", "sent", "accepted", "failed"))


def test_figures_of_deliveries(ask: Ask, notified: None) -> None:
    client = ask("viewer")
    found = client.get("/figures/deliveries").json()
    assert _funnel(found) == (3, 2, 1, 2, 2, 0)
    assert found["skipped"] == {"no active address": 1}
    assert sum(step["matched"] for step in found["steps"]) == 3
    assert _funnel(client.get("/figures/deliveries?channel=pager&event=tender.published").json()) == (3, 2, 1, 2, 2, 0)
    assert _funnel(client.get("/figures/deliveries?channel=sms").json()) == (0,) * 6
    assert _funnel(client.get("/figures/deliveries?tenant=t&since=7200&step=7200").json()) == (2, 1, 1, 1, 1, 0)


def test_a_tenant_sees_only_its_own_figures(ask: Ask, notified: None) -> None:
    client = ask("viewer", tenant="s")
    assert _funnel(client.get("/figures/deliveries").json()) == (1, 1, 0, 1, 1, 0)
    assert client.get("/figures/deliveries?tenant=t").status_code == 404
    assert client.get("/figures/channels").status_code == 403
    assert client.get("/figures/jobs").status_code == 403
    assert ask(None).get("/figures/deliveries").status_code == 401


def test_figures_of_channels(ask: Ask, notified: None, connection: psycopg.Connection) -> None:
    connection.execute("insert into sereno.channel_pauses (channel, account, reason) values ('pager', '', 'http_401')")
    (found,) = ask("viewer").get("/figures/channels").json()["items"]
    assert (found["channel"], found["account"], found["sent"], found["accepted"]) == ("pager", None, 2, 2)
    assert (found["state"], found["paused_why"], found["codes"]) == ("paused", "http_401", {})
    assert [step["sent"] for step in found["steps"]] == [2]


@pytest.mark.slow
def test_figures_of_jobs(app: Sereno, ask: Ask) -> None:
    tally = MetricTally()
    for outcome in ("succeeded", "succeeded", "dead"):
        tally.job("default", "work", outcome, 0.02, 0.3, "t")
    app.database.run(minute_stats.add(tally))
    found = ask("viewer").get("/figures/jobs?task=work&step=3600").json()
    (step,) = found["steps"]
    assert (step["succeeded"], step["dead"], found["tenants"]) == (2, 1, [])
    assert 0.25 < step["ran_median"] <= 0.5
    (tenant,) = ask("viewer").get("/figures/jobs").json()["tenants"]
    assert (tenant["tenant"], tenant["ended"], tenant["failed"]) == ("t", 3, 1)


INVALID_QUERIES = [
    *("deliveries?since=0", "deliveries?since=nan", "deliveries?step=60", "deliveries?tenant=t&event=e"),
    *("deliveries?event=%00", "deliveries?since=9999999999", "channels?step=1", "channels?since=604800&step=60"),
    *("jobs?since=inf", "jobs?queue=%00", "jobs?since=691200&step=60", "channels?channel="),
]


def test_invalid_figure_queries_are_refused(bare_ask: Ask, subtests: pytest.Subtests) -> None:
    client = bare_ask("viewer")
    for query in INVALID_QUERIES:
        with subtests.test(query=query):
            answer = client.get(f"/figures/{query}")
            assert answer.status_code == 422, answer.text
