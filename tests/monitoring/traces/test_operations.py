"""Traces: schedules, jobs, events and deliveries as lanes, with bounded queries."""

import asyncio
from itertools import pairwise

import psycopg
import pytest

from sereno import Sereno
from sereno.channels.outcome import Failed, Receipt
from sereno.error_text import describe
from sereno.errors import ConfigurationError, InvalidArguments
from sereno.jobs.attempt import SUCCEEDED, Settlement
from sereno.monitoring.traces import queries as traces
from sereno.monitoring.traces.operations import Trace, find, trace
from sereno.schedules.rules.when import Every
from tests.facts import advance, one
from tests.jobs.job_steps import add, end, session, take
from tests.manual_worker import ManualWorker
from tests.notifications.conftest import Pager, Tender


@pytest.fixture
def event_id(app: Sereno, connection: psycopg.Connection) -> int:
    """An event with a trace and three deliveries: one failed, one has a receipt."""
    pager = Pager()
    pager.outcomes = {"a2": Failed("too_big")}
    published = app.event("tender.published", Tender, channels=[pager])

    async def publish() -> int:
        for number in range(3):
            await app.recipients.aupsert(f"u{number}", {"pager": f"a{number}"}, tenant="t")
        names = ["u0", "u1", "u2"]
        event = await published.anotify(Tender("T"), to=names, subject="tender 1057-22", tenant="t", trace="abc")
        await app.notifications.fanout.fan_out(event)
        await app.notifications.sender.deliver(1, "pager", "", -2)
        first = pager.sent[0].delivery
        receipts = [Receipt(provider_id=f"p{first}", outcome="delivered", id="r1")]
        await app.notifications.receipts.apply("pager", "", receipts)
        await app.database.aclose()
        return event

    return asyncio.run(publish())


def lanes(found: Trace) -> list[tuple[str, str, dict[str, int]]]:
    return [(lane.kind, lane.name, lane.counts) for lane in found.lanes]


def test_an_event_and_its_deliveries_are_lanes(app: Sereno, event_id: int) -> None:
    found = app.database.run(trace("abc"))
    assert lanes(found) == [
        ("job", "sereno.fan_out", {}),
        ("event", "tender.published tender 1057-22", {}),
        ("deliveries", "pager", {"delivered": 1, "failed": 1, "sent": 1}),
        ("receipts", "pager", {"delivered": 1}),
    ]
    assert (len(found.deliveries), len(found.receipts), found.whole) == (3, 1, True)
    assert all(found.start <= span.start <= span.end <= found.end for lane in found.lanes for span in lane.spans)
    assert (found.segments[0].low, found.segments[-1].high) == (0.0, 1.0)


@pytest.mark.slow
def test_a_trace_is_found_by_subject_delivery_and_job(app: Sereno, event_id: int, manual: ManualWorker) -> None:
    run = app.database.run
    (by_subject,) = run(find(subject="tender 1057-22"))
    assert (by_subject.id, by_subject.kind, by_subject.number, by_subject.tenant) == ("abc", "event", event_id, "t")
    delivery = run(trace("abc")).deliveries[0].id
    assert run(find(delivery=delivery)) == [by_subject]
    assert run(find(subject="another")) == []
    plain, traced = manual.enqueue(), manual.enqueue(trace="abc")
    assert [line.id for line in run(find(job=traced))] == ["abc"]
    assert [line.id for line in run(find(job=plain))] == [f"job:{plain}"]
    assert [lane.id for lane in run(trace(f"job:{plain}")).lanes] == [str(plain)]
    assert run(trace(f"event:{event_id}")).id == "abc"
    for number in (2**70, 10**9):
        assert run(find(job=number)) == run(find(delivery=number)) == []
    for wrong in (find(), find(job=1, subject="x"), find(subject="\x00")):
        with pytest.raises(InvalidArguments):
            run(wrong)
    for name in ("unknown", "job:99999999999", f"event:{2**63}", "job:-1", "job:"):
        with pytest.raises(ConfigurationError):
            run(trace(name))


