"""Templates as a person changes them: checked before they are written, and audited."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sereno.access import audit, tokens
from sereno.access.actor import default_actor
from sereno.database.statement import Operation
from sereno.errors import InvalidArguments
from sereno.notifications.templates import store
from sereno.notifications.templates.store import TemplatePlace
from sereno.notifications.templates.templates import LARGEST_SOURCE, PARTS, Key, compiled, normal, spelled
from sereno.text import check_text

_LOCALE = re.compile(r"[a-z]{2,8}(-[a-z0-9]{1,8})*")
_NAME = re.compile(r"[\w-]+")
_EVENT = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class Version:
    """What somebody made of a template. `source`: None when they deleted it, or when nobody wrote it down."""

    id: int
    at: datetime
    actor: str
    is_deletion: bool
    source: str | None


def place(event: str, channel: str, part: str, locale: str | None = None, tenant: str | None = None) -> TemplatePlace:
    """Where it belongs, or InvalidArguments."""
    for name, value in (("event", event), ("channel", channel), ("tenant", tenant)):
        check_text(name, value)
    if not _EVENT.fullmatch(event) or not _NAME.fullmatch(channel):
        raise InvalidArguments(
            f"{event!r:.60}, {channel!r:.60}: an event and a channel are letters, digits, '_' and '-'"
        )
    if part not in PARTS:
        raise InvalidArguments(f"{part!r:.60} is no part of a message: {', '.join(PARTS)}")
    language = normal(locale or "")
    if language and not _LOCALE.fullmatch(language):
        raise InvalidArguments(f"{locale!r:.60} is no locale: write it as pt-BR or pt")
    return TemplatePlace(event, channel, language, tenant or "", part)


def change(where: TemplatePlace, source: str, *, actor: str | None = None) -> Operation[bool]:
    """Other words from now on; workers see them within a minute. Whether it is new. TemplateFailed if it is none.

    Compiles them in this process: a server calls `compile_apart` and `write`.
    """
    check_length(source)
    compiled(spelled(Key(*where)), source, is_html=where.part == "html")
    return (yield from write(where, source, actor=actor))


def check_length(source: str) -> None:
    """InvalidArguments if it is too long to be compiled, or cannot be stored."""
    if "\x00" in source or len(source) > LARGEST_SOURCE:
        raise InvalidArguments(f"a template has no NUL bytes, and at most {LARGEST_SOURCE:,} characters")


def write(where: TemplatePlace, source: str, *, actor: str | None = None) -> Operation[bool]:
    """Write words that were compiled before. Return whether the row is new."""
    who = actor or default_actor()
    is_new = yield from store.write(where, source, who)
    # With the words themselves, so that the audit is their history.
    detail = {"length": len(source), "source": source, **_detail(where)}
    yield from audit.audit(who, "template.set", _subject(where), detail)
    return is_new


def delete(where: TemplatePlace, *, actor: str | None = None) -> Operation[bool]:
    """Whether there was one."""
    was_there = yield from store.delete(where)
    if was_there:
        yield from audit.audit(actor or default_actor(), "template.delete", _subject(where), _detail(where))
    return was_there


def history(where: TemplatePlace, *, most: int = 20) -> Operation[list[Version]]:
    """What stood there, the newest first, as far as the audit goes back."""
    rows = yield from tokens.audit_lines(subject=_subject(where), most=most)
    return [
        Version(row.id, row.at, row.actor, row.action == "template.delete", row.detail.get("source")) for row in rows
    ]


def _subject(where: TemplatePlace) -> str:
    return f"template {spelled(Key(*where))}"


def _detail(where: TemplatePlace) -> Mapping[str, str]:
    return {name: value for name, value in where._asdict().items() if value}
