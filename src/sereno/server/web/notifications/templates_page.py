"""Templates: the source of every message, a preview with a real event, and all versions."""

import asyncio
import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from starlette.responses import HTMLResponse, Response

from sereno.access.masking import masked
from sereno.errors import InvalidArguments, SerenoError
from sereno.notifications.event import Content, Recipient
from sereno.notifications.templates import operations as templates
from sereno.notifications.templates import queries
from sereno.notifications.templates.lint import size_of, sms_parts
from sereno.notifications.templates.operations import TemplateVersion
from sereno.notifications.templates.preview import render
from sereno.notifications.templates.rows import TemplatePlace, TemplateRow
from sereno.notifications.templates.templates import LARGEST_SOURCE, PARTS, TemplateSet, directory_of, normal
from sereno.server.web.command_examples import copies
from sereno.server.web.notifications.page_parts import AT_ONCE, tabs
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.page_routes import PageRoutes
from sereno.text import check_text

# A message may be HTML of an untrusted author: it runs no scripts, loads nothing and sends no referrer.
POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'self'"
)
HEADERS = {"Content-Security-Policy": POLICY, "X-Frame-Options": "SAMEORIGIN", "Cache-Control": "no-store"}
# Bytes; URL encoding takes at most three bytes for each byte of a source.
LARGEST_FORM = 3 * LARGEST_SOURCE + 300_000
MOST_LINES = 500
# Lines of a version that are compared. The time grows with their square: 32,000 short ones took 18 s.
MOST_COMPARED = 2000
SMS = "sms"


@dataclass(frozen=True, slots=True)
class TemplateRequest:
    """Which message: of an event on a channel, for a locale and a tenant. Empty: any."""

    event: str
    channel: str
    locale: str
    tenant: str
    part: str

    @property
    def message(self) -> dict[str, str]:
        named = {"event": self.event, "channel": self.channel, "locale": self.locale, "tenant": self.tenant}
        return {name: value for name, value in named.items() if value}


def routes(pages: PageRoutes) -> None:
    """`/templates`, `/template?event=…&channel=…`, `/template-preview?…`."""

    @pages.at("/templates")
    async def all_templates(page: PageRequest) -> Response:
        words, rows = await _words(page), await page.load("template rows", queries.list_rows, fresh=AT_ONCE)
        changed = {row.place: row for row in rows.value or []}
        lines = await asyncio.to_thread(_lines, words, changed, page.query.get("event") or None)
        return page.render(
            "templates.html",
            tabs=tabs(page),
            lines=lines[:MOST_LINES],
            is_cut=len(lines) > MOST_LINES,
            rows=rows,
            events=sorted({*page.context.app.notifications.definitions, *(line["event"] for line in lines)}),
            channels=sorted(page.context.app.channels.known),
            event=page.query.get("event") or None,
            sentence=_sentence(page, lines),
            copies=copies(page, cli=["template", "list"], path="templates", query={"event": page.query.get("event")}),
        )

    @pages.at("/template")
    async def one(page: PageRequest) -> Response:
        form = _template_request(page)
        words = await _words(page)
        found = await asyncio.to_thread(words.find, form.event, form.channel, form.locale, form.tenant)
        where = _place(form)
        past = await page.load(("template history", where), partial(templates.history, where), fresh=AT_ONCE)
        here = found.get(form.part)
        source = here.text if here is not None else ""
        return page.render(
            "template.html",
            tabs=tabs(page),
            form=form,
            parts=[(part, found.get(part), page.link(part=part)) for part in PARTS],
            counts=here,
            source=source,
            has_row=here is not None and not here.is_file and here.key == where,
            past=past,
            versions=_versions(past.value or [], source),
            preview=f"template-preview?{urlencode(form.message | {'part': form.part})}",
            api=_api(form),
            channels=sorted(page.context.app.channels.known),
            largest=LARGEST_SOURCE,
            copies=_copies(page, form),
        )

    _previews(pages)