def test_a_tenant_sees_only_its_part(app: Sereno, event_id: int, manual: ManualWorker) -> None:
    theirs = manual.enqueue(trace="abc", tenant="s")
    assert {lane.tenant for lane in app.database.run(trace("abc")).lanes} == {"t", "s"}
    mine = app.database.run(trace("abc", tenant="s"))
    assert [(lane.kind, lane.id) for lane in mine.lanes] == [("job", str(theirs))]
    assert (mine.deliveries, mine.receipts) == ([], [])
    with pytest.raises(ConfigurationError):
        app.database.run(trace("abc", tenant="unknown"))
    assert app.database.run(find(subject="tender 1057-22", tenant="s")) == []
    assert app.database.run(find(job=theirs, tenant="t")) == []


def test_waits_and_attempts_alternate(app: Sereno, manual: ManualWorker, connection: psycopg.Connection) -> None:
    job = manual.enqueue(trace="tries")
    session = manual.worker()
    advance(connection, 5)
    (claimed,) = manual.claim(session)
    advance(connection, 2)
    manual.settle(session, claimed, Settlement("retry", delay=60.0, error=describe(OSError("no route"))))
    advance(connection, 7200)
    (lane,) = app.database.run(trace("tries")).lanes
    assert (lane.kind, lane.id) == ("job", str(job))
    assert [(span.kind, span.state) for span in lane.spans] == [
        ("wait", "waiting"),
        ("run", "retry"),
        ("wait", "scheduled"),
        ("wait", "ready"),
    ]
    assert all(earlier.end == later.start for earlier, later in zip(lane.spans, lane.spans[1:], strict=False))


def test_the_schedule_of_a_job_comes_first(app: Sereno, connection: psycopg.Connection) -> None:
    @app.task
    def count() -> None: ...

    app.schedules.upsert("each minute", count.using(trace="clock").job(), Every("1m"))
    advance(connection, 90)
    app.schedules.tick()
    found = app.database.run(trace("clock"))
    assert [(lane.kind, lane.name) for lane in found.lanes] == [("schedule", "each minute"), ("job", "count")]
    assert found.lanes[0].spans[0].state == "fired"


def test_a_large_trace_is_bounded(app: Sereno, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "BOUND", 1000)
    connection.execute(
        "insert into sereno.jobs (task, state, ready_seq, trace) "
        "select 't', 'ready', n, 'crowd' from generate_series(1, 500) n"
    )
    event = one(
        connection,
        "insert into sereno.events (type, payload, channels, trace) "
        "values ('e', '{}', '{pager}', 'crowd') returning id",
    )
    connection.execute(
        "insert into sereno.deliveries (event_id, recipient_id, channel, due_at) "
        "select %s, n, 'pager', sereno.now() from generate_series(1, 3000) n",
        [event],
    )
    found = app.database.run(trace("crowd"))
    assert (len(found.lanes), found.whole) == (traces.MOST_JOBS + 2, False)
    assert len(found.deliveries) == traces.MOST_DELIVERIES
    assert (found.lanes[-1].counts, found.lanes[-1].exact) == ({"pending": 1001}, False)


def test_a_long_trace_is_found_and_stored(app: Sereno, connection: psycopg.Connection) -> None:
    connection.execute("select sereno.enqueue('t', trace => repeat('x', 10000))")
    connection.execute("select sereno.enqueue('t', trace => repeat('x', 300))")
    assert len(app.database.run(trace("x" * 300)).lanes) == 1


def test_a_job_waits_for_the_jobs_of_its_trace(app: Sereno, connection: psycopg.Connection) -> None:
    (first,) = add(connection, trace="chain")
    (second,) = add(connection, trace="chain", after=[first])
    (last,) = add(connection, trace="chain", after=[second])
    owner = session(connection)
    advance(connection, 5)
    end(connection, owner, take(connection, owner, 1), SUCCEEDED)
    advance(connection, 2)
    (claimed,) = take(connection, owner, 1)
    assert claimed.id == second
    lanes = {lane.id: lane for lane in app.database.run(trace("chain")).lanes}
    assert [lane.after for lane in lanes.values()] == [[], [str(first)], [str(second)]]
    assert [span.state for span in lanes[str(second)].spans] == ["waiting", "ready", "running"]
    assert [span.state for span in lanes[str(last)].spans] == ["waiting"]
    spans = lanes[str(second)].spans
    assert all(earlier.end == later.start for earlier, later in pairwise(spans))
