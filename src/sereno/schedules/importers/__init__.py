"""Schedules out of the tables of other schedulers. Nothing there is changed, and nothing there is run."""

import psycopg

from sereno.errors import ConfigurationError
from sereno.schedules.importers import apscheduler, celery_beat, pg_cron
from sereno.schedules.importers.definition import as_object, from_object
from sereno.schedules.importers.draft import ImportedSchedule
from sereno.schedules.importers.source import clock

__all__ = ["KINDS", "ImportedSchedule", "as_object", "from_object", "read"]

KINDS = ("celery-beat", "apscheduler", "pg-cron")


def read(kind: str, connection: psycopg.Connection) -> list[ImportedSchedule]:
    """Every schedule of that kind in the database of this connection, by key."""
    readers = dict(zip(KINDS, (celery_beat.read, apscheduler.read, pg_cron.read), strict=True))
    if kind not in readers:
        raise ConfigurationError(f"there is no reader for {kind!r:.40}: there are {', '.join(KINDS)}")
    return readers[kind](connection, clock(connection))
