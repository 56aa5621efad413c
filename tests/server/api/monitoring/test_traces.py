"""Traces over HTTP: they are searched and shown, and a tenant sees only its own part."""

import pytest

from sereno import Sereno
from tests.notifications.conftest import Pager, Tender
from tests.server.api.conftest import Ask


@pytest.fixture
def job(app: Sereno) -> int:
    """A job of one tenant, with the trace of an event of another."""

    @app.task
    def work() -> None: ...

    published = app.event("tender.published", Tender, channels=[Pager()])
    published.notify(Tender("T"), subject="tender 1057-22", tenant="t", trace="a/b c")
    return work.using(trace="a/b c", tenant="s").enqueue().id


def test_a_trace_shows_everything_that_has_its_id(ask: Ask, job: int) -> None:
    client = ask("viewer")
    found = client.get("/traces/a%2Fb%20c").json()
    assert sorted((lane["kind"], lane["tenant"]) for lane in found["lanes"]) == [
        ("event", "t"),
        ("job", "s"),
        ("job", "t"),
    ]
    assert found["segments"][-1]["high"] == 1.0
    assert client.get(f"/traces/job:{job}").json()["id"] == "a/b c"
    (line,) = client.get("/traces", params={"subject": "tender 1057-22"}).json()["items"]
    assert (line["id"], line["kind"], line["name"]) == ("a/b c", "event", "tender.published")
    assert [line["id"] for line in client.get("/traces", params={"job": job}).json()["items"]] == ["a/b c"]
    assert client.get("/traces", params={"delivery": 5}).json()["items"] == []


def test_a_tenant_sees_only_its_part_of_a_trace(ask: Ask, job: int) -> None:
    mine = ask("viewer", tenant="s")
    assert [lane["kind"] for lane in mine.get("/traces/a%2Fb%20c").json()["lanes"]] == ["job"]
    assert mine.get("/traces", params={"subject": "tender 1057-22"}).json()["items"] == []
    other = ask("viewer", tenant="u")
    for path in ("/traces/a%2Fb%20c", f"/traces/job:{job}", "/traces/nothing"):
        assert other.get(path).status_code == 404
    assert other.get("/traces", params={"job": job}).json()["items"] == []
    assert ask(None).get("/traces/nothing").status_code == 401


def test_invalid_trace_queries_are_refused(bare_ask: Ask, subtests: pytest.Subtests) -> None:
    client = bare_ask("viewer")
    for query in ("", "job=1&subject=x", "job=-1", f"job={2**63}", "subject=", "subject=%00"):
        with subtests.test(query=query):
            assert client.get(f"/traces?{query}").status_code == 422


def test_unknown_traces_are_not_found(bare_ask: Ask) -> None:
    client = bare_ask("viewer")
    for name in ("%00", "x" * 501, "job:99999999999999999999", "%F0%9F%98%80"):
        assert client.get(f"/traces/{name}").status_code in (404, 422)
