"""A task whose jobs no worker of the tests runs."""

from typing import Any

import pytest

from sereno import Sereno


@pytest.fixture
def work(app: Sereno) -> Any:
    @app.task(queue="elsewhere")
    def work(number: int) -> None: ...

    return work
