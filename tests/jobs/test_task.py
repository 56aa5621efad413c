"""Task declarations: invalid ones are refused when they are made."""

from collections.abc import Callable
from typing import Any

import pytest

from sereno import Backoff, ConfigurationError, UnknownTask
from sereno.jobs.lifecycle import FINAL, LIVE, STATES, TRANSITIONS, is_legal
from sereno.jobs.task import Registry, TaskDefinition, define


class Ctx:
    """Stands for the worker's context."""


def work(ctx: Ctx, number: int) -> None: ...


async def awork(items: list[int]) -> None: ...


def declared(function: Callable[..., Any] = work, **options: Any) -> TaskDefinition:
    return define(function, context=Ctx, **options)


def test_a_declaration_without_options_has_defaults() -> None:
    task = declared()
    assert (task.name, task.queue, task.priority, task.timeout) == ("work", "default", 5, 600)
    assert (task.retry, task.batch, task.isolate, task.is_async, task.history) == (Backoff(), 0, False, False, True)
    assert task.arguments.names == ("number",)


def test_the_options_of_a_task_are_stored() -> None:
    task = declared(awork, name="a.b-c_d", queue="slow", priority=0, timeout=None, batch=100, history=False)
    assert (task.name, task.queue, task.priority, task.timeout, task.batch) == ("a.b-c_d", "slow", 0, None, 100)
    assert task.is_async
    assert not task.history
    assert task.arguments.names == ("item",)


INVALID_DECLARATIONS = (
    {"name": "two words"},
    {"name": "a;b"},
    {"name": "..."},
    {"priority": 10},
    {"priority": -1},
    {"queue": ""},
    {"queue": "a\x00"},
    {"timeout": "soon"},
    {"timeout": -1},
    {"batch": -1},
    {"batch": 1001},
    {"batch": 10, "isolate": True},
    {"batch": 10},
)


def test_invalid_declarations_are_refused(subtests: pytest.Subtests) -> None:
    for wrong in INVALID_DECLARATIONS:
        with subtests.test(wrong=wrong), pytest.raises(ConfigurationError):
            declared(**wrong)


def test_a_lambda_without_a_task_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="name="):
        declared(lambda: None)
    assert declared(lambda: None, name="anonymous").name == "anonymous"


def test_two_tasks_of_one_name_are_refused() -> None:
    registry = Registry()
    registry.add(declared())
    with pytest.raises(ConfigurationError, match="two tasks named work"):
        registry.add(declared(awork, name="work"))


def test_an_unknown_task_is_refused_with_the_known_names() -> None:
    registry = Registry()
    with pytest.raises(UnknownTask, match="this application has: none"):
        registry.find("work")
    registry.add(declared(queue="slow"))
    registry.add(declared(awork))
    assert registry.names == ["awork", "work"]
    assert registry.queues == ["default", "slow"]
    assert (len(registry), registry.find("work").queue, registry.get("unknown")) == (2, "slow", None)
    with pytest.raises(UnknownTask, match="no task named wrk; this application has: awork, work"):
        registry.find("wrk")


def test_every_state_has_transitions_to_known_states() -> None:
    assert set(TRANSITIONS) == set(STATES)
    # A job waits for others from the moment it is enqueued.
    assert set(STATES) - set().union(*TRANSITIONS.values()) <= {"waiting"}


def test_a_finished_job_can_only_become_ready_or_scheduled(subtests: pytest.Subtests) -> None:
    for state in FINAL:
        with subtests.test(state=state):
            assert {after for after in STATES if is_legal(state, after)} == {"ready", "scheduled"}


def test_only_a_ready_job_is_claimed_and_only_a_running_one_succeeds_or_dies() -> None:
    assert [before for before in STATES if is_legal(before, "running")] == ["ready"]
    for end in ("succeeded", "dead"):
        assert [before for before in STATES if is_legal(before, end)] == ["running"]
    assert [before for before in STATES if is_legal(before, "cancelled")] == list(LIVE)
