"""Templates: list, preview, lint and change them while workers run."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Query, Response
from pydantic import BaseModel, Field

from sereno.access.masking import masked
from sereno.errors import InvalidArguments
from sereno.notifications.event import Recipient
from sereno.notifications.templates import operations as templates
from sereno.notifications.templates import store
from sereno.notifications.templates.lint import Finding, declared
from sereno.notifications.templates.lint_process import compile_apart, lint_apart
from sereno.notifications.templates.preview import render
from sereno.notifications.templates.templates import LARGEST_SOURCE, Key, TemplateSet, directory_of, spelled
from sereno.server.api.bounds import Name
from sereno.server.api.notifications.answers import check_storable, shape, told
from sereno.server.api.paging import Page
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
class TemplateLine:
    """One template. `origin`: "row", or the name of its file. Empty `locale` and `tenant` mean any."""

    event: str
    channel: str
    locale: str
    tenant: str
    part: str
    origin: str
    length: int
    changed_at: datetime | None = None
    changed_by: str | None = None


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


class PreviewBody(BaseModel):
    """What to render with: a payload, or with `last` that of the last event of this type."""

    event: Name
    channel: Name
    payload: dict[str, Any] | None = None
    last: bool = False
    recipient: Name = "recipient"
    locale: str | None = Field(None, max_length=100)
    tenant: Name | None = None


@dataclass
class PreviewAnswer:
    """What a recipient would read."""

    title: str
    body: str
    html: str | None
    options: dict[str, Any]


@dataclass
class LintAnswer:
    """Findings; `ok`: none of them is an error."""

    ok: bool
    templates: int
    findings: list[Finding]


def routes(context: ServerContext) -> Router:
    """`/templates`."""
    router = Router(context, "templates")

    @router.operation("GET", "/templates", role="viewer")
    async def list_templates(event: str | None = None) -> Page[TemplateLine]:
        """All templates, files and rows, with who changed a row last."""
        check_text("event", event)
        rows = await context.read(store.list_rows(event))
        files = await _in_thread(lambda: TemplateSet(directory_of(context.settings.templates)).sources())
        lines = [_line(row, "row", row.length, row.changed_at, row.changed_by) for row in rows]
        lines += [_line(one.key, one.name, len(one.text)) for one in files if event in (None, one.key.event)]
        return Page(sorted(lines, key=lambda line: (line.event, line.channel, line.locale, line.tenant, line.part)))

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
        name = spelled(Key(*where))
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
            raise not_found(f"row {spelled(Key(*where))}")


def _try(context: ServerContext, router: Router) -> None:
    @router.operation("POST", "/templates/preview", role="viewer", also=NOT_FOUND)
    async def preview(body: PreviewBody, who: Who) -> PreviewAnswer:
        """What a recipient would read. With `last`, likely secrets in the payload are masked for viewers."""
        for name, value in (("event", body.event), ("channel", body.channel), ("tenant", body.tenant)):
            check_text(name, value)
        if (body.payload is None) != body.last:
            raise InvalidArguments("no payload: give a payload, or last for that of the last event")
        payload = body.payload
        if payload is None:
            payload = await context.read(store.last_payload(body.event, body.tenant))
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
        return PreviewAnswer(made.title, made.body, made.html, dict(made.options))

    @router.operation("POST", "/templates/lint", role="viewer", response_model=shape(LintAnswer))
    async def lint() -> Response:
        """Check templates: names that no payload has, mails without a subject, messages that are too large."""
        post, words = context.app.notifications, await _all(context)
        payloads = {name: await context.read(store.last_payload(name)) for name in words.events()}
        known = {name: payload for name, payload in payloads.items() if payload is not None}
        events = {name: declared(one.channels, post.payloads.get(name)) for name, one in post.definitions.items()}
        largest = {name: one.largest for name, one in context.app.channels.known.items() if one.largest is not None}
        found = await context.start_process(partial(lint_apart, words, events, largest, known))
        return told(LintAnswer(not any(each.level == "error" for each in found), len(words), found))


async def _all(context: ServerContext) -> TemplateSet:
    """Return the current files and rows."""
    _, rows = await context.read(store.read())
    made = await _in_thread(lambda: TemplateSet(directory_of(context.settings.templates)))
    made.use_rows(rows or {})
    return made


async def _in_thread(work: Callable[[], T]) -> T:
    """Run work in a thread, while the event loop handles other requests."""
    return await asyncio.to_thread(work)


def _line(key: Any, origin: str, length: int, at: datetime | None = None, by: str | None = None) -> TemplateLine:
    return TemplateLine(key.event, key.channel, key.locale, key.tenant, key.part, origin, length, at, by)
