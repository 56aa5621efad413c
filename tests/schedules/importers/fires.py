"""When an imported schedule fires, and how it is imported into a real application."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from sereno.schedules.firing import first_instant
from sereno.schedules.importers import ImportedSchedule, from_object
from sereno.schedules.importers.definition import plain_job
from sereno.schedules.rules.instants import compile_rule
from sereno.schedules.schedule import shift
from sereno.zones import instant, moment


def fires(imported: ImportedSchedule, after: datetime, n: int = 20) -> list[datetime]:
    """Return its first instants after this one, as the store plans them."""
    assert imported.schedule is not None, imported.problem
    return list(islice(_fires(imported, after), n))


def _fires(imported: ImportedSchedule, after: datetime) -> Iterator[datetime]:
    assert imported.schedule is not None
    schedule = from_object(imported.schedule, plain_job)
    rule, moved = compile_rule(schedule.when), shift(schedule.key, schedule.when)
    starts_at = None if schedule.starts_at is None else instant(schedule.starts_at)
    at = first_instant(rule, moved, instant(after), starts_at)
    while at is not None and (schedule.ends_at is None or at <= instant(schedule.ends_at)):
        yield moment(at)
        following = rule.next(at - moved, at - moved)
        at = None if following is None else following + moved
