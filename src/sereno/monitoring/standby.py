"""The servers of an address, and what a standby has replayed of its primary's log."""

from typing import NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sereno.database.connect import connect
from sereno.database.servers import servers_of
from sereno.database.statement import Operation, Statement, queries, run
from sereno.database.timelines import ServerTimeline
from sereno.duration import duration_text
from sereno.errors import ConfigurationError, DatabaseUnavailable
from sereno.monitoring.doctor import DoctorCheck
from sereno.settings import Settings

_sql = queries("monitoring/standby")


class StandbyPosition(NamedTuple):
    """`position`: in the log, None if it does not tell; `age`: seconds since the last commit that it has replayed."""

    is_standby: bool
    position: int | None
    age: float | None

    def lag(self, written: int) -> float:
        """Return how many seconds it is behind. `written`: the position of the primary."""
        return 0.0 if self.position is not None and self.position >= written else max(0.0, self.age or 0.0)


def primary_position() -> Operation[int]:
    """Return what the primary has written."""
    rows = yield Statement(_sql["primary_position"])
    return int(rows[0][0])


def standby_position() -> Operation[StandbyPosition]:
    """Return what the standby has replayed."""
    rows = yield Statement(_sql["standby_position"])
    return StandbyPosition(*rows[0])


def readable(url: str) -> str:
    """Return an address whose servers may all be read, unless it says otherwise. Raises ConfigurationError."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # Its message may repeat a password.
        raise ConfigurationError("read_url is not a valid address: write postgresql://user@host/database") from None
    return url if given.get("target_session_attrs") else make_conninfo(url, target_session_attrs="any")


def check_servers(url: str) -> DoctorCheck | None:
    """Check the servers of an address, for `sereno doctor`; None if it names only one."""
    servers = servers_of(url)
    if not servers.is_several:
        return None
    found = servers.survey()
    newest = max((seen.timeline for _, seen in found if seen is not None), default=0)
    texts = [f"{server} {_describe(seen, newest)}" for server, seen in found]
    primaries = [seen for _, seen in found if seen is not None and not seen.is_standby]
    if len(primaries) > 1:
        remedy = "Stop the old primary: it still accepts writes. Let it rejoin as a standby."
        return DoctorCheck("servers", "fail", "; ".join(texts), remedy)
    if any(seen is None for _, seen in found):
        return DoctorCheck(
            "servers", "warn", "; ".join(texts), "Check that server, and whether this login may connect."
        )
    return DoctorCheck("servers", "ok", "; ".join(texts))


def _describe(seen: ServerTimeline | None, newest: int) -> str:
    if seen is None:
        return "does not answer"
    if seen.is_standby:
        return "is a standby"
    return f"is {'the' if seen.timeline == newest else 'an old'} primary, timeline {seen.timeline}"


def check_standby(settings: Settings, written: int) -> DoctorCheck:
    """Check the standby of `read_url`, for `sereno doctor`. `written`: the position of the primary."""
    remedy = "Pages and lists are read from the primary meanwhile. Check the standby, and SERENO_READ_URL."
    try:
        found = _read_standby(settings, "doctor")
    except (ConfigurationError, DatabaseUnavailable, psycopg.Error) as error:
        return DoctorCheck("standby", "warn", f"read_url: {error}", remedy)
    if not found.is_standby:
        return DoctorCheck("standby", "ok", "the server of read_url is a primary")
    if found.position is None:
        return DoctorCheck("standby", "warn", "the server of read_url does not tell what it has replayed", remedy)
    lag = found.lag(written)
    if lag > settings.read_lag:
        return DoctorCheck("standby", "warn", f"it is {duration_text(lag)} behind its primary", remedy)
    return DoctorCheck("standby", "ok", f"it is {duration_text(lag)} behind its primary")


def standby_lag(settings: Settings, written: int) -> float | None:
    """Return how many seconds the standby of `read_url` is behind; None if it is away, or a primary."""
    try:
        found = _read_standby(settings, "gauges")
    except (ConfigurationError, DatabaseUnavailable, psycopg.Error):
        return None
    return found.lag(written) if found.is_standby and found.position is not None else None


def _read_standby(settings: Settings, role: str) -> StandbyPosition:
    with connect(readable(settings.read_url or ""), settings, role) as connection:
        return run(connection, standby_position(), settings.schema)
