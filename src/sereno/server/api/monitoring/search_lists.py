"""The lists that can be searched: their fields, and where the values come from that complete a search."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sereno.access.audit_queries import audit_page
from sereno.access.identity import Principal
from sereno.database.statement import Operation
from sereno.jobs.filters import DeliveryFilter, JobFilter, ScheduleFilter
from sereno.jobs.queries import jobs as job_queries
from sereno.jobs.queries.search import JOB_FIELDS, WINDOW, jobs_wanted
from sereno.monitoring import error_operations, tenants
from sereno.monitoring.search_fields import AUDIT_FIELDS, ERROR_FIELDS, TENANT_FIELDS
from sereno.notifications import operations as notifications
from sereno.notifications.search_fields import DELIVERY_FIELDS, EVENT_FIELDS, RECIPIENT_FIELDS
from sereno.schedules.lists import list_schedules
from sereno.schedules.search_fields import SCHEDULE_FIELDS
from sereno.search.syntax import SearchField
from sereno.server.shared.error_masking import sees_all
from sereno.server.shared.search_access import searched
from sereno.telemetry.log_queries import list_lines
from sereno.telemetry.log_search import LOG_FIELDS, lines_wanted

# Newest rows of a list whose values are offered, and values.
ROWS, MOST_VALUES = 300, 20
# What can stand before a star without quotes.
_PLAIN = re.compile(r"[\w.@:/+-]*")

Rows = Callable[[str, Principal], Operation[Sequence[Any]]]
Value = Callable[[Any], str | Iterable[str] | None]


@dataclass(frozen=True, slots=True)
class SearchList:
    """A list. `rows`: those that a search finds, for a user. `values`: what a row has in a field.

    `of_tenants`: also for users of one tenant.
    """

    fields: tuple[SearchField, ...]
    rows: Rows
    values: Mapping[str, Value]
    of_tenants: bool = True

    def field(self, name: str) -> SearchField | None:
        return next((each for each in self.fields if each.name == name), None)


def field_values(found: SearchList, name: str, begins: str, who: Principal) -> Operation[list[str]]:
    """Return values of a field that begin like this, among the newest rows that this user sees, by frequency."""
    value = found.values[name]
    text = f"{name}:{begins}*" if begins and _PLAIN.fullmatch(begins) else ""
    counts: dict[str, int] = {}
    for row in (yield from found.rows(text, who)):
        here = value(row)
        for each in [here] if isinstance(here, str) else here or ():
            if each.startswith(begins):
                counts[each] = counts.get(each, 0) + 1
    return sorted(counts, key=lambda each: (-counts[each], each))[:MOST_VALUES]


def _jobs(text: str, who: Principal) -> Operation[Sequence[Any]]:
    wanted = replace(jobs_wanted(text, datetime.now(UTC)), masked=not sees_all(who))
    if who.tenant is not None:
        wanted = replace(wanted.both(JobFilter(tenant=who.tenant)), window=wanted.window or WINDOW)
    return (yield from job_queries.list_jobs(wanted, ROWS))


def _schedules(text: str, who: Principal) -> Operation[Sequence[Any]]:
    wanted = ScheduleFilter(tenant=who.tenant, search_params=searched(text, SCHEDULE_FIELDS, who))
    return (yield from list_schedules(wanted, limit=ROWS)).items


def _deliveries(text: str, who: Principal) -> Operation[Sequence[Any]]:
    wanted = DeliveryFilter(tenant=who.tenant, search_params=searched(text, DELIVERY_FIELDS, who))
    return (yield from notifications.list_deliveries(wanted, limit=ROWS))


def _events(text: str, who: Principal) -> Operation[Sequence[Any]]:
    terms = searched(text, EVENT_FIELDS, who)
    return (yield from notifications.list_events(tenant=who.tenant, search_params=terms, limit=ROWS))


def _recipients(text: str, who: Principal) -> Operation[Sequence[Any]]:
    terms = searched(text, RECIPIENT_FIELDS, who)
    return (yield from notifications.list_recipients(tenant=who.tenant, search_params=terms, limit=ROWS))


def _errors(text: str, who: Principal) -> Operation[Sequence[Any]]:
    terms = searched(text, ERROR_FIELDS, who)
    return (yield from error_operations.list_groups(since="7d", muted=True, search_params=terms, limit=ROWS))


def _tenants(text: str, who: Principal) -> Operation[Sequence[Any]]:
    return (yield from tenants.list_tenants(search_params=searched(text, TENANT_FIELDS, who), limit=ROWS))


def _audit(text: str, who: Principal) -> Operation[Sequence[Any]]:
    found, _ = yield from audit_page(search_params=searched(text, AUDIT_FIELDS, who), most=ROWS)
    return found


def _log(text: str, who: Principal) -> Operation[Sequence[Any]]:
    wanted = lines_wanted(text, datetime.now(UTC))
    return (yield from list_lines(replace(wanted, tenant=who.tenant or wanted.tenant), ROWS))


LISTS: Mapping[str, SearchList] = {
    "jobs": SearchList(
        JOB_FIELDS,
        _jobs,
        {
            "task": lambda row: row.task,
            "queue": lambda row: row.queue,
            "tenant": lambda row: row.tenant,
            "tag": lambda row: row.tags,
            "key": lambda row: row.unique_key,
        },
    ),
    "schedules": SearchList(
        SCHEDULE_FIELDS,
        _schedules,
        {
            "key": lambda row: row.key,
            "task": lambda row: row.task,
            "queue": lambda row: row.queue,
            "tenant": lambda row: row.tenant,
            "tag": lambda row: row.tags,
            "zone": lambda row: row.rule.get("tz"),
            "declared": lambda row: row.declared_by,
            "by": lambda row: row.changed_by,
        },
    ),
    "deliveries": SearchList(
        DELIVERY_FIELDS,
        _deliveries,
        {
            "channel": lambda row: row.channel,
            "event": lambda row: row.event,
            "recipient": lambda row: row.recipient,
            "tenant": lambda row: row.tenant,
        },
    ),
    "events": SearchList(
        EVENT_FIELDS,
        _events,
        {
            "type": lambda row: row.type,
            "subject": lambda row: row.subject,
            "key": lambda row: row.key,
            "category": lambda row: row.category,
            "channel": lambda row: row.channels,
            "tenant": lambda row: row.tenant,
        },
    ),
    "recipients": SearchList(
        RECIPIENT_FIELDS,
        _recipients,
        {
            "key": lambda row: row.key,
            "tenant": lambda row: row.tenant,
            "channel": lambda row: row.channels,
            "locale": lambda row: row.locale,
            "zone": lambda row: row.zone,
        },
    ),
    "errors": SearchList(
        ERROR_FIELDS,
        _errors,
        {"task": lambda row: row.task, "type": lambda row: row.error_type},
        of_tenants=False,
    ),
    "tenants": SearchList(TENANT_FIELDS, _tenants, {"tenant": lambda row: row.tenant}, of_tenants=False),
    "audit": SearchList(
        AUDIT_FIELDS,
        _audit,
        {
            "actor": lambda row: row.actor,
            "action": lambda row: row.action,
            "subject": lambda row: row.subject,
        },
        of_tenants=False,
    ),
    "logs": SearchList(
        LOG_FIELDS,
        _log,
        {
            "event": lambda row: row.event,
            "tenant": lambda row: row.tenant,
            "task": lambda row: row.task,
            "queue": lambda row: row.queue,
        },
    ),
}
