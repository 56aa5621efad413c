"""The application as Django installs it."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class SerenoConfig(AppConfig):
    """Brings the management command, the table of return values, and sereno's schema along with `migrate`."""

    name = "sereno.contrib.django"
    label = "sereno_django"
    verbose_name = "sereno"

    def ready(self) -> None:
        post_migrate.connect(_bring_schema, sender=self)


def _bring_schema(using: str, **_: Any) -> None:
    """After `migrate`, and when a database for tests is made."""
    from sereno.contrib.django.project import app  # noqa: PLC0415 - it reads the settings, which are there by now

    if app.migrates and using == app.alias:
        app.follow()
        app.migrate()
