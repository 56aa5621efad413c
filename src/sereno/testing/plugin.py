"""The pytest plugin: `sereno_kit(app)` gives an application its own schema, emptied before each test.

The database is the one of the application: `SERENO_DATABASE_URL`, `DATABASE_URL`, or the embedded PostgreSQL.
"""

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from weakref import WeakSet

import pytest

if TYPE_CHECKING:
    from sereno.app import Sereno
    from sereno.testing.kit import Kit

# Applications whose schema was created.
_prepared: "WeakSet[Sereno]" = WeakSet()


@pytest.fixture
def sereno_kit() -> "Iterator[Callable[[Sereno], Kit]]":
    """Return a function that creates the kit of an application: drain, time travel, assertions."""
    # Imported here, so that a project that only has sereno installed does not pay for it in every test run.
    from sereno.testing import test_support  # noqa: PLC0415 - see above
    from sereno.testing.kit import Kit  # noqa: PLC0415 - see above

    opened: list[Sereno] = []

    def make(app: "Sereno") -> "Kit":
        if app not in _prepared:
            app.override(schema=f"sereno_test_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}")
            app.migrate()
            _prepared.add(app)
        app.database.run(test_support.reset())
        opened.append(app)
        return Kit(app)

    yield make
    for app in opened:
        app.database.close()
