"""Django in this process, with the shop project; each test has its own database."""

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
    """Configure Django; another test of this process may have done so already, with fewer settings."""
    os.environ["SHOP_DATABASE"] = "postgresql://unused@127.0.0.1:1/nothing"
    from tests.contrib.django.shop import settings as shop_settings  # noqa: PLC0415 - it reads the environment

    del os.environ["SHOP_DATABASE"]
    given = {name: getattr(shop_settings, name) for name in dir(shop_settings) if name.isupper()}
    if settings.configured:
        del given["DATABASES"]
        for name, value in given.items():
            setattr(settings, name, value)
        apps.set_installed_apps(given["INSTALLED_APPS"])
    else:
        settings.configure(**given)
        django.setup()


_configure()

# These imports need a configured Django.
from django.contrib.auth.models import Group, Permission, User  # noqa: E402 - see above
from django.contrib.contenttypes.models import ContentType  # noqa: E402 - see above
from django.contrib.sessions.models import Session  # noqa: E402 - see above

from sereno.contrib.django.models import Return  # noqa: E402 - see above
from sereno.contrib.django.project import Project, app  # noqa: E402 - see above
from tests.contrib.django.shop.models import Order  # noqa: E402 - see above


@pytest.fixture
def shop(database_url: str) -> Iterator[Project]:
    """The application of the project on the database of this test, with Django's tables."""
    connection = connections["default"]
    connection.close()
    parameters: dict[str, Any] = conninfo_to_dict(database_url)
    connection.settings_dict |= {"NAME": parameters["dbname"], "USER": parameters["user"], "HOST": parameters["host"]}
    connection.settings_dict["PORT"] = str(parameters.get("port") or "")
    app.use_current_database()
    with connection.schema_editor() as editor:
        for model in (Order, Return, ContentType, Permission, Group, User, Session):
            editor.create_model(model)
    yield app
    # Including the connections of the thread in which async code uses the ORM.
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()
    connection.close()
    app.use_current_database()
