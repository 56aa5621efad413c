"""What a standby has replayed of its primary's log."""

from typing import NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sereno.database.connect import connect
from sereno.database.statement import Operation, Statement, queries, run
from sereno.duration import duration_text
from sereno.errors import DatabaseUnavailable
from sereno.monitoring.doctor import DoctorCheck
from sereno.settings import Settings

_sql = queries("monitoring/standby")


class StandbyPosition(NamedTuple):
    """`position`: in the log, None if it does not tell; `age`: seconds since the last commit that it has replayed."""

    is_standby: bool
    position: int | None
    age: float | None


def primary_position() -> Operation[int]:
    """Return what the primary has written."""
    rows = yield Statement(_sql["primary_position"])
    return int(rows[0][0])


def standby_position() -> Operation[StandbyPosition]:
    """Return what the standby has replayed."""
    rows = yield Statement(_sql["standby_position"])
    return StandbyPosition(*rows[0])


def readable(url: str) -> str:
    """Return an address whose servers may all be read, unless it says otherwise."""
    if conninfo_to_dict(url).get("target_session_attrs"):
        return url
    return make_conninfo(url, target_session_attrs="any")


def check_standby(settings: Settings, written: int) -> DoctorCheck:
    """Check the standby of `read_url`, for `sereno doctor`. `written`: the position of the primary."""
    remedy = "Pages and lists are read from the primary meanwhile. Check the standby, and SERENO_READ_URL."
    try:
        with connect(readable(settings.read_url or ""), settings, "doctor") as connection:
            found = run(connection, standby_position(), settings.schema)
    except (DatabaseUnavailable, psycopg.Error) as error:
        return DoctorCheck("standby", "warn", f"read_url: {error}", remedy)
    if not found.is_standby:
        return DoctorCheck("standby", "ok", "the server of read_url is a primary")
    if found.position is None:
        return DoctorCheck("standby", "warn", "the server of read_url does not tell what it has replayed", remedy)
    lag = 0.0 if found.position >= written else max(0.0, found.age or 0.0)
    if lag > settings.read_lag:
        return DoctorCheck("standby", "warn", f"it is {duration_text(lag)} behind its primary", remedy)
    return DoctorCheck("standby", "ok", f"it is {duration_text(lag)} behind its primary")
