"""Tenants whose rows all contain a canary, and for each operation of the API a request about those rows.

A new operation needs a line in `requests`: a request about a row of that tenant.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from sereno import JetStream, Sereno
from sereno.access.operations import create
from sereno.carriers import reports
from sereno.channels.contract import IN_APP
from sereno.channels.outcome import Failed
from sereno.database.driver import drive
from sereno.database.statement import Operation as Statements
from sereno.database.statement import Statement
from sereno.error_text import FailureText
from sereno.errors import CarrierUnavailable
from sereno.jobs import operations as jobs
from sereno.jobs import pauses
from sereno.jobs.carried import CarriedQueue
from sereno.jobs.filters import JobFilter
from sereno.jobs.queries import error_groups
from sereno.monitoring.alerts import operations as alerts
from sereno.monitoring.alerts.condition import condition
from sereno.monitoring.alerts.rule import AlertRule, AlertTarget
from sereno.monitoring.alerts.watcher import ConditionSnapshot, follow
from sereno.procedures import operations as procedures
from sereno.procedures.procedure import ProcedureSignature
from sereno.telemetry import central_log, log_queries
from sereno.telemetry.log_record import as_line
from sereno.telemetry.metrics import MetricTally
from tests.notifications.conftest import Pager, Tender

EVENT = "tender.published"
FINGERPRINT = "3fa9c01b77d2"
DAILY = {"kind": "daily", "at": "03:00", "tz": "Europe/Riga"}
PAST = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-03T00:00:00Z"}


@dataclass
class Things:
    """The rows of one tenant. The tenant's name is a second canary, because a request may have to contain it."""

    tenant: str
    canary: str
    job: int = 0
    ended: int = 0
    event: int = 0
    delivery: int = 0
    token: int = 0
    limit: str = ""
    line: int = 7_000_006
    operation: int = 7_000_006
    batch: int = 7_000_008
    alert: int = 7_000_007
    work: int = 7_000_009
    group: int = 7_000_010

    @property
    def report(self) -> str:
        return 'public."' + self.named("report").replace('"', '""') + '"'

    def named(self, what: str) -> str:
        return f"{self.canary}-{what}"

    def is_in(self, text: str) -> bool:
        return self.canary in text or self.tenant in text


@dataclass
class Operation:
    """One operation of the OpenAPI document."""

    method: str
    path: str
    about: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def role(self) -> str | None:
        role: str | None = self.about.get("x-role")
        return role

    @property
    def is_of_tenants(self) -> bool:
        return bool(self.about["x-of-tenants"])

    def takes_in_query(self, name: str) -> bool:
        return any(each["name"] == name and each["in"] == "query" for each in self.about.get("parameters", []))


def operations(document: dict[str, Any]) -> Iterator[Operation]:
    """Return all operations, reads first and deletions last, because nothing is left to read after them."""
    found = [
        Operation(method.upper(), path, about)
        for path, each in document["paths"].items()
        for method, about in each.items()
    ]

    def when(operation: Operation) -> int:
        if operation.method == "DELETE" or operation.path.endswith(("/delete", "/reset")):
            return 2
        return 0 if operation.method == "GET" else 1

    yield from sorted(found, key=when)


def send(client: httpx.Client, operation: Operation, request: dict[str, Any]) -> httpx.Response:
    """Send the request, with its path parameters filled in."""
    given = dict(request)
    path = operation.path.format(**{name: quote(str(value), safe="") for name, value in given.pop("path", {}).items()})
    return client.request(operation.method, path, **given)


