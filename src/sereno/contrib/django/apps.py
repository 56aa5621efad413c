"""The Django app configuration of sereno."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class SerenoConfig(AppConfig):
    """Adds the management command and the table of return values, and creates sereno's schema with `migrate`."""

    name = "sereno.contrib.django"
    label = "sereno_django"
    verbose_name = "sereno"

    def ready(self) -> None:
        post_migrate.connect(_migrate_schema, sender=self)


def _migrate_schema(using: str, **_: Any) -> None:
    """Migrate sereno's schema after `migrate`, and when a test database is created."""
    from sereno.contrib.django.project import app  # noqa: PLC0415 - it reads the settings, which are loaded by now

    if app.migrates and using == app.alias:
        app.use_current_database()
        app.migrate()
