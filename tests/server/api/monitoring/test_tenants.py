"""Tenants over HTTP with their shares of the work; users of one tenant have no access."""

import pytest

from sereno import Sereno
from sereno.jobs.queries import minute_stats
from sereno.telemetry.metrics import MetricTally
from tests.server.api.conftest import Ask


@pytest.fixture
def finished_jobs(app: Sereno) -> None:
    tally = MetricTally()
    for tenant, seconds in (("ann", 30.0), ("bob", 10.0), ("cid", 5.0), (None, 5.0)):
        tally.job("default", "work", "succeeded", 0.1, seconds, tenant)
    app.database.run(minute_stats.add(tally))


def test_tenants_are_listed_busiest_first_and_in_pages(ask: Ask, finished_jobs: None) -> None:
    client = ask("viewer")
    first = client.get("/tenants", params={"limit": 2}).json()
    assert [(each["tenant"], each["share"]) for each in first["items"]] == [("ann", 0.6), ("bob", 0.2)]
    rest = client.get("/tenants", params={"limit": 2, "before": first["next"]}).json()
    assert ([each["tenant"] for each in rest["items"]], rest["next"]) == (["cid"], None)
    (found,) = client.get("/tenants", params={"name": "BO"}).json()["items"]
    assert (found["tenant"], found["weight"], found["paused_at"]) == ("bob", 1.0, None)


def test_paused_tenants_are_listed(ask: Ask) -> None:
    client = ask("operator")
    assert client.post("/tenants/zed/pause").status_code == 200
    (found,) = client.get("/tenants").json()["items"]
    assert (found["tenant"], found["ended"], found["share"]) == ("zed", 0, 0.0)
    assert found["paused_at"] is not None


def test_roles_and_invalid_requests_for_tenants(ask: Ask, finished_jobs: None) -> None:
    assert ask(None).get("/tenants").status_code == 401
    assert ask("admin", tenant="ann").get("/tenants").status_code == 403
    client = ask("viewer")
    for params in ({"since": 0}, {"since": 1e9}, {"sort": "size"}, {"name": ""}, {"name": "\x00"}, {"limit": 0}):
        assert client.get("/tenants", params=params).status_code == 422, params
    assert client.get("/tenants", params={"before": 2**62}).json()["items"] == []
