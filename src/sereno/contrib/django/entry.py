"""The entry point for the command line and for workers; it sets up Django.

sereno worker sereno.contrib.django.entry:app
"""

from importlib import import_module

import django
from django.apps import apps
from django.utils.module_loading import autodiscover_modules

if not apps.ready:
    django.setup()

from sereno.contrib.django import retention  # noqa: F401 - the import declares its schedule
from sereno.contrib.django.project import app

__all__ = ["app"]

autodiscover_modules("tasks")
for name in app.modules:
    import_module(name)
