"""The sereno application of a Django project, configured by Django's settings.

    from sereno.contrib.django.project import app

`SERENO = {"database": "default", "keep_logs": "info"}` in the settings: an alias of DATABASES, and settings of sereno.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections
from psycopg import pq

from sereno.app import Sereno
from sereno.contrib.django.framework import Task as DjangoTask
from sereno.jobs.task_handle import Task

# Connection parameters that form the URL itself; the others become its query string.
_PLACE = ("user", "password", "host", "port", "dbname")
# A parameter that Django sets for its own cursors.
_NOT_OURS = {"client_encoding"}


class DeclaredTask(NamedTuple):
    """A Django task, and the sereno task that runs it."""

    django_task: DjangoTask
    sereno_task: Task[..., Any]


class Project(Sereno):
    """An application that uses one of Django's databases."""

    def __init__(self) -> None:
        options: dict[str, Any] = dict(getattr(settings, "SERENO", {}))
        if "database_url" in options:
            raise ImproperlyConfigured("SERENO: remove database_url, and set database to an alias of DATABASES")
        self.alias: str = options.pop("database", DEFAULT_DB_ALIAS)
        self.migrates: bool = options.pop("migrate", True)
        # Modules with tasks, besides `tasks.py` of every installed app.
        self.modules: Sequence[str] = options.pop("modules", ())
        self.declared: dict[str, DeclaredTask] = {}
        self.declare_lock = threading.Lock()
        super().__init__(address(self.alias), **options)
        # The package of the project, so that two projects on one database do not change each other's schedules.
        module = str(getattr(settings, "SETTINGS_MODULE", None) or "django")
        self.schedules.default_service = module.partition(".")[0]

    def default_queues(self) -> dict[str, int]:
        """Return the queues of the tasks and those that TASKS allows, because any task can be sent to any of them."""
        queues = super().default_queues()
        if not self.settings.queues:
            allowed = [name for backend in _backends() for name in backend.get("QUEUES", ())]
            queues |= dict.fromkeys(allowed, self.settings.concurrency)
        return queues

    def use_current_database(self) -> None:
        """Switch to the current database of Django, for example a test database that was just created."""
        self.database.close()
        self.database.forget_url()
        self.override(database_url=address(self.alias))


def address(alias: str) -> str:
    """Return the URL of a Django database, for sereno's own connections."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        raise ImproperlyConfigured(f"sereno needs PostgreSQL: DATABASES[{alias!r}] is {connection.vendor}")
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()} - _NOT_OURS
    params = connection.get_connection_params()
    return _as_url({name: str(value) for name, value in params.items() if name in known and value})


def _as_url(params: Mapping[str, str]) -> str:
    rest = {name: value for name, value in params.items() if name not in _PLACE}
    user = quote(params.get("user", ""), safe="")
    if "password" in params:
        user += f":{quote(params['password'], safe='')}"
    host = params.get("host", "")
    if "/" in host or "," in host:
        # A directory of Unix sockets, or several servers.
        rest |= {name: params[name] for name in ("host", "port") if name in params}
        place = ""
    else:
        place = (f"[{host}]" if ":" in host else host) + (f":{params['port']}" if "port" in params else "")
    query = f"?{urlencode(rest, quote_via=quote)}" if rest else ""
    return f"postgresql://{f'{user}@' if user else ''}{place}/{quote(params.get('dbname', ''), safe='')}{query}"


def _backends() -> list[Mapping[str, Any]]:
    """Return the entries of TASKS that use sereno's backend."""
    ours = "sereno.contrib.django.backend.SerenoBackend"
    return [each for each in getattr(settings, "TASKS", {}).values() if each.get("BACKEND") == ours]


app = Project()
