"""sereno uses Django's database, also a test database, and one whose password has special characters."""

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.test import override_settings
from psycopg.conninfo import conninfo_to_dict

from sereno.contrib.django.project import Project, _as_url
from tests.contrib.django.shop import tasks
from tests.contrib.django.shop.models import Order
from tests.facts import one


def test_the_url_has_all_connection_parameters_of_django(subtests: pytest.Subtests) -> None:
    for given in [
        {"dbname": "shop", "user": "ann", "password": "p@ss:/?#[]%&=é", "host": "db.example.org", "port": "6432"},
        {"dbname": "a/b?c", "user": "o'hara@x", "host": "/var/run/postgresql", "port": "5433"},
        {"dbname": "shop", "host": "one,two", "port": "1,2", "sslmode": "verify-full", "options": "-c search_path=a,b"},
        {"dbname": "shop", "user": "ann", "host": "::1", "sslrootcert": "/etc/ssl/a b.pem"},
        {"service": "shop"},
    ]:
        with subtests.test(given=given):
            assert conninfo_to_dict(_as_url(given)) == given


@pytest.mark.slow
def test_a_test_database_has_the_schema_and_is_used(shop: Project) -> None:
    before = connection.settings_dict["NAME"]
    name = connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        assert conninfo_to_dict(shop.url)["dbname"] == name
        assert conninfo_to_dict(shop.settings.database_url or "")["dbname"] == name
        with transaction.atomic():
            tasks.add_up.enqueue(Order.objects.create(total=1).pk)
        with psycopg.connect(shop.url) as found:
            assert one(found, "select count(*) from sereno.jobs") == 1
    finally:
        shop.database.close()
        connection.creation.destroy_test_db(before, verbosity=0)


def test_a_database_url_in_the_settings_is_refused() -> None:
    with override_settings(SERENO={"database_url": "postgresql://db/other"}), pytest.raises(ImproperlyConfigured):
        Project()


def test_the_service_name_is_the_package_of_the_project() -> None:
    with override_settings(SERENO={}):
        assert Project().service == "django", "settings without a module"
