"""Installations of the app: registration, preferences, removal. The caller commits."""

import hashlib
import secrets
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import psycopg
from psycopg.types.json import Jsonb

from tenders.app import CATEGORY, TENANT, app, push
from tenders.preferences import Preferences, condition

Connection = psycopg.AsyncConnection[Any]

LOCALE = "es-CL"
# Registrations happen one after another: a token may move from one installation to another.
ONE_AT_A_TIME = "select pg_advisory_xact_lock(hashtextextended('tenders.installations', 0))"
OF_LAST_MINUTE = "select count(*) from tenders.installations where created_at > now() - interval '1 minute'"
CREATE = "insert into tenders.installations (id, secret_hash) values (%s, %s) on conflict do nothing"
TAKE_OVER = "update tenders.installations set push_token = null where push_token = %s and id <> %s returning id"
UPDATE = """
with before as (select id, push_token from tenders.installations where id = %(id)s for update)
update tenders.installations as installation
set push_token = %(push_token)s, platform = %(platform)s, app_version = %(app_version)s, locale = %(locale)s,
    last_seen_at = now(), updated_at = now()
from before where installation.id = before.id returning before.push_token
"""
FIND = """
select secret_hash, push_token, platform, app_version, locale, preferences from tenders.installations where id = %s
"""
PREFER = "update tenders.installations set preferences = %s, updated_at = now() where id = %s"


@dataclass(frozen=True)
class Phone:
    """What an installation says of itself. `push_token`: None while the app may not send pushes."""

    push_token: str | None
    platform: str = "unknown"
    app_version: str = "unknown"
    locale: str = LOCALE


@dataclass(frozen=True)
class Installation:
    """A stored installation."""

    id: str
    secret_hash: bytes | None
    phone: Phone
    preferences: Preferences


class TooManyRegistrations(Exception):  # noqa: N818 - named for what happened
    """More new installations in a minute than the setting allows."""


async def register(connection: Connection, installation: str, phone: Phone, preferences: Preferences) -> None:
    """Register a phone from code, without a credential for the API."""
    await connection.execute(CREATE, [installation, None])
    await update(connection, installation, phone)
    await prefer(connection, installation, preferences)


async def create(connection: Connection, installation: str, most_in_a_minute: int) -> str | None:
    """Return the credential of a new installation, None if it exists. Only a hash of the credential is stored."""
    await connection.execute(ONE_AT_A_TIME)
    ((recent,),) = await (await connection.execute(OF_LAST_MINUTE)).fetchall()
    if recent >= most_in_a_minute:
        raise TooManyRegistrations
    secret = secrets.token_urlsafe(32)
    inserted = await connection.execute(CREATE, [installation, hash_of(secret)])
    return secret if inserted.rowcount else None


async def update(connection: Connection, installation: str, phone: Phone) -> bool:
    """Store what the phone says of itself; return whether it is registered.

    Its token belongs to the installation that named it last.
    """
    await connection.execute(ONE_AT_A_TIME)
    others = await (await connection.execute(TAKE_OVER, [phone.push_token, installation])).fetchall()
    row = await (await connection.execute(UPDATE, {"id": installation} | asdict(phone))).fetchone()
    if row is None:
        return False
    for (other,) in others:
        await _stop_token(connection, other, phone.push_token)
    addresses = {push.name: phone.push_token} if phone.push_token else {}
    await app.recipients.aupsert(installation, addresses, locale=phone.locale, tenant=TENANT, conn=connection)
    if row[0] not in (None, phone.push_token):
        await _stop_token(connection, installation, row[0])
    return True


async def prefer(connection: Connection, installation: str, preferences: Preferences) -> bool:
    """Replace the preferences, for every push that is sent from now on; return whether the phone is registered."""
    if not (await connection.execute(PREFER, [Jsonb(asdict(preferences)), installation])).rowcount:
        return False
    await app.recipients.aprefer(
        installation,
        category=CATEGORY,
        wanted=preferences.enabled,
        condition=condition(preferences),
        tenant=TENANT,
        conn=connection,
    )
    return True


async def find(connection: Connection, installation: str) -> Installation | None:
    row = await (await connection.execute(FIND, [installation])).fetchone()
    if row is None:
        return None
    secret_hash, *phone, preferences = row
    return Installation(installation, secret_hash, Phone(*phone), msgspec.convert(preferences, Preferences))


async def remove(connection: Connection, installation: str) -> None:
    """Delete the installation with its token and preferences. Pushes that wait for it are not sent."""
    await connection.execute(ONE_AT_A_TIME)
    await connection.execute("delete from tenders.installations where id = %s", [installation])
    await app.recipients.adelete(installation, tenant=TENANT, conn=connection)


def hash_of(secret: str) -> bytes:
    """Secrets have 256 random bits, so one round is enough."""
    return hashlib.sha256(secret.encode()).digest()


async def _stop_token(connection: Connection, installation: str, token: str | None) -> None:
    address = {"address": token, "state": "invalid"}
    await app.recipients.aupsert(installation, {push.name: address}, tenant=TENANT, conn=connection)