def _previews(pages: PageRoutes) -> None:
    @pages.at("/template-preview")
    async def saved(page: PageRequest) -> Response:
        return await _preview(page, _template_request(page), None, None)

    @pages.at("/template-preview", role="admin", method="POST")
    async def draft(page: PageRequest) -> Response:
        """Preview an unsaved source, for users who may save it."""
        page.context.authenticator.check_origin(page.request)
        form = parse_qs((await page.request.body())[:LARGEST_FORM].decode("utf-8", "replace"), keep_blank_values=True)
        source, sample = (form.get(name, [""])[0] for name in ("source", "payload"))
        return await _preview(page, _template_request(page), source[: LARGEST_SOURCE + 1], sample)


def _template_request(page: PageRequest) -> TemplateRequest:
    given = {name: page.query.get(name, "").strip() for name in ("event", "channel", "locale", "tenant")}
    for name, value in given.items():
        check_text(name, value or None)
    part = page.query.get("part", "body")
    return TemplateRequest(**given, part=part if part in PARTS else "body")


def _place(form: TemplateRequest) -> TemplatePlace:
    return templates.place(form.event, form.channel, form.part, form.locale or None, form.tenant or None)


async def _words(page: PageRequest) -> TemplateSet:
    """Return the current files and rows."""
    seen = await page.load("template words", queries.read, fresh=AT_ONCE)
    made = await asyncio.to_thread(lambda: TemplateSet(directory_of(page.context.settings.templates)))
    made.use_rows((seen.value[1] if seen.value is not None else None) or {})
    return made


def _lines(words: TemplateSet, changed: Mapping[TemplatePlace, TemplateRow], event: str | None) -> list[dict[str, Any]]:
    """Return a line for each message: its parts, their origin, and who changed one last."""
    found: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    for source in words.sources():
        key = source.key
        if event not in (None, key.event):
            continue
        line = found.setdefault(
            (key.event, key.channel, key.locale, key.tenant), key._asdict() | {"parts": {}, "row": None}
        )
        # A row takes precedence over a file of the same name, and is read before it.
        line["parts"].setdefault(key.part, "file" if source.is_file else "row")
        row = changed.get(key)
        if row is not None and (line["row"] is None or row.changed_at > line["row"].changed_at):
            line["row"] = row
    return [found[key] for key in sorted(found)]


def _sentence(page: PageRequest, lines: Sequence[Mapping[str, Any]]) -> str:
    if not lines:
        return page.say("There is no template yet: messages come from functions of the code.")
    rows = sum("row" in line["parts"].values() for line in lines)
    return page.say(
        "%(count)s messages have templates; %(rows)s of them were changed here.", count=len(lines), rows=rows
    )


# Preview


async def _preview(page: PageRequest, form: TemplateRequest, draft: str | None, sample: str | None) -> Response:
    """Return a document of its own, without any privileges."""
    try:
        drawn = await _drawn(page, form, draft, sample)
    except SerenoError as error:
        drawn = f'<p class="wrong">{escape(str(error))}</p>'
    html = (
        f'<!doctype html><html lang="{page.language}"><meta charset="utf-8"><title>{escape(form.event)}</title>'
        "<style>body{font:14px/1.5 system-ui,sans-serif;margin:14px;color:#1d2433;background:#fff}"
        ".size{color:#5f667a;font-size:12px;margin:0 0 12px}meter{width:120px;vertical-align:middle}"
        ".wrong{color:#b23a30}body{overflow-wrap:anywhere}"
        "h1{font-size:16px;margin:0 0 6px}pre{white-space:pre-wrap;font:inherit;margin:0}"
        "hr{border:0;border-top:1px solid #e7e1d4;margin:14px 0}</style>"
        f"{drawn}"
    )
    return HTMLResponse(html, headers=HEADERS)


async def _drawn(page: PageRequest, form: TemplateRequest, draft: str | None, sample: str | None) -> str:
    words = await _words(page)
    if draft is not None:
        _, rows = (await page.load("template words", queries.read, fresh=AT_ONCE)).value or ("", None)
        words.use_rows({**(rows or {}), _place(form): draft})
    payload = await _payload(page, form, sample)
    if payload is None:
        return f'<p class="wrong">{escape(page.say("There is no event of this type yet to preview with."))}</p>'
    recipient = Recipient(
        key=page.say("recipient"),
        tenant=form.tenant or None,
        locale=form.locale or None,
        unsubscribe_url="https://example.com/unsubscribe",
        preferences_url="https://example.com/preferences",
    )
    definition = page.context.app.notifications.definitions.get(form.event)
    made = await page.context.start_process(
        partial(render, definition, words, form.event, form.channel, payload, recipient)
    )
    if made is None:
        return f'<p class="wrong">{escape(page.say("There is no template for this message yet."))}</p>'
    return _size(page, form.channel, made, payload) + _message(made)


