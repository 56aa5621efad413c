"""Finds errors in templates before they are sent: unknown payload fields, messages that are too large."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from sereno.notifications.event import Content, Recipient
from sereno.notifications.templates.templates import (
    ANY,
    LARGEST_SOURCE,
    NAMES,
    StoredSource,
    TemplateFailed,
    TemplateSet,
    compiled,
    failure,
    sandbox,
)

SMS, MAIL = "sms", "email"
PUSH = frozenset({"expo", "web_push"})
# Characters of a push message that a phone shows.
PUSH_TITLE, PUSH_BODY = 65, 240
# Characters of a single message and of each part of a longer one: in the GSM alphabet, and in others.
GSM_SIZES, OTHER_SIZES = (160, 153), (70, 67)
# Above this, providers split the message or reject it.
MOST_SMS_PARTS = 10
_GSM = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿"
    "abcdefghijklmnopqrstuvwxyzäöñüà"
)
_GSM_TWICE = frozenset("^{}\\[~]|€\f")
# Per event. A template can name tens of thousands of unknown fields.
MOST_FINDINGS = 100
# Names defined by Jinja.
_OF_JINJA = frozenset({"range", "namespace", "self", "super", "caller", "varargs", "kwargs", "loop"})


class LintFinding(msgspec.Struct, frozen=True):
    """One error or warning."""

    level: Literal["error", "warning"]
    template: str
    message: str


class DeclaredEvent(msgspec.Struct, frozen=True):
    """The declaration of an event. `fields`: of its payload; None if they are unknown."""

    channels: Sequence[str]
    fields: frozenset[str] | None


def declared(channels: Sequence[str], payload: Any) -> DeclaredEvent:
    """Return the declaration, with the fields of a dataclass, struct, typed dict or model, as named in JSON."""
    models = getattr(payload, "model_fields", None)
    if isinstance(models, Mapping):
        return DeclaredEvent(channels, frozenset(models))
    try:
        fields = getattr(msgspec.inspect.type_info(payload), "fields", None)
    except TypeError:
        fields = None
    return DeclaredEvent(channels, None if fields is None else frozenset(field.encode_name for field in fields))


def lint(
    templates: TemplateSet,
    events: Mapping[str, DeclaredEvent] | None = None,
    largest: Mapping[str, int] | None = None,
    payloads: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[LintFinding]:
    """Return the findings for all templates, in this process; use `lint_apart` for untrusted templates.

    `events`, None: unknown. `largest`: most bytes per channel. `payloads`: real ones, to measure messages with.
    """
    found = of_strangers(templates)
    for event in templates.events():
        found += lint_event(templates, event, events, largest or {}, (payloads or {}).get(event))
    return found


def of_strangers(templates: TemplateSet) -> list[LintFinding]:
    """Return a warning for each file that is not a template."""
    return [LintFinding("warning", name, "this is not a template name") for name in templates.unknown_files]


def lint_event(
    templates: TemplateSet,
    event: str,
    events: Mapping[str, DeclaredEvent] | None,
    largest: Mapping[str, int],
    payload: Mapping[str, Any] | None,
    begin: Callable[[], None] = lambda: None,
) -> list[LintFinding]:
    """Return the findings for one event, at most MOST_FINDINGS and a note that there are more.

    `begin` is called before each template and each message.
    """
    found: dict[LintFinding, None] = {}
    for finding in _of_event(templates, event, events, largest, payload, begin):
        if finding not in found and len(found) >= MOST_FINDINGS:
            return [
                *found,
                LintFinding("error", event, f"there are more: only the first {MOST_FINDINGS} findings are shown"),
            ]
        found[finding] = None
    return list(found)


def _of_event(
    templates: TemplateSet,
    event: str,
    events: Mapping[str, DeclaredEvent] | None,
    largest: Mapping[str, int],
    payload: Mapping[str, Any] | None,
    begin: Callable[[], None],
) -> Iterator[LintFinding]:
    try:
        sources = templates.sources(event)
    except TemplateFailed as error:
        yield LintFinding("error", "files", str(error))
        return
    broken = set()
    for source in sources:
        begin()
        for finding in _of_source(source, events):
            yield finding
            if finding.level == "error":
                broken.add(source.name)
    for channel, locale, tenant in _messages(sources, (events or {}).get(event)):
        begin()
        parts = templates.find(event, channel, locale, tenant)
        if broken & {source.name for source in parts.values()}:
            continue
        where = f"{event} by {channel}{f' in {locale}' if locale else ''}{f' for {tenant}' if tenant else ''}"
        yield from _of_parts(where, channel, parts)
        try:
            content = _literal(parts) if payload is None else _real(templates, event, channel, locale, tenant, payload)
        except TemplateFailed as error:
            yield LintFinding("error", where, str(error))
            continue
        if content is not None:
            yield from _of_size(where, channel, content, payload, largest.get(channel))


def _of_source(source: StoredSource, events: Mapping[str, DeclaredEvent] | None) -> Iterator[LintFinding]:
    if len(source.text) > LARGEST_SOURCE:
        yield LintFinding("error", source.name, f"it is longer than {LARGEST_SOURCE:,} characters")
        return
    try:
        compiled(source.name, source.text, is_html=source.key.part == "html")
        names = _names(source)
    except TemplateFailed as error:
        yield LintFinding("error", source.name, str(error).removeprefix(source.name).lstrip(":, "))
        return
    if events is None:
        return
    known = events.get(source.key.event)
    if known is None:
        yield LintFinding("warning", source.name, f"the code declares no event {source.key.event}")
        return
    if source.key.channel not in (ANY, *known.channels):
        yield LintFinding("warning", source.name, f"the event does not use the channel {source.key.channel}")
    if known.fields is not None:
        for name in sorted(names - known.fields - NAMES - _OF_JINJA):
            there_are = ", ".join(sorted(known.fields | NAMES))
            yield LintFinding("error", source.name, f"{name!r:.80} is not a field of the payload; it has {there_are}")
        for name in sorted(names & known.fields & NAMES):
            yield LintFinding(
                "warning", source.name, f"{name!r} does not refer to the field of the payload: the name is reserved"
            )


def _names(source: StoredSource) -> set[str]:
    from jinja2 import meta  # noqa: PLC0415 - slow to import

    try:
        return meta.find_undeclared_variables(sandbox(is_html=False).parse(source.text))
    except Exception as error:  # noqa: BLE001 - the source is untrusted
        raise failure(source.name, error) from None


def _messages(sources: Sequence[StoredSource], declaration: DeclaredEvent | None) -> list[tuple[str, str, str]]:
    """Return (channel, locale, tenant) of every message of an event that has a template."""
    found: dict[tuple[str, str, str], None] = {}
    for source in sources:
        _, channel, locale, tenant, _ = source.key
        wanted = declaration.channels if channel == ANY and declaration is not None else [channel]
        for each in wanted:
            found[each, locale, tenant] = None
    return list(found)


def _of_parts(where: str, channel: str, parts: Mapping[str, StoredSource]) -> Iterator[LintFinding]:
    if channel == MAIL and "title" not in parts:
        yield LintFinding("error", where, "an email needs a title: it is the subject")
    if "html" in parts and "body" not in parts:
        yield LintFinding("error", where, "there is HTML and no text: some clients cannot show HTML")
    if set(parts) == {"options"}:
        yield LintFinding("warning", where, "there are options and no title or body, so the options are not used")


def _real(
    templates: TemplateSet, event: str, channel: str, locale: str, tenant: str, payload: Mapping[str, Any]
) -> Content | None:
    recipient = Recipient(key="example", tenant=tenant or None, locale=locale or None)
    return templates.render(event, channel, locale, tenant, payload, recipient)


def _literal(parts: Mapping[str, StoredSource]) -> Content:
    """Return the literal text without values: a lower bound of the size. Branches and loops are left out."""
    from jinja2 import nodes  # noqa: PLC0415 - slow to import

    texts = {}
    for part, source in parts.items():
        tree = sandbox(is_html=False).parse(source.text)
        outputs = [node for node in tree.body if isinstance(node, nodes.Output)]
        pieces = [piece for output in outputs for piece in output.nodes if isinstance(piece, nodes.TemplateData)]
        texts[part] = "".join(piece.data for piece in pieces).strip()
    return Content(texts.get("title", ""), texts.get("body", ""), texts.get("html"))


def _of_size(
    where: str, channel: str, content: Content, payload: Mapping[str, Any] | None, largest: int | None
) -> Iterator[LintFinding]:
    size = size_of(channel, content, payload)
    if largest is not None and size > largest:
        yield LintFinding("error", where, f"{size:,} bytes, and {channel} accepts at most {largest:,}")
    if channel in PUSH:
        for what, text, most in (("title", content.title, PUSH_TITLE), ("body", content.body, PUSH_BODY)):
            if len(text) > most:
                yield LintFinding(
                    "warning", where, f"the {what} has {len(text)} characters: after {most} it is cut off"
                )
    if channel == SMS:
        yield from _of_sms(where, "\n".join(text for text in (content.title, content.body) if text))


def size_of(channel: str, content: Content, payload: Mapping[str, Any] | None) -> int:
    """Return the approximate size in bytes as the provider counts it."""
    texts = [content.title, content.body, content.html or ""]
    size = sum(len(text.encode()) for text in texts) + (len(msgspec.json.encode(content.options)) - 2)
    if channel in PUSH and payload is not None:
        # The payload is sent with the message.
        size += len(msgspec.json.encode(payload))
    return size


def _of_sms(where: str, text: str) -> Iterator[LintFinding]:
    parts, is_gsm = sms_parts(text)
    if parts == 1:
        return
    why = "" if is_gsm else f", because of {next(one for one in text if one not in _GSM | _GSM_TWICE)!r}"
    level: Literal["error", "warning"] = "error" if parts > MOST_SMS_PARTS else "warning"
    yield LintFinding(level, where, f"{parts} parts of an SMS, each charged: {len(text)} characters{why}")


def sms_parts(text: str) -> tuple[int, bool]:
    """Return the number of SMS parts, and whether the GSM alphabet is enough."""
    is_gsm = all(one in _GSM or one in _GSM_TWICE for one in text)
    length = sum(2 if one in _GSM_TWICE else 1 for one in text) if is_gsm else len(text.encode("utf-16-le")) // 2
    whole, each = GSM_SIZES if is_gsm else OTHER_SIZES
    return (1 if length <= whole else -(-length // each)), is_gsm
