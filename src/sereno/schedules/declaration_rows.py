"""Schedules that the code declares, as they are written when a worker starts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sereno.access import audit
from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.schedules.schedule import NewSchedule
from sereno.schedules.store import UpsertResult, retire, upsert

_sql = queries("schedules/declaration_rows")


class RenamedSchedule(NamedTuple):
    """A tenant's schedule whose key is declared by the application."""

    key: str
    new_key: str
    tenant: str


def write(
    schedules: Sequence[NewSchedule], service: str
) -> Operation[tuple[list[UpsertResult], list[RenamedSchedule]]]:
    """Write them. A declaration never adopts a tenant's schedule: that one is renamed and goes on beside it."""
    actor = f"code of {service}"
    rows = [{"key": schedule.key, "tenant": schedule.job.options.tenant} for schedule in schedules]
    found = yield Statement(_sql["move_aside"], {"rows": encoder.encode(rows).decode()})
    renamed = [RenamedSchedule(*row) for row in found]
    for each in renamed:
        detail = {"new_key": each.new_key, "tenant": each.tenant}
        yield from audit.audit(actor, "schedule.rename", f"schedule {each.key}", detail)
    written = yield from upsert(schedules, actor, declared_by=service, may_be_over=True)
    for schedule, made in zip(schedules, written, strict=True):
        if made.what == "taken":
            raise schedule.refusal("a schedule of a tenant has this key: rename that one, or this")
    return written, renamed


def finish(service: str, keys: Sequence[str], refused: Mapping[str, str]) -> Operation[list[str]]:
    """Disable what this service declared once and no longer does, and record what was refused; returns the disabled."""
    left = yield from retire(service, keys)
    rows = [{"key": key, "problem": problem} for key, problem in refused.items()]
    yield Statement(_sql["record_refused"], {"service": service, "rows": encoder.encode(rows).decode()})
    return left
