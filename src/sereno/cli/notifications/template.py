"""`sereno template …`: message templates; list, preview, check and change them while workers run."""

from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from sereno.cli.failures import NOTHING_MATCHED
from sereno.cli.options import context_options, output_option
from sereno.cli.output import Column, chosen_form, counted, show_json, show_list
from sereno.errors import InvalidArguments

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.notifications.event import Content, Recipient
    from sereno.notifications.templates.lint import DeclaredEvent
    from sereno.notifications.templates.rows import TemplateLine
    from sereno.notifications.templates.templates import TemplateSet

PARTS = ("title", "body", "html", "options")
COLUMNS = ("event", "channel", "locale", "tenant", "part", "from", "length", "changed_at", "changed_by")
T = TypeVar("T")


class NoTemplate(click.ClickException):
    """No template matches."""

    exit_code = NOTHING_MATCHED


class BadTemplate(click.ClickException):
    """The template is invalid, or fails with this payload."""

    exit_code = 2


class TemplateGroup(click.Group):
    """Lists its commands in the order in which they are defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        return list(self.commands)


@click.group(cls=TemplateGroup)
def template() -> None:
    """Manage message templates by event, channel and locale. Rows in the database take precedence over files."""


_locale = click.option("--locale", metavar="LOCALE", help="Locale, such as pt-BR or pt.  [default: any]")
_tenant = click.option("--tenant", help="Tenant of the template.  [default: all]")
_part = click.argument("part", type=click.Choice(PARTS))


@template.command("list", epilog="Example: sereno template list tender.published")
@click.argument("event", required=False)
@output_option
@context_options
def list_templates(context: "CommandContext", event: str | None, form: str) -> None:
    """List templates in files and rows, with the last author of each row."""
    from sereno.notifications.templates.operations import template_lines  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.notifications.templates.queries import list_rows  # noqa: PLC0415 - see above

    lines = template_lines(context.run(list_rows(event)), _templates(context, rows=False).sources(), event)
    found = [_shown_line(line) for line in sorted(lines, key=attrgetter("event", "channel", "locale", "tenant"))]
    columns = [Column(name.replace("_", " "), itemgetter(name)) for name in COLUMNS]
    show_list(form, found, columns, empty="No templates.")


@template.command(epilog="Example: sereno template show tender.published email --locale pt-BR")
@click.argument("event")
@click.argument("channel")
@_locale
@_tenant
@output_option
@context_options
def show(
    context: "CommandContext", event: str, channel: str, locale: str | None, tenant: str | None, form: str
) -> None:
    """Show the template that applies for a locale, part by part, and its source."""
    found = _templates(context).find(event, channel, locale, tenant)
    if not found:
        raise NoTemplate(_nothing(event, channel))
    if chosen_form(form) in ("json", "jsonl"):
        show_json({part: {"from": one.name, "source": one.text} for part, one in found.items()})
        return
    for part, one in found.items():
        click.echo(f"{part}  ({_shown(one.name)})")
        click.echo(_shown(one.text.rstrip("\n")) + "\n")


@template.command("set", epilog="Example: sereno template set tender.published email body words.j2 --locale pt")
@click.argument("event")
@click.argument("channel")
@_part
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@_locale
@_tenant
@context_options
def set_template(
    context: "CommandContext",
    event: str,
    channel: str,
    part: str,
    file: IO[str],
    locale: str | None,
    tenant: str | None,
) -> None:
    """Write a template row from a file or stdin. It takes precedence over files; workers see it within a minute."""
    from sereno.notifications.templates.operations import change, place  # noqa: PLC0415 - slow to import; --help needs none

    where = place(event, channel, part, locale, tenant)
    try:
        source = file.read()
    except UnicodeDecodeError:
        raise InvalidArguments("a template must be UTF-8 text") from None
    is_new = _tried(lambda: context.run(change(where, source)))
    click.echo(f"{_spelled(where)}: {'written' if is_new else 'changed'}; workers see it within a minute.", err=True)


@template.command(epilog="Example: sereno template delete tender.published email body --locale pt")
@click.argument("event")
@click.argument("channel")
@_part
@_locale
@_tenant
@context_options
def delete(
    context: "CommandContext", event: str, channel: str, part: str, locale: str | None, tenant: str | None
) -> None:
    """Delete a template row: the file applies again."""
    from sereno.notifications.templates.operations import delete as operation  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.notifications.templates.operations import place  # noqa: PLC0415 - see above

    where = place(event, channel, part, locale, tenant)
    if not context.run(operation(where)):
        raise NoTemplate(f"No template row {_spelled(where)}; see `sereno template list`.")
    click.echo(f"{_spelled(where)}: deleted.", err=True)


@template.command(epilog="Example: sereno template preview tender.published email --locale pt --last")
@click.argument("event")
@click.argument("channel")
@click.option("--payload", metavar="JSON", help="Payload of the event.")
@click.option("--last", is_flag=True, help="Use the payload of the last event of this type.")
@click.option("--recipient", metavar="KEY", default="user", show_default=True)
@_locale
@_tenant
@output_option
@context_options
def preview(
    context: "CommandContext",
    event: str,
    channel: str,
    payload: str | None,
    last: bool,
    recipient: str,
    locale: str | None,
    tenant: str | None,
    form: str,
) -> None:
    """Render a message as a recipient would get it."""
    from sereno.notifications.event import Recipient  # noqa: PLC0415 - slow to import; --help needs none

    if (payload is None) != last:
        raise click.UsageError("Pass either --payload JSON, or --last for the payload of the last event.")
    values = _last(context, event, tenant) if payload is None else _decoded(payload)
    content = _content(context, event, channel, values, Recipient(key=recipient, tenant=tenant, locale=locale))
    if chosen_form(form) in ("json", "jsonl"):
        show_json(content)
        return
    for name, text in (("title", content.title), ("body", content.body), ("html", content.html)):
        if text:
            click.echo(f"{name}\n{_shown(text)}\n")
    if content.options:
        click.echo("options")
        show_json(content.options)


@template.command(epilog="Example: sereno template lint -a shop.jobs:app")
@output_option
@context_options
def lint(context: "CommandContext", form: str) -> int:
    """Check templates: unknown names, mails without a subject, messages that are too large. Exits with 1 on an error.

    With -a it knows events and channels. Sizes are measured with the last event of each type, or else with the bare
    template.
    """
    from sereno.notifications.templates.lint_process import lint_apart  # noqa: PLC0415 - slow to import; --help needs none
    from sereno.notifications.templates.queries import last_payload  # noqa: PLC0415 - see above

    templates = _templates(context)
    payloads = {name: context.run(last_payload(name)) for name in templates.events()}
    known = {name: payload for name, payload in payloads.items() if payload is not None}
    channels = context.app.channels.known if context.settings.app else {}
    largest = {name: one.largest for name, one in channels.items() if one.largest is not None}
    found = _tried(lambda: lint_apart(templates, _events(context), largest, known))
    columns = [Column(name, attrgetter(name)) for name in ("level", "template", "message")]
    show_list(form, found, columns, empty=f"{counted(len(templates), 'template')}, no problems.")
    if not context.settings.app:
        click.echo("Names and sizes were not checked: name your application with -a.", err=True)
    return 1 if any(finding.level == "error" for finding in found) else 0


def _templates(context: "CommandContext", *, rows: bool = True) -> "TemplateSet":
    from sereno.notifications.templates.queries import read  # noqa: PLC0415 - see above
    from sereno.notifications.templates.templates import TemplateSet, directory_of  # noqa: PLC0415 - slow to import; --help needs none

    made = TemplateSet(directory_of(context.settings.templates))
    if rows:
        made.use_rows(context.run(read())[1] or {})
    return made


def _content(
    context: "CommandContext", event: str, channel: str, values: dict[str, Any], recipient: "Recipient"
) -> "Content":
    """Render as a worker does: a function in the code may take precedence over templates, or come after them."""
    from sereno.notifications.templates.preview import render  # noqa: PLC0415 - slow to import; --help needs none

    definition = context.app.notifications.definitions.get(event) if context.settings.app else None
    templates = _templates(context)
    made = _tried(lambda: render(definition, templates, event, channel, values, recipient))
    if made is None:
        raise NoTemplate(_nothing(event, channel))
    return made


def _tried(action: Callable[[], T]) -> T:
    from sereno.notifications.templates.templates import TemplateFailed  # noqa: PLC0415 - slow to import; --help needs none

    try:
        return action()
    except TemplateFailed as error:
        raise BadTemplate(_shown(str(error))) from None


def _events(context: "CommandContext") -> "dict[str, DeclaredEvent] | None":
    from sereno.notifications.templates.lint import declared  # noqa: PLC0415 - slow to import; --help needs none

    if not context.settings.app:
        return None
    client = context.app.notifications
    return {name: declared(one.channels, client.payloads.get(name)) for name, one in client.definitions.items()}


def _last(context: "CommandContext", event: str, tenant: str | None) -> dict[str, Any]:
    from sereno.notifications.templates.queries import last_payload  # noqa: PLC0415 - slow to import; --help needs none

    found = context.run(last_payload(event, tenant))
    if found is None:
        raise NoTemplate(f"No event {event} exists yet: pass --payload JSON.")
    return found


def _decoded(payload: str) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415 - slow to import; --help needs none

    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidArguments(f"--payload must be a JSON object: {error}") from None


def _shown_line(line: "TemplateLine") -> dict[str, Any]:
    """Return the line under the names of COLUMNS."""
    fields = {**line.place._asdict(), "from": line.origin, "length": line.length}
    return {**fields, "changed_at": line.changed_at, "changed_by": line.changed_by or ""}


def _spelled(where: Any) -> str:
    from sereno.notifications.templates.templates import spelled  # noqa: PLC0415 - slow to import; --help needs none

    return spelled(where)


def _nothing(event: str, channel: str) -> str:
    return f"No template for {event} by {channel}; see `sereno template list`."


def _shown(text: str) -> str:
    """Return the text without control characters, except newlines and tabs."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text)