def fill(app: Sereno, *tenants: Things) -> None:
    """Create rows of every kind for each tenant; `fill_over_http` creates the rest."""

    @app.task
    def work(text: str) -> None: ...

    # Tests use one database role for everything.
    app.override(procedures_as_worker=True)
    pager = Pager()
    pager.outcomes = {things.named("address"): Failed("too_big") for things in tenants}
    published = app.event(EVENT, Tender, channels=[pager, IN_APP], category="tenders")
    database = app.database
    failed = MetricTally()
    for things in tenants:
        failed.failed(FailureText(FINGERPRINT, "work", "OSError", things.named("message")), 1, things.tenant)
        using: dict[str, Any] = {"tenant": things.tenant, "tags": [things.named("tag")], "trace": things.named("trace")}
        waiting = work.using(**using, unique_key=things.named("unique")).enqueue(things.named("argument"))
        ended = work.using(**using).enqueue(things.named("argument"))
        reason, actor = things.named("reason"), things.named("actor")
        drive(jobs.cancel(JobFilter(ids=[ended.id]), reason=reason, actor=actor), database.run)
        things.job, things.ended = waiting.id, ended.id
        member, follows = (work.using(**using).job(things.named("argument")) for _ in range(2))
        things.group = app.group([member], follows, name=things.named("group"), tenant=things.tenant).enqueue().id
        things.line = database.run(_log_line(things))
        things.alert = database.run(_alert(things))
        database.run(pauses.pause("tenant", things.tenant, note=things.named("note"), actor=actor))
        made = database.run(create(things.named("token"), "viewer", tenant=things.tenant, actor=actor))
        things.token = made.token.id
        recipient, addresses = things.named("recipient"), {"pager": things.named("address")}
        app.recipients.upsert(recipient, addresses, tenant=things.tenant, data={"name": things.named("data")})
        wanted = {"code": things.named("code")}
        app.recipients.prefer(recipient, event=EVENT, condition=wanted, tenant=things.tenant)
        app.topics.subscribe(things.named("topic"), recipient, tenant=things.tenant)
        tender = Tender(things.named("code"))
        named: dict[str, Any] = {"subject": things.named("subject"), "key": things.named("event")}
        named["trace"] = things.named("trace")
        things.event = published.notify(tender, to=recipient, tenant=things.tenant, **named)
        things.batch = database.run(_archive(things))
        database.run(_report(things))
        database.run(_carrier(things))
        app.procedure(things.report, task=f"report.{things.batch}")
    # An application table is to be archived: the archive is on.
    app.archive.table("public.tenders", time="published_at", older_than="365d")
    database.run(error_groups.add(failed))
    asyncio.run(_send(app, tenants))


def _archive(things: Things) -> Statements[int]:
    """Create a batch whose table is empty; it could hold rows of many tenants."""
    new = "select batch from sereno.new_batch(%(kind)s, 'sereno.logs', array['id'], 'at')"
    rows = yield Statement(new, {"kind": f"public.{things.named('table')}"})
    return int(rows[0][0])


def _report(things: Things) -> Statements[None]:
    """Create a function that jobs may call."""
    # The driver takes a percent sign, also inside of quotes, as the start of a parameter.
    name = things.report.replace("%", "%%")
    yield Statement(f"create function {name}() returns integer language sql as 'select 1'")
    signature = ProcedureSignature("function", "public", things.named("report"), (), "integer")
    yield from procedures.allow("here", signature, note=things.named("note"), actor=things.named("actor"))


def _carrier(things: Things) -> Statements[None]:
    """Report a carrier for the queue of the tenant."""
    carrier = JetStream("nats://a:4222")
    yield from reports.not_reached(
        CarriedQueue(things.named("queue"), carrier), CarrierUnavailable(things.named("error"))
    )


def _log_line(things: Things) -> Statements[int]:
    """Create a log line of the tenant."""
    logger = logging.getLogger("sereno.job")
    record = logger.makeRecord(logger.name, logging.WARNING, "", 0, things.named("log-message"), (), None)
    record.sereno_fields = {"tenant": things.tenant, "trace_id": things.named("trace"), "note": things.named("note")}
    yield from central_log.add([as_line(record, 0.0)], 0.0)
    (line,) = yield from log_queries.list_lines(log_queries.LogFilter(tenant=things.tenant), 1)
    return line.id


def _alert(things: Things) -> Statements[int]:
    """Create an alert rule of the tenant, and an alert of it."""
    target = AlertTarget(channel="pager", address=things.named("address"))
    rule = AlertRule(name=things.named("rule"), targets=[target], tenant=things.tenant, note=things.named("note"))
    yield from alerts.set_rule(rule, actor=things.named("actor"))
    found = condition("job.dead", things.named("task"), "bad", "look", count=1, task=things.named("task"))
    yield from follow(rule.name, ConditionSnapshot([found], set()))
    (row,) = yield from alerts.list_alerts(1, rule=rule.name)
    return row.id


