"""Declarations of limits: validated when declared, with keys filled in from the job."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sereno.errors import ConfigurationError, InvalidArguments, SerenoError
from sereno.jobs.limits.limit import (
    MOST_SLOTS,
    MOST_UNITS,
    NO_RULE,
    KeyRule,
    Limit,
    Rate,
    fill,
    merge_keys,
    parse,
    rule,
)
from sereno.jobs.task import QueueDefinition, Registry, TaskDefinition, define, define_queue
from sereno.text import NAME_LIMIT
from sereno.worker.context import Context


def task(**options: Any) -> TaskDefinition:
    def work(account: str = "a", pages: int = 1) -> None: ...

    return define(work, context=Context, **({"name": "work"} | options))


# Templates.


TEMPLATES: tuple[tuple[str, list[tuple[bool, str]]], ...] = (
    ("", []),
    ("plain", [(False, "plain")]),
    ("{tenant}", [(True, "tenant")]),
    ("a{b}c{d}", [(False, "a"), (True, "b"), (False, "c"), (True, "d")]),
    ("{", [(False, "{")]),
    ("}", [(False, "}")]),
    ("{}", [(False, "{"), (False, "}")]),
    ("{{a}}", [(False, "{"), (True, "a"), (False, "}")]),
    ("{a b}", [(True, "a b")]),
    ("{größe}", [(True, "größe")]),
)


def test_a_template_is_split_into_text_and_placeholders(subtests: pytest.Subtests) -> None:
    for template, parts in TEMPLATES:
        with subtests.test(template=template):
            assert parse(template) == parts


@pytest.mark.slow
@given(st.text())
def test_parsing_a_template_loses_no_text(template: str) -> None:
    assert "".join(f"{{{text}}}" if is_word else text for is_word, text in parse(template)) == template


@given(st.text(alphabet="{}ab\\ \"'", max_size=20))
def test_filled_in_values_are_literal(value: str) -> None:
    assert fill("<{a}|{b}>", {"a": value, "b": "{a}"}) == f"<{value}|{{a}}>"


def test_values_have_a_fixed_form_in_a_key(subtests: pytest.Subtests) -> None:
    for value, text in [
        (None, ""),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-7, "-7"),
        (2**70, str(2**70)),
        ("", ""),
    ]:
        with subtests.test(value=value):
            assert fill("{a}", {"a": value}) == text


def test_a_missing_argument_is_empty_in_a_key() -> None:
    assert fill("x{a}y", {}) == "xy"


def test_a_value_without_a_canonical_text_is_refused(subtests: pytest.Subtests) -> None:
    for value in [1.0, 1.5, float("nan"), [], {}, ["a"], b"a", object()]:
        refused = pytest.raises(InvalidArguments, match=r"\{a\} cannot be part of a key")
        with subtests.test(value=value), refused:
            fill("{a}", {"a": value})


def test_a_key_has_a_maximum_length() -> None:
    assert len(fill("{a}", {"a": "x" * NAME_LIMIT})) == NAME_LIMIT
    with pytest.raises(InvalidArguments, match=str(NAME_LIMIT + 1)):
        fill("-{a}", {"a": "x" * NAME_LIMIT})


def test_a_key_that_is_not_text_is_refused(subtests: pytest.Subtests) -> None:
    wrong: list[Any] = [None, 7, ("{tenant}",)]
    for key in wrong:
        with subtests.test(key=key), pytest.raises(ConfigurationError, match="a key is text"):
            Limit(1, key=key)


# Numbers and names.


def test_invalid_slots_are_refused(subtests: pytest.Subtests) -> None:
    wrong: list[Any] = [-1, MOST_SLOTS + 1, 1.0, "1", None, True]
    for slots in wrong:
        with subtests.test(slots=slots), pytest.raises(ConfigurationError, match="the number of slots"):
            Limit(slots)


def test_slots_from_zero_to_the_maximum_are_accepted(subtests: pytest.Subtests) -> None:
    for slots in [0, 1, MOST_SLOTS]:
        with subtests.test(slots=slots):
            assert Limit(slots).numbers == {"slots": slots}


INVALID_RATES = (
    {"amount": 0},
    {"amount": -1},
    {"amount": float("inf")},
    {"amount": float("nan")},
    {"amount": True},
    {"amount": "1"},
    {"amount": 1, "per": 0},
    {"amount": 1, "per": "soon"},
    {"amount": 1, "burst": 0.5},
    {"amount": 1, "burst": float("inf")},
    {"amount": 1, "units": 0},
    {"amount": 1, "units": MOST_UNITS + 1},
    {"amount": 1, "burst": 3, "units": 4},
    {"amount": 1, "name": "two words"},
    {"amount": 1, "name": ""},
    {"amount": 1, "name": "x" * 201},
)


def test_an_invalid_rate_is_refused(subtests: pytest.Subtests) -> None:
    for wrong in INVALID_RATES:
        with subtests.test(wrong=wrong), pytest.raises(SerenoError):
            Rate(**wrong)


def test_a_burst_is_a_tenth_of_a_second_and_at_least_one_job(subtests: pytest.Subtests) -> None:
    for rate, burst in [
        (Rate(1), 1),
        (Rate(1000), 100),
        (Rate(1001), 101),
        (Rate(60, per="1m"), 1),
        (Rate(1, units=5), 5),
        (Rate(1, units="{pages}"), 1),
        (Rate(1, burst=7), 7),
    ]:
        with subtests.test(rate=rate):
            assert rate.numbers["burst"] == burst


def test_a_rate_has_units_a_period_and_a_burst() -> None:
    assert Rate(90, per="1m").numbers == {"units": 90.0, "period": 60.0, "burst": 1.0}


def test_limits_are_named_after_their_owner() -> None:
    found = rule("mail", [Limit(1), Limit(2), Limit(3, name="own")], Rate(1))
    assert [limit.name for limit in found.limits] == ["mail.concurrency", "mail.concurrency.2", "own", "mail.rate"]


def test_a_declaration_that_contradicts_itself_is_refused(subtests: pytest.Subtests) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"concurrency": [Limit(1, name="x"), Limit(2, name="x")]}, "the same name"),
        ({"concurrency": Limit(1, name="x"), "rate": Rate(1, name="x")}, "the same name"),
        ({"concurrency": Rate(1)}, r"takes Limit\(…\)"),
        ({"rate": Limit(1)}, r"takes Rate\(…\)"),
        ({"concurrency": 4}, r"takes Limit\(…\), not 4"),
        ({"rate": "5/s"}, r"takes Rate\(…\), not '5/s'"),
        ({"fair_key": ""}, "fair_key is a template"),
        ({"order_key": 7}, "order_key is a template"),
        ({"dead_blocks": True}, "needs an order_key"),
    ]
    for options, message in wrong:
        with subtests.test(options=options), pytest.raises(ConfigurationError, match=message):
            rule("mail", **options)


def test_a_placeholder_that_is_not_an_argument_is_refused(subtests: pytest.Subtests) -> None:
    wrong: list[dict[str, Any]] = [
        {"concurrency": Limit(1, key="{acount}")},
        {"rate": Rate(1, units="{size}")},
        {"fair_key": "{unknown}"},
        {"order_key": "{account}-{other}"},
    ]
    for options in wrong:
        refused = pytest.raises(ConfigurationError, match=re.escape("{account}, {pages}"))
        with subtests.test(options=options), refused:
            task(**options)


# Rules.


def test_the_keys_of_a_job_are_filled_in_from_its_values() -> None:
    found = rule(
        "t",
        Limit(2, key="{tenant}"),
        Rate(5, key="{account}", units="{pages}", name="api"),
        fair_key="{tenant}",
        order_key="{task}/{account}",
        dead_blocks=True,
    )
    assert found.words == {"account", "pages"}
    values = {"tenant": "t1", "task": "t", "queue": "q", "account": "a", "pages": 3}
    assert found.keys(values) == {
        "limits": [["t.concurrency", "t1", 1], ["api", "a", 3]],
        "fair": "t1",
        "order": "t/a",
        "blocks": True,
    }
    assert found.as_row() == {
        "limits": [["t.concurrency", "{tenant}", "1"], ["api", "{account}", "{pages}"]],
        "fair": "{tenant}",
        "order": "{task}/{account}",
        "blocks": True,
    }


def test_units_from_an_argument_stay_in_range(subtests: pytest.Subtests) -> None:
    for pages, units in [(1, 1), ("12", 12), (0, 1), (-5, 1), (10**9, MOST_UNITS)]:
        with subtests.test(pages=pages):
            (entry,) = rule("t", rate=Rate(1, units="{pages}")).keys({"pages": pages})["limits"]
            assert entry[2] == units


def test_units_that_are_not_a_number_are_refused(subtests: pytest.Subtests) -> None:
    for pages in [None, True, "many", ""]:
        with subtests.test(pages=pages), pytest.raises(InvalidArguments, match="is not a whole number"):
            rule("t", rate=Rate(1, units="{pages}")).keys({"pages": pages})


def test_an_empty_rule_has_no_keys() -> None:
    assert not NO_RULE
    assert (NO_RULE.keys({}), NO_RULE.as_row(), NO_RULE.words) == ({}, {}, set())
    assert merge_keys([None, NO_RULE], {}) == {}


def test_limits_given_with_a_job_store_their_numbers() -> None:
    given_with = KeyRule((Limit(3, name="x"), Rate(2, per="1s", name="y")), extra=True)
    assert given_with.keys({})["limits"] == [
        ["x", "", 1, {"slots": 3}],
        ["y", "", 1, {"units": 2.0, "period": 1.0, "burst": 1.0}],
    ]


def test_limits_of_several_rules_add_up_and_the_last_keys_win() -> None:
    queue = rule("queue.q", Limit(1, key="{tenant}", name="b"), fair_key="queue")
    own = rule("t", Limit(1, name="c"), fair_key="task", order_key="first")
    extra = rule("", Limit(1, name="a"), order_key="last")
    assert merge_keys([queue, None, own, extra], {"tenant": "t1"}) == {
        "limits": [["a", "", 1], ["b", "t1", 1], ["c", "", 1]],
        "fair": "task",
        "order": "last",
    }


@given(st.permutations(["a", "b", "é", "Z", "z.2", "1"]))
def test_the_keys_of_limits_do_not_depend_on_their_order(names: list[str]) -> None:
    rules = [rule("t", Limit(1, name=name)) for name in names]
    assert [entry[0] for entry in merge_keys(rules, {})["limits"]] == sorted(names)


# The registry.


def test_tasks_that_name_the_same_limit_share_it() -> None:
    registry = Registry()
    registry.add(task(name="one", concurrency=Limit(2, key="{account}", name="shared")))
    registry.add(task(name="two", concurrency=Limit(2, key="{tenant}", name="shared")))
    registry.add_queue(define_queue("q", concurrency=Limit(2, name="shared")))
    assert list(registry.limits) == ["shared"]


def test_two_queues_cannot_share_a_limit_of_their_own() -> None:
    """It would limit one of them: the row of the limit has the name of one queue."""
    registry = Registry()
    registry.add_queue(define_queue("one", concurrency=Limit(2, name="shared")))
    with pytest.raises(ConfigurationError, match="queues one and two cannot share the limit shared: declare it with"):
        registry.add_queue(define_queue("two", concurrency=Limit(2, name="shared")))
    registry.add_queue(define_queue("two", concurrency=Limit(2)))


def test_one_name_with_different_numbers_is_refused(subtests: pytest.Subtests) -> None:
    for other in [Limit(3, name="shared"), Rate(2, name="shared")]:
        with subtests.test(other=other):
            registry = Registry()
            registry.add(task(name="one", concurrency=Limit(2, name="shared")))
            options = {"concurrency": other} if isinstance(other, Limit) else {"rate": other}
            with pytest.raises(ConfigurationError, match="different numbers"):
                registry.add(task(name="two", **options))


def test_a_queue_that_is_declared_twice_is_refused() -> None:
    registry = Registry()
    registry.add_queue(define_queue("q", concurrency=Limit(2)))
    with pytest.raises(ConfigurationError, match="declared twice"):
        registry.add_queue(define_queue("q", fair_key="{tenant}"))


def test_a_queue_limit_without_a_key_applies_to_the_whole_queue() -> None:
    found = define_queue("q", concurrency=[Limit(9), Limit(2, key="{tenant}")], rate=Rate(5), fair_key="{tenant}")
    assert found == QueueDefinition(
        "q",
        own=(Limit(9, name="queue.q.concurrency"), Rate(5, name="queue.q.rate")),
        rule=KeyRule((Limit(2, key="{tenant}", name="queue.q.concurrency.2"),), "{tenant}"),
    )


def test_a_rate_of_a_whole_queue_with_units_is_refused(subtests: pytest.Subtests) -> None:
    for rate in [Rate(5, units=2), Rate(5, units="{pages}")]:
        with subtests.test(rate=rate), pytest.raises(ConfigurationError):
            define_queue("q", rate=rate)


def test_keys_of_a_queue_cannot_use_arguments() -> None:
    with pytest.raises(ConfigurationError, match=re.escape("{account}")):
        define_queue("q", concurrency=Limit(1, key="{account}"))


def test_the_rules_of_a_job_are_those_of_its_queue_and_of_its_task() -> None:
    registry = Registry()
    limited, plain = task(concurrency=Limit(1)), task(name="plain")
    registry.add(limited)
    registry.add(plain)
    queue = define_queue("q", fair_key="{tenant}", concurrency=Limit(1))
    registry.add_queue(queue)
    assert registry.rules(plain, "other") == ()
    assert registry.rules(limited, "other") == (limited.rule,)
    assert registry.rules(limited, "q") == (queue.rule, limited.rule)
    assert registry.rules(plain, "q") == (queue.rule,)
