"""Reads schedules from the tables of other schedulers. Changes nothing there and runs nothing."""

import psycopg

from sereno.errors import ConfigurationError
from sereno.schedules.importers import apscheduler, celery_beat, pg_cron
from sereno.schedules.importers.definition import as_object, from_object
from sereno.schedules.importers.draft import ImportedSchedule
from sereno.schedules.importers.source import clock

__all__ = ["KINDS", "ImportedSchedule", "as_object", "from_object", "read"]

KINDS = ("celery-beat", "apscheduler", "pg-cron")


def read(kind: str, connection: psycopg.Connection) -> list[ImportedSchedule]:
    """Return every schedule of that kind in the database of this connection, by key."""
    readers = dict(zip(KINDS, (celery_beat.read, apscheduler.read, pg_cron.read), strict=True))
    if kind not in readers:
        raise ConfigurationError(f"there is no importer for {kind!r:.40}: use one of {', '.join(KINDS)}")
    return readers[kind](connection, clock(connection))