async def _send(app: Sereno, tenants: tuple[Things, ...]) -> None:
    """Create and send the deliveries directly, because no worker runs here."""
    for things in tenants:
        await app.notifications.fanout.fan_out(things.event)
    await app.notifications.sender.deliver(1, "pager", "", -2)
    await app.database.aclose()


def fill_over_http(admin: httpx.Client, *tenants: Things) -> None:
    """Create the rows that are easier to create through the API."""
    for things in tenants:
        schedule = f"/schedules/{things.named('schedule')}"
        definition = _schedule(things) | {"tenant": things.tenant, "note": things.named("note")}
        limit = admin.put(f"/queues/{things.named('queue')}/limit", json={"slots": 3, "note": things.named("note")})
        for answer in (admin.put(schedule, json=definition), admin.post(f"{schedule}/run"), limit):
            assert answer.is_success, answer.text
        things.limit = limit.json()["name"]
        found = admin.get("/deliveries", params={"tenant": things.tenant, "channel": "pager"}).json()["items"]
        things.delivery = found[0]["id"]
        many = {"ids": [things.ended], "tenant": things.tenant, "in_background": True, "reason": things.named("reason")}
        things.operation = admin.post("/jobs/retry", json=many).json()["id"]
        things.work = admin.post("/archive/verify", json={"batch": things.batch}).json()["job"]
    # All tenants have the same templates.
    written = admin.put(f"/templates/{EVENT}/pager/title", json={"source": tenants[-1].named("template")})
    assert written.is_success, written.text


def _schedule(things: Things) -> dict[str, Any]:
    return {"task": "work", "args": {"text": things.named("argument")}, "when": DAILY}


def requests(things: Things) -> dict[str, dict[str, Any]]:
    """Return the request of each operation about the tenant's rows."""
    return _about_jobs(things) | _about_schedules(things) | _about_notifications(things) | _about_the_system(things)


def _about_jobs(things: Things) -> dict[str, dict[str, Any]]:
    job = {"path": {"job_id": things.job}}
    operation = {"path": {"operation_id": things.operation}}
    return {
        "GET /jobs": {},
        "POST /jobs": {"json": {"task": "work", "arguments": {"text": "x"}}},
        "POST /signals": {"json": {"name": "paid:1", "value": {"amount": 7}}},
        "GET /jobs/{job_id}": job,
        "GET /jobs/{job_id}/why": job,
        "GET /jobs/{job_id}/result": job,
        "GET /jobs/{job_id}/stream": job,
        "POST /jobs/{job_id}/reveal": job,
        "POST /jobs/{job_id}/retry": {"path": {"job_id": things.job}, "json": {"arguments": {"text": "x"}}},
        "POST /jobs/retry": {"json": {"ids": [things.ended]}},
        "POST /jobs/cancel": {"json": {"ids": [things.job]}},
        "POST /jobs/delete": {"json": {"ids": [things.job, things.ended]}},
        "GET /operations": {},
        "GET /operations/{operation_id}": operation,
        "POST /operations/{operation_id}/stop": operation,
        "GET /groups": {},
        "GET /groups/{group_id}": {"path": {"group_id": things.group}},
        "POST /groups/{group_id}/cancel": {"path": {"group_id": things.group}},
        "POST /tenants/{name}/pause": {"path": {"name": things.tenant}, "json": {"note": "x"}},
        "POST /tenants/{name}/resume": {"path": {"name": things.tenant}},
        "GET /pauses": {},
        "GET /logs": {},
        "GET /logs/{line_id}": {"path": {"line_id": things.line}},
    }


def _about_schedules(things: Things) -> dict[str, dict[str, Any]]:
    one = {"path": {"key": things.named("schedule")}}
    many = {"json": {"keys": [things.named("schedule")]}}
    return {
        "GET /schedules": {},
        "GET /schedules/heatmap": {},
        "GET /schedules/export": {},
        "POST /schedules/preview": {"json": {"when": DAILY}},
        "PUT /schedules/{key}": one | {"json": _schedule(things)},
        "GET /schedules/{key}": one,
        "GET /schedules/{key}/next": one,
        "GET /schedules/{key}/fires": one,
        "POST /schedules/{key}/run": one,
        "POST /schedules/{key}/backfill": one | {"json": PAST},
        "POST /schedules/import": {"json": {"schedules": [_schedule(things) | {"key": things.named("schedule")}]}},
        "POST /schedules/pause": many,
        "POST /schedules/resume": many,
        "POST /schedules/disable": many,
        "POST /schedules/run": many,
        "POST /schedules/delete": many,
        "POST /schedules/spread": {"json": {"keys": [things.named("schedule")], "over": "20m"}},
        "POST /schedules/tick": {},
    }


