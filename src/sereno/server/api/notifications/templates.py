"""Templates: list, preview, lint and change them while workers run."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from fastapi import Query, Response
from pydantic import BaseModel, Field

from sereno.access.masking import masked
from sereno.database.json_values import encoder
from sereno.errors import InvalidArguments
from sereno.notifications.event import Content, Recipient
from sereno.notifications.templates import operations as templates
from sereno.notifications.templates import queries
from sereno.notifications.templates.lint import LintFinding, declared
from sereno.notifications.templates.lint_process import compile_apart, lint_apart
from sereno.notifications.templates.preview import render
from sereno.notifications.templates.rows import TemplateLine
from sereno.notifications.templates.templates import LARGEST_SOURCE, TemplateSet, directory_of, spelled
from sereno.server.api.bounds import Name
from sereno.server.api.paging import Page
from sereno.server.api.responses import check_storable, json_response, page_model, response_model
from sereno.server.api.router import Router, Who
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import not_found
from sereno.text import check_text

T = TypeVar("T")
NOT_FOUND = (HTTPStatus.NOT_FOUND,)
ROW = "/templates/{event}/{channel}/{part}"

Part = Literal["title", "body", "html", "options"]
Locale = Annotated[str | None, Query(description="Such as pt-BR or pt; without it, any.")]
Tenant = Annotated[str | None, Query(description="Tenant of the template; without it, all tenants.")]


@dataclass
class TemplateWords:
    """The source of one part, and where it comes from."""

    origin: str
    source: str


class TemplateSource(BaseModel):
    """The source of a template, in Jinja."""

    source: str = Field(max_length=LARGEST_SOURCE)


@dataclass
class TemplateWritten:
    """`created`: false if the row existed. Workers see the change within a minute."""

    name: str
    created: bool


class TemplatePreviewBody(BaseModel):
    """What to render with: a payload, or with `last` that of the last event of this type."""

    event: Name
    channel: Name
    payload: dict[str, Any] | None = None
    last: bool = False
    recipient: Name = "recipient"
    locale: str | None = Field(None, max_length=100)
    tenant: Name | None = None


@dataclass
class LintResponse:
    """Findings; `ok`: none of them is an error."""

    ok: bool
    templates: int
    findings: list[LintFinding]


def routes(context: ServerContext) -> Router:
    """`/templates`."""
    router = Router(context, "templates")

    @router.operation("GET", "/templates", role="viewer", response_model=page_model(TemplateLine))
    async def list_templates(event: str | None = None) -> Response:
        """All templates, files and rows, with who changed a row last."""
        check_text("event", event)
        rows = await context.read(queries.list_rows(event))
        files = await _in_thread(lambda: TemplateSet(directory_of(context.settings.templates)).sources())
        lines = templates.template_lines(rows, files, event)
        return json_response(Page(sorted(lines, key=attrgetter("place"))))

    @router.operation("GET", "/templates/{event}/{channel}", role="viewer", also=NOT_FOUND)
    async def show_template(
        event: str, channel: str, locale: Locale = None, tenant: Tenant = None
    ) -> dict[str, TemplateWords]:
        """The templates that apply to a recipient with this locale, part by part, and where they come from."""
        found = (await _all(context)).find(event, channel, locale, tenant)
        if not found:
            raise not_found(f"template for {event!r:.80} by {channel!r:.80}")
        return {part: TemplateWords(one.name, one.text) for part, one in found.items()}

    _try(context, router)
    _change(context, router)
    return router


def _change(context: ServerContext, router: Router) -> None:
    @router.operation("PUT", ROW, role="admin", also=NOT_FOUND)
    async def set_template(
        event: str,
        channel: str,
        part: Part,
        body: TemplateSource,
        who: Who,
        locale: Locale = None,
        tenant: Tenant = None,
    ) -> TemplateWritten:
        """Write a row. It takes precedence over files."""
        check_storable("source", body.source)
        where = templates.place(event, channel, part, locale, tenant)
        templates.check_length(body.source)
        name = spelled(where)
        await context.start_process(partial(compile_apart, name, body.source, is_html=part == "html"))
        is_new = await context.change(templates.write(where, body.source, actor=who.actor))
        return TemplateWritten(name, is_new)

    @router.operation("DELETE", ROW, role="admin", also=NOT_FOUND, status_code=204)
    async def delete_template(
        event: str, channel: str, part: Part, who: Who, locale: Locale = None, tenant: Tenant = None
    ) -> None:
        """Delete a row: the file applies again."""
        where = templates.place(event, channel, part, locale, tenant)
        if not await context.change(templates.delete(where, actor=who.actor)):
            raise not_found(f"row {spelled(where)}")


def _try(context: ServerContext, router: Router) -> None:
    @router.operation(
        "POST", "/templates/preview", role="viewer", also=NOT_FOUND, response_model=response_model(Content)
    )
    async def preview(body: TemplatePreviewBody, who: Who) -> Response:
        """What a recipient would read. With `last`, likely secrets in the payload are masked for viewers."""
        for name, value in (("event", body.event), ("channel", body.channel), ("tenant", body.tenant)):
            check_text(name, value)
        if (body.payload is None) != body.last:
            raise InvalidArguments("no payload: give a payload, or last for that of the last event")
        payload = body.payload
        if payload is None:
            payload = await context.read(queries.last_payload(body.event, body.tenant))
            payload = payload if who.may("operator") else masked(payload)
        if payload is None:
            raise not_found(f"event {body.event!r:.80} yet: give a payload")
        check_storable("payload", payload)
        recipient = Recipient(key=body.recipient, tenant=body.tenant, locale=body.locale)
        definition = context.app.notifications.definitions.get(body.event)
        made = await context.start_process(
            partial(render, definition, await _all(context), body.event, body.channel, payload, recipient)
        )
        if made is None:
            raise not_found(f"template for {body.event!r:.80} by {body.channel!r:.80}")
        check_storable("what the template says", made)
        # A function of the code may return options that only this encoder knows.
        return json_response(msgspec.Raw(encoder.encode(made)))

    @router.operation("POST", "/templates/lint", role="viewer", response_model=response_model(LintResponse))
    async def lint() -> Response:
        """Check templates: names that no payload has, mails without a subject, messages that are too large."""
        client, words = context.app.notifications, await _all(context)
        payloads = {name: await context.read(queries.last_payload(name)) for name in words.events()}
        known = {name: payload for name, payload in payloads.items() if payload is not None}
        events = {name: declared(one.channels, client.payloads.get(name)) for name, one in client.definitions.items()}
        largest = {name: one.largest for name, one in context.app.channels.known.items() if one.largest is not None}
        found = await context.start_process(partial(lint_apart, words, events, largest, known))
        return json_response(LintResponse(not any(each.level == "error" for each in found), len(words), found))


async def _all(context: ServerContext) -> TemplateSet:
    """Return the current files and rows."""
    _, rows = await context.read(queries.read())
    made = await _in_thread(lambda: TemplateSet(directory_of(context.settings.templates)))
    made.use_rows(rows or {})
    return made


async def _in_thread(work: Callable[[], T]) -> T:
    """Run work in a thread, while the event loop handles other requests."""
    return await asyncio.to_thread(work)
