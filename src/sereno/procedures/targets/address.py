"""Targets by name: sereno's own database under another login, and other databases by their addresses."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from sereno.errors import ConfigurationError
from sereno.procedures.procedure import HERE
from sereno.procedures.targets.contract import Target
from sereno.procedures.targets.mysql import MySQLTarget
from sereno.procedures.targets.postgres import PostgresTarget
from sereno.procedures.targets.sqlserver import SqlServerTarget
from sereno.settings import Settings

MYSQL_PORT = 3306
# Options after the `?` of a MySQL address.
_MYSQL_OPTIONS = frozenset({"ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity", "unix_socket"})
# Options of a SQL Server address, and their names in its driver.
_SQLSERVER_OPTIONS: Mapping[str, str] = {
    "encrypt": "Encrypt",
    "trust_server_certificate": "TrustServerCertificate",
    "host_name_in_certificate": "HostNameInCertificate",
    "authentication": "Authentication",
}


class Targets:
    """Where procedures can be called. `own_url`: the worker's own login, for development only."""

    def __init__(self, settings: Settings, own_url: Callable[[], str]) -> None:
        self._settings = settings
        self._own_url = own_url

    @property
    def names(self) -> list[str]:
        return [HERE, *sorted(self._settings.procedure_targets or {})]

    @property
    def own_schemas(self) -> list[str]:
        """Return sereno's own schemas, which procedures must not use."""
        return [self._settings.schema, f"{self._settings.schema}_archive"]

    def find(self, name: str) -> Target:
        """Return the target of this name. Raises ConfigurationError."""
        if name == HERE:
            return self._here()
        url = (self._settings.procedure_targets or {}).get(name)
        if url is None:
            raise ConfigurationError(
                f"there is no target {name!r:.60}; use one of {', '.join(self.names)}, or set SERENO_PROCEDURE_TARGETS "
                "to name=address"
            )
        return self._by_address(name, url)

    def _here(self) -> Target:
        if self._settings.procedure_url:
            return PostgresTarget(self._settings.procedure_url, self.own_schemas)
        if self._settings.procedures_as_worker:
            return PostgresTarget(self._own_url(), self.own_schemas, trusted=True)
        raise ConfigurationError(
            "no login for procedures is configured, and the worker's own is never used, because it can change every "
            "job: set SERENO_PROCEDURE_URL to the address with a role that can call them and nothing else "
            "(or SERENO_PROCEDURES_AS_WORKER=true for development)"
        )

    def _by_address(self, name: str, url: str) -> Target:
        # PostgreSQL first: its address may name several servers with ports, or be written as keywords and values.
        if url.startswith(("postgresql://", "postgres://")) or ("://" not in url and "=" in url):
            return PostgresTarget(url, self.own_schemas)
        try:
            parts = urlsplit(url)
            scheme, port = parts.scheme.partition("+")[0], parts.port
        except ValueError:
            scheme, port = "", None
        if scheme in ("mysql", "mariadb"):
            return MySQLTarget(_for_mysql(name, parts, port))
        if scheme in ("sqlserver", "mssql"):
            return SqlServerTarget(_for_sqlserver(name, parts, port), f"{parts.hostname}")
        raise ConfigurationError(
            f"target {name}: its address must start with postgresql://, mysql://, mariadb:// or sqlserver://"
        )


def _for_mysql(name: str, parts: SplitResult, port: int | None) -> dict[str, Any]:
    given: dict[str, Any] = {
        "host": parts.hostname or "localhost",
        "port": port or MYSQL_PORT,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
    }
    if parts.path.strip("/"):
        given["database"] = unquote(parts.path.strip("/"))
    for option, value in _options(name, parts, _MYSQL_OPTIONS):
        given[option] = value.lower() in ("1", "true", "yes") if "verify" in option else value
    return given


def _for_sqlserver(name: str, parts: SplitResult, port: int | None) -> str:
    given = {"Server": f"{parts.hostname or 'localhost'}{f',{port}' if port else ''}"}
    if parts.path.strip("/"):
        given["Database"] = unquote(parts.path.strip("/"))
    if parts.username:
        given |= {"UID": unquote(parts.username), "PWD": unquote(parts.password or "")}
    # Encrypted unless the address disables it.
    given["Encrypt"] = "yes"
    for option, value in _options(name, parts, _SQLSERVER_OPTIONS):
        given[_SQLSERVER_OPTIONS[option]] = value
    return ";".join(f"{key}={_braced(value)}" for key, value in given.items())


def _options(name: str, parts: SplitResult, known: Any) -> list[tuple[str, str]]:
    found = parse_qsl(parts.query, keep_blank_values=True)
    for option, _ in found:
        if option not in known:
            raise ConfigurationError(
                f"target {name}: its address has the unknown option {option!r:.40}; use {', '.join(sorted(known))}"
            )
    return found


def _braced(value: str) -> str:
    """Quote a value of a connection string that has special characters."""
    return "{" + value.replace("}", "}}") + "}" if set(value) & set(";{}= ") else value
