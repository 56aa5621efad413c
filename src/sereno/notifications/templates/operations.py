"""Operator changes of templates: checked before they are stored, and recorded in the audit log."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from sereno.access import audit
from sereno.access.actor import default_actor
from sereno.access.audit_queries import audit_lines
from sereno.database.statement import Operation
from sereno.errors import InvalidArguments
from sereno.notifications.templates import store
from sereno.notifications.templates.rows import TemplateLine, TemplatePlace, TemplateRow
from sereno.notifications.templates.templates import LARGEST_SOURCE, PARTS, StoredSource, compiled, normal, spelled
from sereno.text import check_text

_LOCALE = re.compile(r"[a-z]{2,8}(-[a-z0-9]{1,8})*")
_NAME = re.compile(r"[\w-]+")
_EVENT = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class TemplateVersion:
    """A version of a template. `source`: None if it was deleted, or if the audit entry has no source."""

    id: int
    at: datetime
    actor: str
    is_deletion: bool
    source: str | None


def place(event: str, channel: str, part: str, locale: str | None = None, tenant: str | None = None) -> TemplatePlace:
    """Return the place of a template; raise InvalidArguments if a name is invalid."""
    for name, value in (("event", event), ("channel", channel), ("tenant", tenant)):
        check_text(name, value)
    if not _EVENT.fullmatch(event) or not _NAME.fullmatch(channel):
        raise InvalidArguments(
            f"{event!r:.60}, {channel!r:.60}: use letters, digits, '_' and '-' in names of events and channels"
        )
    if part not in PARTS:
        raise InvalidArguments(f"{part!r:.60} is not a part of a message: use {', '.join(PARTS)}")
    language = normal(locale or "")
    if language and not _LOCALE.fullmatch(language):
        raise InvalidArguments(f"{locale!r:.60} is not a locale: write it as pt-BR or pt")
    return TemplatePlace(event, channel, language, tenant or "", part)


def change(where: TemplatePlace, source: str, *, actor: str | None = None) -> Operation[bool]:
    """Store a template; workers use it within a minute. Return whether it is new. TemplateFailed if it is invalid.

    Compiles it in this process: a server calls `compile_apart` and `write` instead.
    """
    check_length(source)
    compiled(spelled(where), source, is_html=where.part == "html")
    return (yield from write(where, source, actor=actor))


def template_lines(rows: Iterable[TemplateRow], files: Iterable[StoredSource], event: str | None) -> list[TemplateLine]:
    """Return a line for each row, then for each file; of one event, or of all."""
    lines = [TemplateLine(origin="row", **msgspec.structs.asdict(row)) for row in rows]
    return lines + [
        TemplateLine(origin=file.name, length=len(file.text), **file.key._asdict())
        for file in files
        if event in (None, file.key.event)
    ]


def check_length(source: str) -> None:
    """Raise InvalidArguments if the source is too long or cannot be stored."""
    if "\x00" in source or len(source) > LARGEST_SOURCE:
        raise InvalidArguments(f"a template cannot contain NUL bytes, and has at most {LARGEST_SOURCE:,} characters")


def write(where: TemplatePlace, source: str, *, actor: str | None = None) -> Operation[bool]:
    """Store a source that was compiled before. Return whether the row is new."""
    who = actor or default_actor()
    is_new = yield from store.write(where, source, who)
    # With the source, so that the audit log is its history.
    detail = {"length": len(source), "source": source, **_detail(where)}
    yield from audit.audit(who, "template.set", _subject(where), detail)
    return is_new


def delete(where: TemplatePlace, *, actor: str | None = None) -> Operation[bool]:
    """Delete a template. Return whether it existed."""
    was_there = yield from store.delete(where)
    if was_there:
        yield from audit.audit(actor or default_actor(), "template.delete", _subject(where), _detail(where))
    return was_there


def history(where: TemplatePlace, *, most: int = 20) -> Operation[list[TemplateVersion]]:
    """Return the versions of a template, newest first, as far as the audit log goes back."""
    rows = yield from audit_lines(subject=_subject(where), most=most)
    return [
        TemplateVersion(row.id, row.at, row.actor, row.action == "template.delete", row.detail.get("source"))
        for row in rows
    ]


def _subject(where: TemplatePlace) -> str:
    return f"template {spelled(where)}"


def _detail(where: TemplatePlace) -> Mapping[str, str]:
    return {name: value for name, value in where._asdict().items() if value}
