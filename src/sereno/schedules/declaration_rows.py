"""Statements that write declared schedules when a worker starts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sereno.access import audit
from sereno.database.json_values import encoder
from sereno.database.statement import Operation, Statement, queries
from sereno.schedules.rows import UpsertResult
from sereno.schedules.schedule import NewSchedule
from sereno.schedules.store import retire, upsert

_sql = queries("schedules/declaration_rows")


class RenamedSchedule(NamedTuple):
    """A tenant's schedule that was renamed because the application declares its key."""

    key: str
    new_key: str
    tenant: str


def write(
    schedules: Sequence[NewSchedule], service: str
) -> Operation[tuple[list[UpsertResult], list[RenamedSchedule]]]:
    """Write declared schedules. A tenant's schedule with the same key is not adopted: it is renamed and still runs."""
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
            raise schedule.refusal("a schedule of a tenant has this key: rename one of them")
    return written, renamed


def finish(service: str, keys: Sequence[str], refused: Mapping[str, str]) -> Operation[list[str]]:
    """Disable schedules that this service no longer declares, and record the refused ones. Return the disabled keys."""
    left = yield from retire(service, keys)
    rows = [{"key": key, "problem": problem} for key, problem in refused.items()]
    yield Statement(_sql["record_refused"], {"service": service, "rows": encoder.encode(rows).decode()})
    return left