def _about_notifications(things: Things) -> dict[str, dict[str, Any]]:
    theirs = {"params": {"tenant": things.tenant}}
    one = {"path": {"key": things.named("recipient")}} | theirs
    inbox = {"params": {"tenant": things.tenant, "recipient": things.named("recipient")}}
    address = {"channel": "pager", "address": things.named("address")}
    topic = {"path": {"topic": things.named("topic")}} | theirs
    subscription = {"json": {"recipients": [things.named("recipient")]}}
    return {
        "GET /events": {},
        "POST /events": {"json": {"type": EVENT, "payload": {"code": "x"}}},
        "GET /events/{event_id}": {"path": {"event_id": things.event}},
        "POST /events/{event_id}/cancel": {"path": {"event_id": things.event}},
        "GET /deliveries": {},
        "GET /deliveries/{delivery_id}": {"path": {"delivery_id": things.delivery}},
        "POST /deliveries/{delivery_id}/reveal": {"path": {"delivery_id": things.delivery}},
        "POST /deliveries/requeue": {"json": {"ids": [things.delivery], "any_ended": True}},
        "GET /recipients": {},
        "GET /recipients/{key}": one,
        "POST /recipients/{key}/reveal": one,
        "PUT /recipients/{key}": one | {"json": {"zone": "Europe/Riga"}},
        "DELETE /recipients/{key}": one,
        "GET /recipients/{key}/topics": one,
        "GET /recipients/{key}/why": one | {"params": {"tenant": things.tenant, "event": EVENT}},
        "PUT /recipients/{key}/preferences": one | {"json": {"event": EVENT, "wanted": True}},
        "POST /recipients/{key}/unsubscribe": one | {"json": address},
        "GET /topics": theirs,
        "GET /topics/{topic}/subscribers": topic,
        "POST /topics/{topic}/subscribe": topic | subscription,
        "POST /topics/{topic}/unsubscribe": topic | subscription,
        "GET /preferences": theirs,
        "PUT /preferences": theirs | {"json": {"event": EVENT, "wanted": True}},
        "GET /inbox": inbox,
        "GET /inbox/stream": inbox,
        "GET /inbox/unread": inbox,
        "POST /inbox/mark": inbox | {"json": {"what": "read"}},
        "GET /preference-centre": inbox,
        "PUT /preference-centre": inbox | {"json": {"zone": "Europe/Riga"}},
        "POST /preference-centre/addresses": inbox | {"json": {"address": "new@example.com"}},
        "POST /callbacks/{channel}": {"path": {"channel": "pager"}},
        "POST /callbacks/{channel}/{account}": {"path": {"channel": "pager", "account": things.tenant}},
    }


