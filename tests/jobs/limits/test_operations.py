"""Operator changes of limits: their effect, refusals and audit entries."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from sereno import ConfigurationError, InvalidArguments, Limit, Rate, Sereno
from sereno.errors import Refused
from sereno.jobs.limits import operations as limits
from sereno.jobs.limits import weights
from sereno.jobs.limits.rows import LimitRow
from sereno.jobs.limits.store import declare
from tests.facts import advance, one
from tests.manual_worker import ManualWorker

TOO_LONG = "x" * 501
HOSTILE: list[Any] = ["", TOO_LONG, "a\x00b", "\ud800", None, 7]


@pytest.fixture
def limited(manual: ManualWorker) -> ManualWorker:
    """Declare limits of each kind, as a worker does when it starts."""

    @manual.app.task(
        name="sync", concurrency=Limit(2, key="{tenant}"), rate=Rate(100, per="1m", name="ifood", burst=10)
    )
    def sync(name: str) -> None:
        """Never run in this test."""

    manual.app.queue("reconcile", concurrency=Limit(3))
    manual.app.queue("apart", concurrency=Limit(4, key="{tenant}"), rate=Rate(5, name="own.rate"))
    manual.app.database.run(declare(manual.app.registry, "shop"))
    return manual


def found(app: Sereno, name: str) -> LimitRow:
    return app.database.run(limits.find(name))


def test_limits_are_listed_by_name_and_by_pattern(limited: ManualWorker) -> None:
    run = limited.app.database.run
    names = [row.name for row in run(limits.list_limits())]
    assert names == ["ifood", "own.rate", "queue.apart.concurrency", "queue.reconcile.concurrency", "sync.concurrency"]
    assert [row.name for row in run(limits.list_limits("queue.*"))] == names[2:4]
    assert [row.name for row in run(limits.list_limits("ifood"))] == ["ifood"]
    assert run(limits.list_limits("ifoo_")) == []
    assert run(limits.list_limits("%")) == []
    assert run(limits.list_limits("it's; drop table sereno.limits")) == []


def test_numbers_are_formatted_as_text() -> None:
    assert limits.in_words(Limit(2).numbers) == "2 at once"
    assert limits.in_words(Rate(100, per="1m", burst=10).numbers) == "100 a minute, burst 10"
    assert limits.in_words(Rate(0.5).numbers) == "0.5 a second, burst 1"
    assert limits.in_words(Rate(10, per="30s").numbers) == "10 in 30 s, burst 1"
    assert limits.in_words(Rate(2000, per="1d").numbers) == "2,000 a day, burst 1"


def test_slots_are_changed_and_reset(limited: ManualWorker) -> None:
    run = limited.app.database.run
    changed = run(limits.set_slots("sync.concurrency", 5, note="more slots", actor="eve@host"))
    assert (changed.slots, changed.overridden, changed.note, changed.changed_by) == (5, True, "more slots", "eve@host")
    assert changed.declared == {"slots": 2}
    run(declare(limited.app.registry, "shop"))
    assert found(limited.app, "sync.concurrency").slots == 5, "a new declaration does not undo the change"
    back = run(limits.reset("sync.concurrency", actor="eve@host"))
    assert back is not None
    assert (back.slots, back.overridden, back.note) == (2, False, None)
    again = run(limits.reset("sync.concurrency"))
    assert again is not None
    assert again.slots == 2
    assert limited.audit() == [
        ("eve@host", "limit.set", "limit sync.concurrency"),
        ("eve@host", "limit.reset", "limit sync.concurrency"),
    ]
    detail = one(limited.connection, "select detail from sereno.audit where action = 'limit.set'")
    assert detail == {"slots": 5, "queue": None, "note": "more slots", "before": {"slots": 2}}


def test_a_rate_is_changed_with_its_burst_or_with_the_default(limited: ManualWorker) -> None:
    run = limited.app.database.run
    assert run(limits.set_rate("ifood", 30, "1m", 3)).numbers == {"units": 30.0, "period": 60.0, "burst": 3.0}
    assert run(limits.set_rate("ifood", 50)).numbers == {"units": 50.0, "period": 1.0, "burst": 5.0}
    assert run(limits.change("ifood", rate=7, per="1h")).numbers == Rate(7, per="1h").numbers


def test_a_queue_can_get_an_undeclared_limit_until_it_is_reset(limited: ManualWorker) -> None:
    run = limited.app.database.run
    made = run(limits.change(queue="mail", slots=5))
    assert (made.name, made.queue, made.declared) == ("queue.mail.concurrency", "mail", None)
    assert run(limits.change(queue="mail", rate=10)).name == "queue.mail.rate"
    assert run(limits.change(queue="mail", slots=6)).slots == 6
    assert run(limits.reset("queue.mail.concurrency")) is None
    assert [row.name for row in run(limits.list_limits("queue.mail.*"))] == ["queue.mail.rate"]


def test_a_change_of_a_queue_finds_its_declared_limit_by_any_name(limited: ManualWorker) -> None:
    run = limited.app.database.run
    assert run(limits.change(queue="reconcile", slots=9)).name == "queue.reconcile.concurrency"
    assert run(limits.change(queue="apart", rate=9)).name == "own.rate"
    with pytest.raises(InvalidArguments, match=r"holds for each \{tenant\}, not for the queue apart as a whole"):
        run(limits.change(queue="apart", slots=9))
    assert run(limits.change("apart.slots", queue="apart", slots=9)).queue == "apart"
    run(limits.change("apart.more", queue="apart", slots=8))
    with pytest.raises(
        InvalidArguments, match=r"several such limits: give the name of one of apart\.more, apart\.slots"
    ):
        run(limits.change(queue="apart", slots=7))
    with pytest.raises(InvalidArguments, match="holds for the queue apart"):
        run(limits.change("apart.more", queue="mail", slots=7))


def test_an_unknown_name_is_refused_with_the_existing_names(limited: ManualWorker) -> None:
    run = limited.app.database.run
    for operation in (
        limits.show("ifod"),
        limits.set_slots("ifod", 3),
        limits.reset("ifod"),
        limits.close("ifod", 30),
        limits.reopen("ifod"),
    ):
        with pytest.raises(ConfigurationError, match=r"there is no limit 'ifod': did you mean ifood\?"):
            run(operation)
    with pytest.raises(ConfigurationError, match=r"there are: ifood, own\.rate, "):
        run(limits.find("%"))
    assert limited.audit() == []


def test_an_unknown_name_without_any_limit_is_refused_with_an_explanation(manual: ManualWorker) -> None:
    with pytest.raises(ConfigurationError, match="a worker stores the declared ones when it starts"):
        manual.app.database.run(limits.find("ifood"))


def test_a_change_of_the_kind_of_a_limit_is_refused(limited: ManualWorker) -> None:
    run = limited.app.database.run
    with pytest.raises(InvalidArguments, match=r"the limit ifood is a rate .*: give it a rate, not slots"):
        run(limits.set_slots("ifood", 3))
    with pytest.raises(InvalidArguments, match=r"sync\.concurrency counts jobs at once .*: give it slots"):
        run(limits.set_rate("sync.concurrency", 3))
    with pytest.raises(InvalidArguments, match="is a rate"):
        run(limits.change("own.rate", queue="apart", slots=3))


INVALID_NUMBERS: tuple[dict[str, Any], ...] = (
    {},
    {"slots": 1, "rate": 1},
    {"slots": 1, "per": "1m"},
    {"slots": 1, "burst": 1},
    {"slots": -1},
    {"slots": 1.5},
    {"slots": True},
    {"slots": "2"},
    {"slots": 10**12},
    {"slots": 10**400},
    {"slots": math.nan},
    {"rate": 0},
    {"rate": -5},
    {"rate": math.nan},
    {"rate": math.inf},
    {"rate": 10**400},
    {"rate": 1e-300},
    {"rate": "5"},
    {"rate": 5, "per": 0},
    {"rate": 5, "per": "soon"},
    {"rate": 5, "per": -1},
    {"rate": 5, "per": math.nan},
    {"rate": 5, "per": 5e-324},
    {"rate": 5, "per": 1e300},
    {"rate": 5, "burst": 0},
    {"rate": 5, "burst": math.nan},
    {"rate": 5, "burst": math.inf},
)


@pytest.mark.slow
def test_invalid_numbers_are_refused_before_anything_is_written(
    limited: ManualWorker, subtests: pytest.Subtests
) -> None:
    for numbers in INVALID_NUMBERS:
        with subtests.test(numbers=numbers):
            for name in ("ifood", "sync.concurrency"):
                with pytest.raises(InvalidArguments):
                    limited.app.database.run(limits.change(name, **numbers))
            with pytest.raises(InvalidArguments):
                limited.app.database.run(limits.change(queue="mail", **numbers))
            assert limited.audit() == []


def test_hostile_names_are_refused(limited: ManualWorker, subtests: pytest.Subtests) -> None:
    run = limited.app.database.run
    for text in HOSTILE:
        with subtests.test(text=repr(text)[:12]):
            operations: list[Any] = [
                limits.find(text),
                limits.set_slots(text, 1),
                limits.reset(text),
                limits.close(text, 1),
            ]
            if text is not None:
                operations += [
                    limits.change(queue=text, slots=1),
                    limits.set_slots("sync.concurrency", 1, note=text),
                    limits.set_slots("sync.concurrency", 1, actor=text),
                    limits.list_limits(text),
                ]
            if text not in ("", None):
                operations += [limits.close("ifood", 1, key=text), limits.reopen("ifood", key=text)]
                operations += [limits.show("ifood", key=text)]
            if text != "":
                operations += [weights.weigh(text, 2), weights.unweigh(text)]
            for operation in operations:
                with pytest.raises(InvalidArguments):
                    run(operation)
            assert limited.audit() == []


def test_a_queue_whose_name_is_not_valid_for_a_limit_is_refused(limited: ManualWorker) -> None:
    with pytest.raises(InvalidArguments, match="is not a valid limit name"):
        limited.app.database.run(limits.change(queue='a "quoted" queue', slots=1))
    named = limited.app.database.run(limits.change("quoted", queue='a "quoted" queue', slots=1))
    assert named.queue == 'a "quoted" queue'


def test_a_limit_is_closed_for_a_time_and_opened_again(limited: ManualWorker) -> None:
    run = limited.app.database.run
    until = run(limits.close("ifood", "30s", actor="eve@host"))
    assert 20 < (until - datetime.now(UTC)).total_seconds() <= 30
    assert run(limits.close("ifood", 1)) == until, "closing again never shortens the time"
    detail = run(limits.show("ifood"))
    assert detail.limit.closed == 1
    assert [(limiter.key, limiter.closed_until) for limiter in detail.keys] == [("", until)]
    assert run(limits.reopen("ifood", actor="eve@host")) == 1
    assert run(limits.reopen("ifood")) == 0
    run(limits.close("ifood", "30s"))
    advance(limited.connection, 31)
    assert found(limited.app, "ifood").closed == 0
    assert [action for _, action, _ in limited.audit()] == ["limit.close", "limit.close", "limit.open", "limit.close"]
    assert limited.audit()[0] == ("eve@host", "limit.close", "limit ifood")


def test_keys_that_are_counted_separately_are_closed_one_by_one(limited: ManualWorker) -> None:
    run = limited.app.database.run
    with pytest.raises(InvalidArguments, match=r"counts each \{tenant\} separately: give the key"):
        run(limits.close("sync.concurrency", 30))
    run(limits.close("sync.concurrency", 30, key="r1"))
    run(limits.close("sync.concurrency", 30, key="r'2\""))
    run(limits.close("sync.concurrency", 30, key=""))
    assert found(limited.app, "sync.concurrency").closed == 3
    assert run(limits.reopen("sync.concurrency", key="r1")) == 1
    assert {limiter.key for limiter in run(limits.show("sync.concurrency")).keys if limiter.closed_until} == {
        "r'2\"",
        "",
    }
    assert run(limits.reopen("sync.concurrency")) == 2


def test_an_invalid_closing_time_is_refused(limited: ManualWorker, subtests: pytest.Subtests) -> None:
    lengths: list[Any] = [0, -1, math.nan, math.inf, 1e300, "soon", None, "1000000w"]
    for length in lengths:
        with subtests.test(length=length), pytest.raises(InvalidArguments):
            limited.app.database.run(limits.close("ifood", length))


def test_a_limit_given_with_a_job_stays_while_jobs_use_it(limited: ManualWorker) -> None:
    run = limited.app.database.run
    task = limited.app.task(name="call")(lambda: None)
    job = task.using(concurrency=Limit(1, key="{tenant}", name="temporary"), tenant="r1", delay="1h").enqueue()
    limited.connection.execute("insert into sereno.limits (name, kind, slots) values ('temporary', 'slots', 1)")
    run(limits.set_slots("temporary", 3))
    with pytest.raises(Refused, match="jobs use it: set other numbers"):
        run(limits.reset("temporary"))
    limited.connection.execute("delete from sereno.jobs where id = %s", [job.id])
    assert run(limits.reset("temporary")) is None


def test_weights_of_fair_keys_are_set_listed_and_removed(limited: ManualWorker) -> None:
    run = limited.app.database.run
    run(weights.weigh("r1", 3, actor="eve@host"))
    run(weights.weigh("r2", 0.5))
    run(weights.weigh("", 2))
    assert [(line.key, line.weight) for line in run(weights.list_weights())] == [("r1", 3.0), ("", 2.0), ("r2", 0.5)]
    run(weights.weigh("r2", 1))
    assert run(weights.unweigh(""))
    assert not run(weights.unweigh(""))
    assert [(line.key, line.changed_by) for line in run(weights.list_weights())] == [("r1", "eve@host")]
    assert limited.audit()[0] == ("eve@host", "limit.weigh", "fair key r1")
    assert len(limited.audit()) == 5


def test_an_invalid_weight_is_refused(limited: ManualWorker, subtests: pytest.Subtests) -> None:
    wrong: list[Any] = [0, -1, math.nan, math.inf, 1e7, "3", True, None]
    for weight in wrong:
        with subtests.test(weight=weight):
            with pytest.raises(InvalidArguments, match="a weight is a number from"):
                limited.app.database.run(weights.weigh("r1", weight))
            assert limited.audit() == []
