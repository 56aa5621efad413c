"""Alert conditions, alert rules that notify people of them, and past alerts."""

from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query, Response
from pydantic import AwareDatetime, BaseModel, Field

from sereno.monitoring.alerts import operations as alerts
from sereno.monitoring.alerts.condition import Level
from sereno.monitoring.alerts.current_conditions import AlertCondition, current_conditions
from sereno.monitoring.alerts.rows import AlertRow, RuleLine
from sereno.monitoring.alerts.rule import AGAIN, DAY, MOST_COUNT, MOST_TARGETS, AlertRule, AlertTarget, LogRule
from sereno.server.api.paging import Page, Paging, page_of, paging
from sereno.server.api.responses import json_response, page_model, response_model
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import not_found
from sereno.server.shared.tenant_scope import their_tenant
from sereno.text import NAME_LIMIT

RuleName = Annotated[str, Path(min_length=1, max_length=100)]
AlertId = Annotated[int, Path(ge=0, lt=2**63)]
Name = Annotated[str, Field(min_length=1, max_length=NAME_LIMIT)]
GONE = [HTTPStatus.NOT_FOUND]


class TargetBody(BaseModel):
    """`address`: given masked with its …, it stays unchanged. `keys`: such as the secrets of a webhook."""

    channel: Name
    address: str = Field(min_length=1, max_length=2000)
    keys: dict[str, Any] = Field({}, max_length=20)


class LogBody(BaseModel):
    """`count` log lines at this level or above, within `within` seconds."""

    level: Literal["debug", "info", "warning", "error", "critical"] = "error"
    event: Name | None = None
    count: int = Field(1, ge=1, le=MOST_COUNT)
    within: float = Field(300.0, ge=1, le=DAY)


class RuleBody(BaseModel):
    """Who is notified of which conditions. Without `kinds`, of all of them; `log`: of log lines instead."""

    to: list[TargetBody] = Field(min_length=1, max_length=MOST_TARGETS)
    kinds: list[Name] | None = Field(None, max_length=100)
    log: LogBody | None = None
    level: Level = "warn"
    tenant: Name | None = None
    queue: Name | None = None
    task: Name | None = None
    for_seconds: float = Field(0.0, ge=0, le=7 * DAY, description="Seconds it must last before a notification.")
    again_seconds: float = Field(
        AGAIN, ge=60, le=30 * DAY, description="Seconds after which a lasting condition is notified again."
    )
    enabled: bool = True
    note: str | None = Field(None, max_length=500)

    def rule(self, name: str) -> AlertRule:
        given = self.model_dump(exclude={"to", "log"})
        targets = [AlertTarget(channel=each.channel, address=each.address, keys=each.keys) for each in self.to]
        log = None if self.log is None else LogRule(**self.log.model_dump())
        return AlertRule(name=name, targets=targets, log=log, **given)


class SilenceBody(BaseModel):
    """`until`: no notification before then; null ends the silence."""

    until: AwareDatetime | None


@dataclass
class TestedRule:
    """The jobs that send the messages."""

    jobs: list[int]


def routes(context: ServerContext) -> Router:
    """`/attention`, `/alerts` and `/alerts/rules`."""
    router = Router(context, "alerts")

    @router.operation("GET", "/attention", role="viewer", of_tenants=True)
    async def what_needs_a_person(
        who: Who,
        tenant: Annotated[str | None, Query(min_length=1, max_length=NAME_LIMIT, description="Only its own.")] = None,
        late: Annotated[float, Query(ge=1, le=DAY, description="Seconds that a ready job may wait.")] = 60.0,
    ) -> Page[AlertCondition]:
        """Conditions that need attention, the worst first. A user of one tenant sees that tenant's own."""
        return Page(
            await context.read(current_conditions(context.settings, tenant=their_tenant(who, tenant), late=late))
        )

    @router.operation("GET", "/alerts", role="viewer", response_model=page_model(AlertRow))
    async def list_alerts(
        page: Annotated[Paging, Depends(paging)],
        rule: Annotated[str | None, Query(min_length=1, max_length=100)] = None,
        state: Annotated[Literal["open", "past"] | None, Query(description="Without it, both.")] = None,
    ) -> Response:
        """Alerts, newest first: open ones and past ones."""
        query = partial(alerts.list_alerts, rule=rule, is_open=None if state is None else state == "open")
        return json_response(await context.read(page_of(page, query, lambda row: row.id)))

    @router.operation(
        "POST", "/alerts/{alert_id}/silence", role="operator", also=GONE, response_model=response_model(AlertRow)
    )
    async def silence(alert_id: AlertId, body: SilenceBody, who: Who) -> Response:
        """Send no notifications of an open alert before a time, nor of its end."""
        found = await context.change(alerts.silence(alert_id, body.until, actor=who.actor))
        if found is None:
            raise not_found(f"open alert {alert_id}")
        return json_response(found)

    _rules(context, router)
    return router


def _rules(context: ServerContext, router: Router) -> None:
    @router.operation("GET", "/alerts/rules", role="viewer", response_model=page_model(RuleLine))
    async def list_rules() -> Response:
        """Alert rules. Addresses are masked, for every user."""
        return json_response(Page(await context.read(alerts.list_rules())))

    @router.operation("GET", "/alerts/rules/{name}", role="viewer", also=GONE, response_model=response_model(RuleLine))
    async def show_rule(name: RuleName) -> Response:
        """One rule."""
        found = await context.read(alerts.show_rule(name))
        if found is None:
            raise not_found(f"alert rule {name!r:.60}")
        return json_response(found)

    @router.operation("PUT", "/alerts/rules/{name}", role="admin", response_model=response_model(RuleLine))
    async def set_rule(name: RuleName, body: RuleBody, who: Who) -> Response:
        """Create a rule, or replace the one of this name."""
        check = context.app.alerts.checked
        return json_response(await context.change(alerts.set_rule(body.rule(name), check=check, actor=who.actor)))

    @router.operation("DELETE", "/alerts/rules/{name}", role="admin", also=GONE, status_code=204)
    async def remove_rule(name: RuleName, who: Who) -> None:
        """Delete a rule; its open alerts end."""
        if not await context.change(alerts.remove_rule(name, actor=who.actor)):
            raise not_found(f"alert rule {name!r:.60}")

    @router.operation("POST", "/alerts/rules/{name}/test", role="operator", also=GONE)
    async def test_rule(name: RuleName, who: Who) -> TestedRule:
        """Send a test message to each target. A worker does so, by jobs of its own."""
        if await context.read(alerts.show_rule(name)) is None:
            raise not_found(f"alert rule {name!r:.60}")
        return TestedRule(await context.change(alerts.try_rule(name, actor=who.actor)))
