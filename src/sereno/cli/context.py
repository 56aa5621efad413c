"""The context of a command: its settings, one database connection and, where one is named, the application."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self, TypeVar

import msgspec
import psycopg

from sereno.app import Sereno
from sereno.database.connect import connect
from sereno.database.driver import drive
from sereno.database.embedded import EmbeddedPostgres
from sereno.database.migrate import migrate
from sereno.database.statement import Operation, Plan, run
from sereno.database.transaction import statement_timeout
from sereno.errors import ConfigurationError
from sereno.settings import load

T = TypeVar("T")

# Statement timeout in seconds; a query that needs longer should be narrowed by a filter.
QUERY_SECONDS = 30.0


class CommandContext:
    """The settings, connection and application of one command. It connects on first use."""

    def __init__(self, app_path: str | None = None, database_url: str | None = None, schema: str | None = None) -> None:
        given = {"app": app_path, "database_url": database_url, "schema": schema}
        self.settings, self.sources = load(given)
        self._app: Sereno | None = None
        self._embedded: EmbeddedPostgres | None = None
        self._connection: psycopg.Connection[Any] | None = None
        # An application may set its database or schema in code: its settings win over those of the environment.
        if self.settings.app:
            self._app = load_app(self.settings.app)
            chosen = {name: value for name, value in given.items() if value is not None}
            self.settings = msgspec.structs.replace(self._app.settings, **chosen | {"app": self.settings.app})
            self.sources = self._app.setting_sources | dict.fromkeys(chosen, "given")

    @property
    def app(self) -> Sereno:
        """Return the application; raise ConfigurationError when none is named."""
        if self._app is None:
            raise ConfigurationError(
                "this command needs your application: name it with -a module:attr, or set SERENO_APP"
            )
        return self._app

    def app_or_none(self) -> Sereno | None:
        """Return the application, or None when none is named."""
        return self._app

    def run(self, operation: Operation[T]) -> T:
        """Run one operation in one transaction, with a statement timeout."""
        connection = self.connection()
        with connection.transaction():
            run(connection, statement_timeout(QUERY_SECONDS), self.settings.schema)
            return run(connection, operation, self.settings.schema)

    def run_bare(self, operation: Operation[T]) -> T:
        """Run an operation that sets its own transaction options and timeouts."""
        connection = self.connection()
        with connection.transaction():
            return run(connection, operation, self.settings.schema)

    def carry_out(self, plan: Plan[T]) -> T:
        """Carry out a long change in transactions of a thousand jobs."""
        return drive(plan, self.run)

    def connection(self, *, create: bool = False) -> psycopg.Connection[Any]:
        """Return the connection. `create`: create the project's embedded database if it does not exist."""
        if self._connection is None:
            self._connection = connect(self.url(create=create), self.settings, "cli")
        return self._connection

    def url(self, *, create: bool = False) -> str:
        """Return the URL of the database. Starts the project's embedded PostgreSQL if no URL is set."""
        if self.settings.database_url:
            return self.settings.database_url
        directory = Path(self.settings.directory)
        if not create and not directory.is_dir():
            raise ConfigurationError(
                f"no database is configured, and this directory has no embedded one ({directory}/): "
                "set SERENO_DATABASE_URL, pass --database-url, or change to the directory of your project"
            )
        bin_dir = self.settings.postgres_bin
        self._embedded = EmbeddedPostgres(directory, bin_dir=Path(bin_dir) if bin_dir else None)
        url = self._embedded.start()
        if create:
            # An application also migrates the embedded database that it creates.
            with connect(url, self.settings, "migrate") as connection:
                migrate(connection, self.settings.schema)
        return url

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._embedded is not None:
            self._embedded.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def named_app(command: str, given: str | None) -> Sereno:
    """Return the application for a command that requires one: the given path, or the `app` setting."""
    path = load({"app": given})[0].app
    if path is None:
        raise ConfigurationError(
            f"your application is missing: sereno {command} MODULE:APP, or set SERENO_APP, "
            "or `app` in [tool.sereno] of pyproject.toml"
        )
    return load_app(path)


def load_app(path: str) -> Sereno:
    """Return the application at `module:attr` or `path/to/file.py[:attr]`, or raise ConfigurationError."""
    source, _, attribute = path.partition(":")
    module = _from_file(Path(source)) if source.endswith(".py") else _from_name(source)
    if attribute:
        found: Any = module
        for name in attribute.split("."):
            found = getattr(found, name, None)
        if not isinstance(found, Sereno):
            what = "does not exist" if found is None else f"is of type {type(found).__name__}, not Sereno"
            raise ConfigurationError(f"{path}: {attribute} {what}; name the variable that holds your Sereno(…)")
        return found
    apps = {name: value for name, value in vars(module).items() if isinstance(value, Sereno)}
    if len({id(value) for value in apps.values()}) != 1:
        what = f"has several: {', '.join(apps)}" if apps else "has none"
        raise ConfigurationError(f"{path}: expected one Sereno(…), but it {what}; name the variable: {path}:app")
    return next(iter(apps.values()))


def _from_name(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigurationError(f"no module named {name!r} from {here}: check -a, --app or SERENO_APP") from None
        raise
    except (ValueError, TypeError):
        raise ConfigurationError(f"{name!r} is not a module name: write module:attr or path/to/file.py:attr") from None


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigurationError(f"no such file: {path}; check -a, --app or SERENO_APP")
    directory = str(path.resolve().parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