async def _payload(page: PageRequest, form: TemplateRequest, sample: str | None) -> dict[str, Any] | None:
    """Return the sample, or the payload of the last event with likely secrets and addresses masked."""
    if sample and sample.strip():
        try:
            given = json.loads(sample)
        except (ValueError, RecursionError) as error:
            raise InvalidArguments(page.say("The sample payload is no JSON: %(problem)s", problem=error)) from None
        if not isinstance(given, dict):
            raise InvalidArguments(page.say("The sample payload must be a JSON object."))
        return given
    seen = await page.load(
        ("last payload", form.event, form.tenant), partial(queries.last_payload, form.event, form.tenant or None)
    )
    return None if seen.value is None else dict(masked(seen.value))


def _message(made: Content) -> str:
    """Return the message: texts are escaped; HTML is shown as a mail program shows it."""
    parts = [f"<h1>{escape(made.title)}</h1>" if made.title else ""]
    parts.append(f"<pre>{escape(made.body)}</pre>" if made.body else "")
    if made.options:
        parts.append(f"<hr><pre>{escape(json.dumps(dict(made.options), ensure_ascii=False, indent=2))}</pre>")
    if made.html is not None:
        parts.append(f"<hr>{made.html}")
    return "".join(parts)


def _size(page: PageRequest, channel: str, made: Content, payload: Mapping[str, Any]) -> str:
    """Return the size relative to the provider's limit."""
    known = page.context.app.channels.known.get(channel)
    size, largest = size_of(channel, made, payload), getattr(known, "largest", None)
    if largest is None:
        text = page.say("%(size)s bytes", size=figure(size))
    else:
        text = page.say("%(size)s of %(most)s bytes", size=figure(size), most=figure(largest))
    meter = ""
    if largest is not None:
        meter = (
            f'<meter min="0" max="{largest}" high="{largest * 0.9:.0f}" value="{size}" title="{escape(text)}"></meter> '
        )
    if channel == SMS:
        number, _ = sms_parts("\n".join(text for text in (made.title, made.body) if text))
        text += " · " + page.say("%(count)s parts of an SMS", count=number)
    is_over = largest is not None and size > largest
    return f'<p class="size{" wrong" if is_over else ""}">{meter}{escape(text)}</p>'


# Versions


def _versions(past: Sequence[TemplateVersion], now: str) -> list[dict[str, Any]]:
    """Return each version with its diff to the current one."""
    found = []
    for version in past:
        lines: list[tuple[str, str]] = []
        if version.source is not None and version.source != now:
            then = version.source.splitlines()[:MOST_COMPARED]
            between = difflib.unified_diff(then, now.splitlines()[:MOST_COMPARED], lineterm="", n=2)
            lines = [(_kind(line), line) for line in list(between)[2:MOST_LINES]]
        found.append(
            {"version": version, "lines": lines, "is_now": version.source is not None and version.source == now}
        )
    return found


def _kind(line: str) -> str:
    return {"+": "plus", "-": "minus", "@": "dim"}.get(line[:1], "")


def _api(form: TemplateRequest) -> str:
    """Return the path of this row in the API."""
    path = "/".join(quote(each, safe="") for each in ("templates", form.event, form.channel, form.part))
    where = {name: value for name, value in (("locale", normal(form.locale)), ("tenant", form.tenant)) if value}
    return f"{path}?{urlencode(where)}" if where else path


def _copies(page: PageRequest, form: TemplateRequest) -> dict[str, str]:
    cli = ["template", "show", form.event, form.channel]
    for name in ("locale", "tenant"):
        value = getattr(form, name)
        cli += [f"--{name}", value] if value else []
    path = f"templates/{quote(form.event, safe='')}/{quote(form.channel, safe='')}"
    return copies(page, cli=cli, path=path, query={"locale": form.locale, "tenant": form.tenant})
