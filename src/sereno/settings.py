"""Settings: a flat list, each with a default, an environment variable and a line in docs/reference/settings.md.

Sources of a value, the first one wins: constructor or command line, `SERENO_<NAME>` (or `SERENO_<NAME>_FILE`, the
path of a file that holds it), `sereno.toml`, `[tool.sereno]` in pyproject.toml, the default.
"""

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from sereno.environment import PARSERS, check_variables, parse_variable, read_value, with_variable
from sereno.errors import ConfigurationError
from sereno.shard_urls import check_shards
from sereno.text import NAME_LIMIT

A_DAY = 86400
# Characters of the schema name. PostgreSQL limits names to 63 bytes, and appends to the schema name for the roles
# ("…_procedure", 10), the NOTIFY channels ("….schedule", 9) and the schema of the archive ("…_archive", 8).
SCHEMA_LENGTH = 53
# Seconds of the shortest retention.
SHORTEST_RETENTION = 60
# Bounds of `gauge_interval`, in seconds.
SHORTEST_GAUGE_INTERVAL, LONGEST_GAUGE_INTERVAL = 1.0, 3600.0
# Seconds. The upper bound of `release_grace`.
LONGEST_GRACE = 30 * A_DAY
# Characters of the secret: the length of the output of `openssl rand -base64 24`.
SHORTEST_SECRET = 32
# Characters of the public URL: links that begin with it must fit on one line of an email.
LONGEST_PUBLIC_URL = 200
_PUBLIC_URL = re.compile(r"https?://[^\x00-\x20\x7f-\U0010ffff/?#@<>\"\\]+(?:/[^\x00-\x20\x7f-\U0010ffff?#<>\"\\]*)?")
# As a browser sends it: lower case, no default port, no path.
_ORIGIN = re.compile(r"(?!http:.*:80$|https:.*:443$)https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
# Settings that contain secrets; lists of settings omit them.
_HIDDEN = frozenset(
    {
        "carriers",
        "database_url",
        "encryption_keys",
        "metrics_token",
        "procedure_targets",
        "procedure_url",
        "read_url",
        "secret",
        "shards",
    }
)


Role = Literal["worker", "scheduler", "server"]
ROLES: tuple[Role, ...] = get_args(Role)
# Kinds of data that sereno archives; attempts are archived with jobs, receipts with deliveries.
ArchiveKind = Literal["jobs", "deliveries", "events", "fires", "logs"]
ARCHIVE_KINDS: tuple[ArchiveKind, ...] = get_args(ArchiveKind)
# The archive_url of an archive under `directory`.
DISK = "disk"
_ARCHIVE_SCHEMES = ("file", "s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
# Settings whose environment variable is a comma-separated list.
_LISTS = ("archive_kinds", "channels", "encryption_keys", "inbox_origins", "roles", "trusted_proxies")


_AT_LEAST_ONE = (
    "concurrency",
    "processes",
    "isolated_processes",
    "pool_size",
    "server_connections",
    "arguments_limit",
    "max_result_bytes",
    "keep_history_days",
    "keep_fires_days",
    "keep_signals_days",
    "keep_deliveries_days",
    "keep_events_days",
)


NotNegative = Annotated[int, msgspec.Meta(ge=0)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting of sereno. Durations are in seconds."""

    app: str | None = None
    database_url: str | None = None
    schema: str = "sereno"
    directory: str = ".sereno"
    postgres_bin: str | None = None
    transaction_pooler: bool = False
    notify: bool = True
    pool_size: int = 4
    arguments_limit: int = 1024 * 1024
    max_result_bytes: int = 1024 * 1024

    queues: dict[str, int] | None = None
    carriers: dict[str, str] | None = None
    channels: list[str] | None = None
    notifications_queue: str = "notifications"
    templates: str | None = None
    public_url: str | None = None
    secret: str | None = None
    encryption_keys: list[str] | None = None
    release: str | None = None
    release_grace: float = 900.0
    concurrency: int = 20
    processes: int = 1
    isolated_processes: int = 4
    lease: float = 30.0
    heartbeat: float = 10.0
    poll: float = 2.5
    grace: float = 25.0
    stall_limit: float = 60.0

    roles: list[Role] | None = None
    scheduler: bool = True
    service: str | None = None

    procedure_url: str | None = None
    procedure_targets: dict[str, str] | None = None
    procedures_as_worker: bool = False

    keep_history_days: int = 30
    keep_fires_days: int = 30
    keep_signals_days: int = 30
    keep_dead_days: int | None = None
    chunk_retention: float = 600.0
    keep_logs: Literal["off", "debug", "info", "warning", "error"] = "warning"
    log_retention: float = 14.0 * A_DAY
    keep_deliveries_days: int | None = None
    keep_events_days: int | None = None

    archive_url: str | None = None
    archive_kinds: list[ArchiveKind] | None = None
    archive_grace_days: NotNegative = 7
    archive_move_cron: str = "17 3 * * *"
    archive_export_cron: str = "47 3 * * *"
    archive_zone: str = "UTC"

    server_host: str = "127.0.0.1"
    server_port: int = 8765
    server_connections: int = 2500
    server_request_timeout: float = 30.0
    read_only: bool = False
    shards: dict[str, str] | None = None
    read_url: str | None = None
    read_lag: float = 10.0
    inbox_origins: list[str] | None = None
    trusted_proxies: list[str] | None = None
    proxy_user_header: str | None = None
    proxy_user_role: Literal["viewer", "operator", "admin"] = "viewer"

    health_host: str = "127.0.0.1"
    health_port: int | None = None
    metrics_token: str | None = None
    gauge_interval: float = 15.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "console", "json"] = "auto"

    def __post_init__(self) -> None:
        if not re.fullmatch(rf"[a-z_][a-z0-9_]{{0,{SCHEMA_LENGTH - 1}}}", self.schema):
            raise ConfigurationError(
                f"schema {self.schema!r:.80} is invalid: use lower-case letters, digits and '_', "
                f"not starting with a digit, at most {SCHEMA_LENGTH} characters"
            )
        for name in ("lease", "heartbeat", "poll", "stall_limit", "server_request_timeout", "read_lag"):
            if not 0 < getattr(self, name) < A_DAY:
                raise ConfigurationError(f"{name} must be more than 0 and less than a day, in seconds")
        _check_gauge_interval(self.gauge_interval)
        _check_retention("log_retention", self.log_retention, 3660 * A_DAY, "ten years")
        _check_retention("chunk_retention", self.chunk_retention, A_DAY, "a day")
        if self.heartbeat * 2 > self.lease:
            raise ConfigurationError(
                f"lease ({self.lease} s) must be at least twice the heartbeat ({self.heartbeat} s)"
            )
        for name in _AT_LEAST_ONE:
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ConfigurationError(f"{name} must be at least 1")
        for queue, slots in (self.queues or {}).items():
            if not queue or slots < 0:
                raise ConfigurationError(
                    f"queues: {queue!r}: give its slots as a number, such as {queue or 'default'}=10"
                )
        if self.secret is not None and len(self.secret) < SHORTEST_SECRET:
            raise ConfigurationError(f"secret must have at least {SHORTEST_SECRET} characters, chosen at random")
        if not 1 <= len(self.notifications_queue) <= NAME_LIMIT or "\x00" in self.notifications_queue:
            raise ConfigurationError(f"notifications_queue is the name of a queue, of 1 to {NAME_LIMIT} characters")
        if self.public_url is not None:
            msgspec.structs.force_setattr(self, "public_url", _public_url(self.public_url))
        _check_release(self.release, self.release_grace)
        _check_origins(self.inbox_origins or [])
        _check_proxies(self.trusted_proxies or [], self.proxy_user_header)
        _check_archive_url(self.archive_url)
        _check_targets(self.procedure_targets or {})
        check_shards(self.shards or {})

    def archives(self, kind: ArchiveKind) -> bool:
        """Return whether expired rows of this kind are archived before they are deleted."""
        return self.archive_url is not None and kind in (
            ARCHIVE_KINDS if self.archive_kinds is None else self.archive_kinds
        )

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the settings that differ from their defaults, without secrets."""
        defaults = zip(self.__struct_fields__, self.__struct_defaults__, strict=True)
        values = [(name, getattr(self, name)) for name, default in defaults if getattr(self, name) != default]
        return [(name, value) for name, value in values if name not in _HIDDEN]


def _public_url(url: str) -> str:
    """Return the URL without a trailing slash, or raise ConfigurationError."""
    if len(url) > LONGEST_PUBLIC_URL or not _PUBLIC_URL.fullmatch(url):
        raise ConfigurationError(
            "public_url is the external address of this installation, such as https://sereno.example.com; "
            f"at most {LONGEST_PUBLIC_URL} characters, without a user, a query or a fragment"
        )
    return url.rstrip("/")


def _check_archive_url(address: str | None) -> None:
    if address is None or address == DISK:
        return
    scheme, _, rest = address.partition("://")
    if scheme not in _ARCHIVE_SCHEMES or not rest.strip("/"):
        raise ConfigurationError(
            f"archive_url {address!r:.200}: write {DISK}, file:///var/lib/sereno/archive, s3://bucket/folder, "
            "gs://bucket/folder or az://container/folder"
        )
    if "@" in rest or "?" in rest:
        raise ConfigurationError(
            "archive_url cannot contain credentials or a query: set credentials in the environment (AWS_ACCESS_KEY_ID)"
        )


def _check_release(release: str | None, grace: float) -> None:
    if release is not None and not re.fullmatch(r"[\x21-\x7e]{1,100}", release):
        raise ConfigurationError("release is a name of 1 to 100 characters without spaces, such as 2026.11.2")
    if not 0 < grace <= LONGEST_GRACE:
        raise ConfigurationError("release_grace must be more than 0 and at most 30 days, in seconds")


def _check_targets(targets: Mapping[str, str]) -> None:
    for name in targets:
        if name == "here" or not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name):
            raise ConfigurationError(
                f"procedure_targets: {name!r:.60} is not a valid name: use letters, digits, '_' and '-'; "
                "the name 'here' is reserved for procedure_url"
            )


def _check_retention(name: str, given: float, longest: float, text: str) -> None:
    if not SHORTEST_RETENTION <= given <= longest:
        raise ConfigurationError(f"{name} must be from a minute to {text}, in seconds")


def _check_gauge_interval(interval: float) -> None:
    if interval and not SHORTEST_GAUGE_INTERVAL <= interval <= LONGEST_GAUGE_INTERVAL:
        raise ConfigurationError("gauge_interval must be from a second to an hour, in seconds; 0 turns the gauges off")


def _check_origins(origins: list[str]) -> None:
    wrong = [origin for origin in origins if not _ORIGIN.fullmatch(origin)]
    if wrong:
        raise ConfigurationError(
            f"inbox_origins: {wrong[0]!r:.80} is not an origin; write each as a browser does, such as "
            "https://shop.example.com, without a path"
        )


def _check_proxies(proxies: list[str], user_header: str | None) -> None:
    if user_header is not None and not proxies:
        raise ConfigurationError(
            "proxy_user_header needs trusted_proxies, the addresses from which that header is trusted: "
            "such as 127.0.0.1 for a proxy on this machine"
        )
    for proxy in proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError:
            raise ConfigurationError(
                f"trusted_proxies: {proxy!r:.80} is not an address or network; write each as 127.0.0.1 or 10.1.0.0/16"
            ) from None


def load(
    overrides: Mapping[str, Any] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> tuple[Settings, dict[str, str]]:
    """Return the settings, and the source of each one that is set. An override of None is ignored."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    for source, entries in (
        *_files(directory or Path.cwd()),
        ("environment", _environment(os.environ if environment is None else environment)),
        ("given", given),
    ):
        for name, value in entries.items():
            _check_known(name, source)
            values[name] = value
            sources[name] = source
    try:
        return msgspec.convert(values, Settings, strict=False), sources
    except msgspec.ValidationError as error:
        raise ConfigurationError(_wrong_value(str(error), values, sources)) from None
    except ConfigurationError as error:
        from_environment = {name for name, source in sources.items() if source == "environment"}
        raise ConfigurationError(with_variable(str(error), from_environment)) from None


def _wrong_value(error: str, values: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    """Return the message about a value of a wrong type: it names the variable or the file, and the value."""
    found = re.search(r"(.*) - at `\$\.([a-z_]+)", error)
    if found is None:
        return f"settings: {error}"
    reason, name = found[1].replace("`", ""), found[2]
    where = f"SERENO_{name.upper()}" if sources[name] == "environment" else f"setting {name!r} ({sources[name]})"
    shown = "" if name in _HIDDEN else f" {values[name]!r:.80}"
    return f"{where}{shown}: {reason[:1].lower()}{reason[1:]}"


def _check_known(name: str, source: str) -> None:
    if name in Settings.__struct_fields__:
        return
    close = difflib.get_close_matches(name, Settings.__struct_fields__, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise ConfigurationError(f"unknown setting {name!r} in {source}{hint}")


def _files(directory: Path) -> list[tuple[str, Mapping[str, Any]]]:
    found = []
    for name, path_in_file in (("pyproject.toml", ("tool", "sereno")), ("sereno.toml", ())):
        path = directory / name
        if not path.is_file():
            continue
        stat = path.stat()
        try:
            table = _parsed(path, stat.st_mtime_ns, stat.st_size)
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f"{name}: {error}") from None
        for key in path_in_file:
            table = table.get(key, {})
        found.append((name, table))
    return found


@lru_cache(maxsize=4)
def _parsed(path: Path, _changed: int, _size: int) -> Mapping[str, Any]:
    """Parse a file once for all applications of a process: a long pyproject.toml takes 10 ms."""
    return tomllib.loads(path.read_text())


def _environment(environment: Mapping[str, str]) -> dict[str, Any]:
    check_variables(environment, Settings.__struct_fields__)
    values: dict[str, Any] = {}
    if environment.get("DATABASE_URL"):
        values["database_url"] = environment["DATABASE_URL"]
    for name in Settings.__struct_fields__:
        variable = f"SERENO_{name.upper()}"
        if environment.get(f"{variable}_FILE"):
            values[name] = read_value(f"{variable}_FILE", environment[f"{variable}_FILE"])
        elif environment.get(variable):
            values[name] = environment[variable]
    for name in _LISTS:
        if isinstance(values.get(name), str):
            values[name] = [each.strip() for each in values[name].split(",") if each.strip()]
    for name in values.keys() & PARSERS.keys():
        values[name] = parse_variable(name, values[name])
    return values
