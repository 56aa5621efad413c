"""The one application of sereno in a Django project, made from Django's settings.

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

# Of a database in Django's settings: those that say where it is; the others are kept as they are.
_PLACE = ("user", "password", "host", "port", "dbname")
# Django sets it for its own cursors.
_NOT_OURS = {"client_encoding"}


class DeclaredTasks(NamedTuple):
    """A task of Django's, and the same task as a worker knows it."""

    theirs: DjangoTask
    ours: Task[..., Any]


class Project(Sereno):
    """An application whose database is one of Django's, wherever Django says that it is."""

    def __init__(self) -> None:
        given: dict[str, Any] = dict(getattr(settings, "SERENO", {}))
        if "database_url" in given:
            raise ImproperlyConfigured("SERENO: database names an alias of DATABASES; sereno uses no other database")
        self.alias: str = given.pop("database", DEFAULT_DB_ALIAS)
        self.migrates: bool = given.pop("migrate", True)
        # Modules with tasks, besides `tasks.py` of every installed application.
        self.modules: Sequence[str] = given.pop("modules", ())
        self.declared: dict[str, DeclaredTasks] = {}
        self.declaring = threading.Lock()
        super().__init__(address(self.alias), **given)
        # The package of the project: two projects on one database leave each other's schedules alone.
        self._home = str(getattr(settings, "SETTINGS_MODULE", None) or "django").partition(".")[0]

    def default_queues(self) -> dict[str, int]:
        """Those of the tasks, and those that TASKS allows: any task can be sent to any of them."""
        found = super().default_queues()
        if not self.settings.queues:
            allowed = [name for backend in _backends() for name in backend.get("QUEUES", ())]
            found |= dict.fromkeys(allowed, self.settings.concurrency)
        return found

    def follow(self) -> None:
        """To where Django's database is now, such as one for tests that was made a moment ago."""
        self.database.close()
        self.database.forget_url()
        self.override(database_url=address(self.alias))


def address(alias: str) -> str:
    """Where Django finds this database, as an address for sereno's own connections."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        raise ImproperlyConfigured(f"sereno needs PostgreSQL: DATABASES[{alias!r}] is {connection.vendor}")
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()} - _NOT_OURS
    said = {name: str(value) for name, value in connection.get_connection_params().items() if name in known and value}
    return _as_url(said)


def _as_url(said: Mapping[str, str]) -> str:
    rest = {name: value for name, value in said.items() if name not in _PLACE}
    user = quote(said.get("user", ""), safe="")
    if "password" in said:
        user += f":{quote(said['password'], safe='')}"
    host = said.get("host", "")
    if "/" in host or "," in host:
        # A directory of sockets, or several servers.
        rest |= {name: said[name] for name in ("host", "port") if name in said}
        place = ""
    else:
        place = (f"[{host}]" if ":" in host else host) + (f":{said['port']}" if "port" in said else "")
    query = f"?{urlencode(rest, quote_via=quote)}" if rest else ""
    return f"postgresql://{f'{user}@' if user else ''}{place}/{quote(said.get('dbname', ''), safe='')}{query}"


def _backends() -> list[Mapping[str, Any]]:
    """Those of TASKS that are ours."""
    ours = "sereno.contrib.django.backend.SerenoBackend"
    return [each for each in getattr(settings, "TASKS", {}).values() if each.get("BACKEND") == ours]


app = Project()
