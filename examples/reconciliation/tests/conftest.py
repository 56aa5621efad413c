"""Fixtures: the application with its own schema, empty tables, a partner and a Discord stand-in."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psycopg
import pytest
from reconciliation import settings
from reconciliation.app import app
from reconciliation.database import Connection, prepare
from reconciliation.stand_ins import PartnerStandIn

from sereno import Sereno
from sereno.channels.discord import Discord
from sereno.testing.chats import DiscordProvider
from sereno.testing.kit import Kit


@pytest.fixture
def kit(sereno_kit: Callable[[Sereno], Kit], monkeypatch: pytest.MonkeyPatch) -> Kit:
    kit = sereno_kit(app)
    # For processes in which jobs run alone after a crash: they import the application anew.
    monkeypatch.setenv("SERENO_SCHEMA", app.settings.schema)
    return kit


@pytest.fixture
async def connection(kit: Kit) -> AsyncIterator[Connection]:
    async with await psycopg.AsyncConnection.connect(kit.app.url, autocommit=True) as connection:
        await prepare(connection)
        await connection.execute(
            "truncate reconciliation.accounts, reconciliation.files, reconciliation.entries, reconciliation.sales, "
            "reconciliation.sales_days, reconciliation.differences, reconciliation.reported"
        )
        yield connection


@pytest.fixture
async def partner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[PartnerStandIn]:
    async with PartnerStandIn() as partner:
        # Here, and in worker processes that a test starts.
        for name, value in {
            "PARTNER_URL": partner.url,
            "CLIENT_ID": partner.client_id,
            "CLIENT_SECRET": partner.client_secret,
            "DOWNLOAD_HOSTS": partner.url,
            "STORAGE": f"file://{tmp_path}/files",
        }.items():
            monkeypatch.setattr(settings, name, (value,) if name == "DOWNLOAD_HOSTS" else value)
            monkeypatch.setenv(f"RECONCILIATION_{name}", value)
        yield partner


@pytest.fixture
async def discord(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DiscordProvider]:
    async with DiscordProvider() as discord:
        monkeypatch.setattr(settings, "DISCORD_HOOK", discord.address)
        monkeypatch.setitem(app.channels.known, "discord", Discord(url=discord.url))
        yield discord
