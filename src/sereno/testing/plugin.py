"""The pytest plugin: `sereno_kit(app)` gives an application its own schema, emptied before each test.

The database is the one of the application: `SERENO_DATABASE_URL`, `DATABASE_URL`, or the embedded PostgreSQL.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import pytest

if TYPE_CHECKING:
    from sereno.app import Sereno
    from sereno.jobs.resource import Resource
    from sereno.testing.kit import Kit

# Applications whose schema was created.
_prepared: "WeakSet[Sereno]" = WeakSet()


class KitMaker(Protocol):
    """The type of `sereno_kit`. `resources`: values that handlers get instead of opening these resources."""

    def __call__(self, app: "Sereno", *, resources: "Mapping[Resource[Any], Any] | None" = None) -> "Kit": ...


@pytest.fixture
def sereno_kit() -> Iterator[KitMaker]:
    """Return a function that creates the kit of an application: drain, time travel, assertions."""
    # Imported here, so that a project that only has sereno installed does not pay for it in every test run.
    from sereno.testing import test_support  # noqa: PLC0415 - see above
    from sereno.testing.kit import Kit  # noqa: PLC0415 - see above

    opened: list[Sereno] = []
    overrides = ExitStack()

    def make(app: "Sereno", *, resources: "Mapping[Resource[Any], Any] | None" = None) -> "Kit":
        app.registry.keep_in_postgres()
        if app not in _prepared:
            app.override(schema=f"sereno_test_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}")
            app.migrate()
            _prepared.add(app)
        app.database.run(test_support.reset())
        opened.append(app)
        kit = Kit(app)
        for resource, value in (resources or {}).items():
            overrides.enter_context(kit.override(resource, value))
        return kit

    yield make
    overrides.close()
    for app in opened:
        app.database.close()