def _about_the_system(things: Things) -> dict[str, dict[str, Any]]:
    limit = {"path": {"name": things.limit}}
    queue = {"path": {"name": things.named("queue")}}
    task = {"path": {"name": "work"}}
    procedure = {"path": {"target": "here", "name": things.report}}
    channel = {"path": {"name": "pager"}}
    template = {"path": {"event": EVENT, "channel": "pager"}}
    part = {"path": {"event": EVENT, "channel": "pager", "part": "title"}}
    rule = {"path": {"name": things.named("rule")}}
    archived = {"kind": f"public.{things.named('table')}", "from": PAST["start"], "to": PAST["end"]}
    search = {"path": {"list_name": "jobs"}}
    named_search = {"path": {"list_name": "jobs", "name": "late"}}
    return {
        "GET /me": {},
        "GET /stream": {},
        "GET /attention": {},
        "GET /alerts": {},
        "POST /alerts/{alert_id}/silence": {"path": {"alert_id": things.alert}, "json": {"until": None}},
        "GET /alerts/rules": {},
        "GET /alerts/rules/{name}": rule,
        "PUT /alerts/rules/{name}": rule | {"json": {"to": [{"channel": "pager", "address": "x"}]}},
        "DELETE /alerts/rules/{name}": rule,
        "POST /alerts/rules/{name}/test": rule,
        "GET /errors": {},
        "GET /errors/{fingerprint}": {"path": {"fingerprint": FINGERPRINT}},
        "POST /errors/{fingerprint}/mute": {"path": {"fingerprint": FINGERPRINT}, "json": {"for": "1h", "note": "x"}},
        "GET /figures/deliveries": {},
        "GET /figures/channels": {},
        "GET /figures/jobs": {},
        "GET /tasks/parameters": {},
        "GET /searches/{list_name}": search,
        "GET /searches/{list_name}/fields": search,
        "GET /searches/{list_name}/values": search | {"params": {"field": "tenant", "begins": things.tenant}},
        "PUT /searches/{list_name}/{name}": named_search | {"json": {"text": f"tenant:{things.tenant}"}},
        "DELETE /searches/{list_name}/{name}": named_search,
        "GET /tenants": {},
        "GET /traces": {"params": {"subject": things.named("subject")}},
        "GET /traces/{trace_id}": {"path": {"trace_id": things.named("trace")}},
        "GET /archive": {},
        "GET /archive/batches": {},
        "GET /archive/batches/{batch_id}": {"path": {"batch_id": things.batch}},
        "GET /archive/days": {"params": {"first": "2026-01-01", "last": "2026-02-01"}},
        "GET /archive/whereabouts": {"params": {"kind": "jobs", "id": things.ended}},
        "POST /archive/run": {},
        "POST /archive/verify": {"json": {"sample": 1}},
        "POST /archive/restore": {"json": archived | {"dry_run": True}},
        "POST /archive/export": {"json": archived | {"form": "csv"}},
        "GET /archive/work/{job_id}": {"path": {"job_id": things.work}},
        "POST /archive/query": {"json": {"sql": "select 1 as one"}},
        "GET /migrations": {},
        "GET /status": {},
        "GET /metrics": {},
        "GET /tasks": {},
        "GET /doctor": {},
        "POST /verify": {},
        "GET /settings": {},
        "GET /audit": {},
        "GET /tokens": {},
        "POST /tokens": {"json": {"name": "one more"}},
        "DELETE /tokens/{token_id}": {"path": {"token_id": things.token}},
        "GET /workers": {},
        "GET /limits": {},
        "GET /limits/{name}": limit,
        "PUT /limits/{name}": limit | {"json": {"slots": 2}},
        "POST /limits/{name}/close": limit | {"json": {"seconds": 1}},
        "POST /limits/{name}/open": limit,
        "POST /limits/{name}/reset": limit,
        "GET /weights": {},
        "PUT /weights/{key}": {"path": {"key": things.tenant}, "json": {"weight": 2}},
        "GET /procedures": {},
        "GET /procedures/{target}/{name}": procedure,
        "PUT /procedures/{target}/{name}": procedure | {"json": {"timeout": "1m"}},
        "DELETE /procedures/{target}/{name}": procedure,
        "POST /procedures/{target}/{name}/check": procedure,
        "POST /procedures/{target}/{name}/run": procedure,
        "GET /queues": {},
        "PUT /queues/{name}/carrier": queue | {"json": {"share": 10}},
        "PUT /queues/{name}/limit": queue | {"json": {"slots": 2}},
        "POST /queues/{name}/pause": queue,
        "POST /queues/{name}/resume": queue,
        "POST /tasks/{name}/pause": task,
        "POST /tasks/{name}/resume": task,
        "GET /channels": {},
        "POST /channels/{name}/pause": channel | {"json": {"reason": "x"}},
        "POST /channels/{name}/resume": channel | {"json": {}},
        "GET /templates": {},
        "GET /templates/{event}/{channel}": template,
        "POST /templates/preview": {"json": {"event": EVENT, "channel": "pager", "payload": {"code": "x"}}},
        "POST /templates/lint": {},
        "PUT /templates/{event}/{channel}/{part}": part | {"json": {"source": "Hello"}},
        "DELETE /templates/{event}/{channel}/{part}": part,
    }
