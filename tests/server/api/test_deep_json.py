"""Arguments and payloads over HTTP are nested at most a hundred deep."""

from dataclasses import dataclass
from typing import Any

import pytest

from sereno import Sereno, in_app
from tests.server.api.conftest import Ask
from tests.server.api.schedules.schedule_steps import body


@dataclass
class Fact:
    value: Any


@pytest.fixture
def tasks(app: Sereno) -> Sereno:
    @app.task
    def work(value: Any) -> None: ...

    app.event("fact", Fact, channels=[in_app])
    return app


def nested(depth: int) -> dict[str, Any]:
    value: Any = []
    for _ in range(depth - 2):
        value = [value]
    return {"value": value}


def test_json_that_is_nested_too_deeply_is_refused_with_a_message(tasks: Sereno, ask: Ask) -> None:
    client = ask("admin")
    for depth, expected in ((100, {200, 201}), (101, {422}), (400, {422})):
        arguments = nested(depth)
        answers = {
            "job": client.post("/jobs", json={"task": "work", "arguments": arguments}),
            "schedule": client.put(f"/schedules/of-{depth}", json=body(args=arguments)),
            "event": client.post("/events", json={"type": "fact", "payload": arguments}),
        }
        assert {name: answer.status_code in expected for name, answer in answers.items()} == dict.fromkeys(
            answers, True
        )
        if depth > 100:
            details = {name: answer.json()["detail"] for name, answer in answers.items()}
            assert all("nested more than 100" in words for words in details.values()), details
