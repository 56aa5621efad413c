"""A task from which schedules make jobs."""

from collections.abc import Iterator

import pytest

from sereno import Sereno
from sereno.schedules import scheduler
from tests.schedules.schedule_steps import Deploy, Work


@pytest.fixture
def work(app: Sereno) -> Work:
    @app.task
    def work(name: str) -> None: ...

    return work


@pytest.fixture
def deploy(database_url: str) -> Iterator[Deploy]:
    made = Deploy(database_url)
    yield made
    made.close()


@pytest.fixture
def long_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that gets no NOTIFY and no look-back sleeps longer than any test waits."""
    monkeypatch.setattr(scheduler, "REST", 600.0)
