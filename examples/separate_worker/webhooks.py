"""Webhooks of integrations: verified, stored once with their job, and handled by a worker."""

import base64
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import psycopg
from standardwebhooks import Webhook, WebhookVerificationError

from separate_worker.leads import NewLead, Reference, add_lead, close_lead
from separate_worker.queues import CYCLE_QUEUE, TRIES, WEBHOOKS, app, enqueue, settings
from sereno import Context, Cron, Dead, Job, Retry

T = TypeVar("T")

# Bytes of a message. Standard Webhooks recommends less than 20 KiB.
LARGEST = 64 * 1024
# An id is a part of what is signed, between dots.
MESSAGE_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
# Secrets of an integration that are accepted: the current one, and the one before it.
SECRETS = 2


class InvalidMessageError(Exception):
    """A signed message that cannot be stored."""


class Message(msgspec.Struct):
    """The envelope of Standard Webhooks."""

    type: str
    data: dict[str, Any]


class ClosedLead(msgspec.Struct):
    reference: Reference


async def find_integration(connection: psycopg.AsyncConnection, name: str) -> tuple[str, Sequence[str]] | None:
    """Return the organisation of an integration, and its secrets."""
    found = await connection.execute(
        "select organisation, secrets from separate_worker.integrations where name = %s", [name]
    )
    row = await found.fetchone()
    return (row[0], row[1]) if row else None


async def add_integration(connection: psycopg.AsyncConnection, name: str, organisation: str) -> str:
    """Create the integration, or replace its secret, and return the new one. The one before it stays valid."""
    secret = f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"
    await connection.execute(
        "insert into separate_worker.integrations (name, organisation, secrets) values (%s, %s, array[%s]) "
        "on conflict (name) do update set organisation = excluded.organisation, "
        "secrets = (excluded.secrets || integrations.secrets)[:%s]",
        [name, organisation, secret, SECRETS],
    )
    return secret


def is_signed(headers: Mapping[str, str], body: bytes, accepted: Sequence[str]) -> bool:
    """Return whether one of the secrets has signed the message within the last five minutes."""
    return any(_is_signed(headers, body, secret) for secret in accepted)


def _is_signed(headers: Mapping[str, str], body: bytes, secret: str) -> bool:
    try:
        Webhook(secret).verify(body, dict(headers), json_parse=False)
    except (WebhookVerificationError, ValueError):
        # ValueError: a body that is not text, or a signature that has no version or is not base64.
        return False
    return True


async def store_message(
    connection: psycopg.AsyncConnection, integration: str, organisation: str, message_id: str, body: bytes
) -> Job[None] | None:
    """Store the message and its job together; return None if it was received before."""
    try:
        msgspec.json.decode(body, type=Message)
        async with connection.transaction():
            made = await connection.execute(
                "insert into separate_worker.webhook_messages (integration, message_id, organisation, body) "
                "values (%s, %s, %s, %s) on conflict do nothing returning true",
                [integration, message_id, organisation, body.decode()],
            )
            if await made.fetchone() is None:
                return None
            new = handle_message.using(tenant=organisation).job(integration, message_id)
            (job,) = await enqueue(connection, [new])
            return job
    except (msgspec.DecodeError, RecursionError, ValueError, psycopg.DataError) as error:
        # DataError: JSON that PostgreSQL cannot store, such as a NUL character.
        raise InvalidMessageError from error


@app.task(name="separate_worker.webhook", queue=WEBHOOKS, retry=TRIES, timeout="1m")
async def handle_message(ctx: Context, integration: str, message_id: str) -> None:
    """Handle a stored message. One that no code can handle is a dead letter, and its message stays stored."""
    async with ctx.transaction() as connection:
        found = await connection.execute(
            "update separate_worker.webhook_messages set handled_at = now() "
            "where (integration, message_id) = (%s, %s) returning organisation, body",
            [integration, message_id],
        )
        row = await found.fetchone()
        if row is None:
            raise Dead("the message is gone")
        organisation, body = row
        match body["type"]:
            case "lead.created":
                await add_lead(connection, organisation, _data(body, NewLead))
            case "lead.closed":
                closed = _data(body, ClosedLead)
                if not await close_lead(connection, organisation, closed.reference):
                    raise Retry(f"there is no lead {closed.reference} yet: messages may arrive in any order")
            case other:
                raise Dead(f"no code handles messages of type {other:.100}")


@app.cycle(Cron("17 3 * * *"), key="separate_worker.forget_messages")
@app.task(name="separate_worker.forget_messages", queue=CYCLE_QUEUE)
async def forget_messages(ctx: Context) -> int:
    """Delete old messages that were handled, and return their number. A repeat by then is too old to be accepted."""
    async with ctx.transaction() as connection:
        gone = await connection.execute(
            "delete from separate_worker.webhook_messages where handled_at < now() - make_interval(days => %s)",
            [settings.keep_messages_days],
        )
        ctx.set_result(gone.rowcount)
    return gone.rowcount


def _data(body: Mapping[str, Any], kind: type[T]) -> T:
    """Return the data of a message, or raise Dead."""
    try:
        return msgspec.convert(body["data"], kind)
    except msgspec.ValidationError as error:
        raise Dead(f"the data of {body['type']} are invalid: {error}") from None
