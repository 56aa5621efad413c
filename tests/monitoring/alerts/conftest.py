"""A watcher, a task, and a provider of Discord."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sereno import Sereno
from sereno.monitoring.alerts.watcher import AlertWatcher
from sereno.testing.chats import DiscordProvider


@pytest.fixture
async def discord() -> AsyncIterator[DiscordProvider]:
    async with DiscordProvider() as provider:
        yield provider


@pytest.fixture
async def watch(app: Sereno) -> AsyncIterator[AlertWatcher]:
    made = AlertWatcher(app.url, app.settings, lambda: True)
    yield made
    await made.stop()


@pytest.fixture
def work(app: Sereno) -> Any:
    @app.task
    def work() -> None: ...

    return work
