"""Django in this process, with the shop; each test has a database of its own."""

import os
from collections.abc import Iterator
from typing import Any

import django
import pytest
from asgiref.sync import SyncToAsync
from django.apps import apps
from django.conf import settings
from django.db import connections
from psycopg.conninfo import conninfo_to_dict

SHOP = "tests.contrib.django.shop"


def _configure() -> None:
    """Another test of this process may have configured Django already, with less."""
    os.environ["SHOP_DATABASE"] = "postgresql://nobody@127.0.0.1:1/nothing"
    from tests.contrib.django.shop import settings as ours  # noqa: PLC0415 - it reads the environment

    del os.environ["SHOP_DATABASE"]
    given = {name: getattr(ours, name) for name in dir(ours) if name.isupper()}
    if settings.configured:
        del given["DATABASES"]
        for name, value in given.items():
            setattr(settings, name, value)
        apps.set_installed_apps(given["INSTALLED_APPS"])
    else:
        settings.configure(**given)
        django.setup()


_configure()

# Whatever needs Django to be configured.
from django.contrib.auth.models import Group, Permission, User  # noqa: E402 - see above
from django.contrib.contenttypes.models import ContentType  # noqa: E402 - see above
from django.contrib.sessions.models import Session  # noqa: E402 - see above

from sereno.contrib.django.models import Return  # noqa: E402 - see above
from sereno.contrib.django.project import Project, app  # noqa: E402 - see above
from tests.contrib.django.shop.models import Order  # noqa: E402 - see above


@pytest.fixture
def shop(database_url: str) -> Iterator[Project]:
    """The project's application, on this test's database, with the tables of Django that tests use."""
    connection = connections["default"]
    connection.close()
    place: dict[str, Any] = conninfo_to_dict(database_url)
    connection.settings_dict |= {"NAME": place["dbname"], "USER": place["user"], "HOST": place["host"]}
    connection.settings_dict["PORT"] = str(place.get("port") or "")
    app.follow()
    with connection.schema_editor() as editor:
        for model in (Order, Return, ContentType, Permission, Group, User, Session):
            editor.create_model(model)
    yield app
    # Also that of the thread in which async code asks the ORM.
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()
    connection.close()
    app.follow()
