"""A task for schedules to make jobs of."""

import pytest

from sereno import Sereno
from tests.schedules.acts import Work


@pytest.fixture
def work(app: Sereno) -> Work:
    @app.task
    def work(name: str) -> None: ...

    return work
