"""`sereno topic …`: topics and their subscribers."""

from typing import TYPE_CHECKING

import click

from sereno.cli.failures import NOTHING_MATCHED
from sereno.cli.notifications.page import OrderedGroup, end_of_page, page_options, shown
from sereno.cli.options import context_options, output_option
from sereno.cli.output import Column, chosen_form, show_list

if TYPE_CHECKING:
    from sereno.cli.context import CommandContext
    from sereno.notifications.topics.rows import TopicLine

# Subscribers are counted up to this number.
BOUND = 10_000


def _count(line: "TopicLine") -> str:
    return f"over {BOUND:,}" if line.subscribers > BOUND else f"{line.subscribers:,}"


COLUMNS = (
    Column("topic", lambda line: shown(line.topic), "name"),
    Column("tenant", lambda line: shown(line.tenant), "name"),
    Column("subscribers", _count, "number"),
)
SUBSCRIBER_COLUMNS = (
    Column("id", lambda line: str(line.id), "number"),
    Column("recipient", lambda line: shown(line.recipient), "name"),
    Column("subscribed", lambda line: line.subscribed_at),
)
tenant_option = click.option("--tenant", help="Tenant of the topic.  [default: none]")


@click.group(cls=OrderedGroup)
def topic() -> None:
    """List topics, and subscribe recipients to them."""


@topic.command("list", epilog='Example: sereno topic list "tender:*"')
@click.argument("pattern", required=False)
@tenant_option
@click.option("--fail-empty", is_flag=True, help="Exit with 7 when nothing matches.")
@click.option("--after", metavar="TOPIC", default="", help="Only later ones: the next page.")
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@output_option
@context_options
def list_topics(
    context: "CommandContext",
    pattern: str | None,
    tenant: str | None,
    fail_empty: bool,
    after: str,
    limit: int,
    form: str,
) -> int:
    """List topics by name. * in PATTERN matches anything."""
    from sereno.notifications.topics.queries import topics  # noqa: PLC0415 - slow to import; --help needs none

    found = context.run(topics(pattern, tenant=tenant, after=after, limit=limit))
    show_list(form, found, COLUMNS, empty="No topic matches.")
    if len(found) >= limit and chosen_form(form) == "table":
        click.echo(f"There may be more: add --after {shown(found[-1].topic)}", err=True)
    return NOTHING_MATCHED if fail_empty and not found else 0


@topic.command(epilog="Example: sereno topic show tender:r42")
@click.argument("name", metavar="TOPIC")
@tenant_option
@page_options
@output_option
@context_options
def show(
    context: "CommandContext",
    name: str,
    tenant: str | None,
    limit: int,
    before: int | None,
    fail_empty: bool,
    form: str,
) -> int:
    """Show the subscribers of a topic, the newest recipient first."""
    from sereno.notifications.topics.queries import subscribers  # noqa: PLC0415 - slow to import; --help needs none

    found = context.run(subscribers(name, tenant=tenant, before=before, limit=limit))
    show_list(form, found, SUBSCRIBER_COLUMNS, empty="No recipient is subscribed.")
    return end_of_page(form, found, limit, fail_empty)


@topic.command(epilog="Example: sereno topic subscribe tender:r42 user:7 user:8")
@click.argument("name", metavar="TOPIC")
@click.argument("recipients", nargs=-1, required=True, metavar="RECIPIENT…")
@tenant_option
@context_options
def subscribe(context: "CommandContext", name: str, recipients: tuple[str, ...], tenant: str | None) -> None:
    """Subscribe recipients to a topic. They must exist."""
    from sereno.notifications.topics import operations  # noqa: PLC0415 - slow to import; --help needs none

    with context.connection().transaction():
        count = context.run(operations.subscribe(name, recipients, tenant=tenant))
    click.echo(f"Subscribed to {shown(name)}: {count:,} new.", err=True)


@topic.command(epilog="Example: sereno topic unsubscribe tender:r42 user:7")
@click.argument("name", metavar="TOPIC")
@click.argument("recipients", nargs=-1, required=True, metavar="RECIPIENT…")
@tenant_option
@context_options
def unsubscribe(context: "CommandContext", name: str, recipients: tuple[str, ...], tenant: str | None) -> None:
    """End the subscriptions of recipients to a topic, also for messages that wait to be sent."""
    from sereno.notifications.topics import operations  # noqa: PLC0415 - slow to import; --help needs none

    with context.connection().transaction():
        count = context.run(operations.unsubscribe(name, recipients, tenant=tenant))
    click.echo(f"Unsubscribed from {shown(name)}: {count:,}.", err=True)
